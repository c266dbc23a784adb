"""Steps that are divided, and what they send."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from collir.synthesis.propagation.graph import Relation
from collir.synthesis.sharding.symbolic.amounts import PARTIAL, UNKNOWN, Accounting, Where
from collir.synthesis.sharding.symbolic.parts import Dimension

Known = tuple[Where, ...]
"""For each part of a step, the number of its divided dimension, that it is whole, or unknown."""


class Member(NamedTuple):
    """An operand or the result of a step.

    Attributes:
        part: the number of its part among those of the step.
        dims: for each dimension, the number of what stands for it among those of the step.
        over: the index of each dimension.
        shape: its shape.
        bytes: its bytes.
        weight: what its bytes count where it has to be whole, in quarters.
    """

    part: int
    dims: tuple[int, ...]
    over: tuple[str, ...]
    shape: tuple[int, ...]
    bytes: int
    weight: int


@dataclass
class Step:
    """A step, and how it is divided so far.

    Attributes:
        times: how often it runs.
        parts, dims: the parts and dimensions that its members number.
        members: its operands, and its result at the end.
        key: what its votes depend on, beside how it is divided.
        axes: the sub-axes of its indices.
        cuts: the blocks of its indices.
        blocks: those of the dimensions of its members where they lie.
    """

    relation: Relation
    times: int
    parts: list[int]
    dims: list[Dimension]
    members: list[Member]
    key: int
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    cuts: tuple[tuple[str, int], ...] = ()
    blocks: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def numbers(self) -> dict[Dimension, int]:
        """The numbers of its dimensions."""
        return {dim: number for number, dim in enumerate(self.dims)}


class Table:
    """The amounts that a step sends, for each index that it may divide.

    Attributes:
        indices: these.
        own: for each member, its bytes if it is needed whole or partial, else 0.
    """

    def __init__(
        self, step: Step, indices: Sequence[str | None], factor: int, accounting: Accounting
    ):
        self.step, self.indices = step, indices
        self.factor, self.accounting, self.cuts = factor, accounting, dict(step.cuts)
        self.sizes = [
            x.bytes // math.prod(self.cuts.get(i, 1) for i in x.over) for x in step.members
        ]
        self.own = [
            [
                size * (factor - 1) * factor * x.weight if i is not None and i not in x.over else 0
                for i in indices
            ]
            for x, size in zip(step.members, self.sizes, strict=True)
        ]
        self._moved: dict[tuple[int, Where], list[int]] = {}

    def total(self, known: Known, lies_whole: bool) -> list[int]:
        """Return what is sent where parts are in some states.

        Args:
            lies_whole: whether an operand counts that is needed whole, wherever it lies.
        """
        rows = [self.of(part, state) for part, state in enumerate(known)]
        return [
            sum(x) for x in zip(*rows, *(self.own if lies_whole else self.own[-1:]), strict=True)
        ]

    def of(self, part: int, state: Where) -> list[int]:
        """Return what is sent to bring the members of a part from a state to where the step needs
        them, or to it."""
        key = (part, state)
        if key not in self._moved:
            rows = [
                self._member(place, state)
                for place, x in enumerate(self.step.members)
                if x.part == part and state != UNKNOWN
            ]
            self._moved[key] = (
                [sum(x) for x in zip(*rows, strict=True)] if rows else [0] * len(self.indices)
            )
        return self._moved[key]

    def _member(self, place: int, state: Where) -> list[int]:
        x, lies, size = self.step.members[place], self.step.blocks[place], self.sizes[place]
        at = x.dims.index(state) if isinstance(state, int) and state in x.dims else None
        costs: list[int] = []
        for index in self.indices:
            dim = x.over.index(index) if index is not None and index in x.over else None
            divided = [d for d in (dim, at) if d is not None]
            nest = max((min(lies[d], self.cuts.get(x.over[d], 1)) for d in divided), default=1)
            if place < len(self.step.members) - 1:
                costs.append(self.accounting.operand(size, self.factor, dim, at, nest))
            else:
                left = PARTIAL if dim is None and index is not None else dim
                costs.append(self.accounting.result(size, self.factor, left, at, nest))
        return costs
