"""Tasks of a pipeline, and the graph of the tasks of one microbatch.

A pipeline cuts a model into chunks of layers. For each microbatch a chunk has a forward task (F),
a task for the gradient of its inputs (B), and possibly a task of its own for the gradient of its
weights (W). Without W, B computes both gradients.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

KINDS = ("F", "B", "W")
"""The kinds of tasks: forward, gradient of inputs, gradient of weights."""

Part = tuple[str, int]
"""The kind and the chunk of a task: what it computes, for any microbatch."""

_TASK = re.compile(r"([FBW])(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)", re.ASCII)


class Task(NamedTuple):
    """The work of one chunk on one microbatch; printed as ``F0.3``.

    Attributes:
        kind: one of ``KINDS``.
        chunk: index of the chunk of layers, in order of the forward pass.
        microbatch: index of the microbatch.
    """

    kind: str
    chunk: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.chunk}.{self.microbatch}"

    @property
    def part(self) -> Part:
        """The kind and the chunk."""
        return self.kind, self.chunk


def parse_task(text: str) -> Task:
    """Return the task that is printed as a text.

    Raises:
        ValueError: the text is no task.
    """
    if (match := _TASK.fullmatch(text)) is None:
        raise ValueError(
            f"'{text}' is not a task: one is written as F0.3 (kind, chunk, microbatch)"
        )
    return Task(match[1], int(match[2]), int(match[3]))


def part_name(part: Part) -> str:
    """Return how a part is printed: ``F0``."""
    return f"{part[0]}{part[1]}"


@dataclass(frozen=True)
class TaskGraph:
    """The tasks of one microbatch: the same graph for each.

    Attributes:
        places: the place of each part.
        needs: the parts whose result each part needs, of the same microbatch; parts that need
            nothing may be missing.
    """

    places: Mapping[Part, int]
    needs: Mapping[Part, tuple[Part, ...]]

    def __post_init__(self) -> None:
        for part, needed in self.needs.items():
            for missing in (name for name in (part, *needed) if name not in self.places):
                raise ValueError(f"{part_name(missing)} has no place")

    @property
    def edges(self) -> Iterator[tuple[Part, Part]]:
        """Pairs of a part and a part that needs its result."""
        return ((source, part) for part, needed in self.needs.items() for source in needed)


def chain_graph(
    places: Sequence[int], splits_backward: bool, chains: Iterable[Sequence[int]] | None = None
) -> TaskGraph:
    """Return the graph of chunks in a row: F and B of a chunk need those of its neighbours.

    F(c) needs F(c - 1); B(c) needs F(c) and B(c + 1); W(c) needs B(c).

    Args:
        places: the place of each chunk.
        splits_backward: whether W are tasks of their own.
        chains: the chunks of each row in order of the forward pass, where they are several.
    """
    chains = [range(len(places))] if chains is None else chains
    needs: dict[Part, tuple[Part, ...]] = {}
    for chunk in range(len(places)):
        needs["F", chunk] = ()
        needs["B", chunk] = (("F", chunk),)
        if splits_backward:
            needs["W", chunk] = (("B", chunk),)
    for before, after in (pair for chain in chains for pair in pairwise(chain)):
        needs["F", after] += (("F", before),)
        needs["B", before] += (("B", after),)
    return TaskGraph({part: places[part[1]] for part in needs}, needs)
