"""Who takes part in a collective, as digits: its ranks in order, and where they lie on the machine.

All the groups of a step run at the same time: one for every coordinate on the sub-axes that are not
in the group, except those at root, of which only coordinate 0 takes part. By symmetry one
group stands for all; what the others add is a factor on every port.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from collir.layout import Mesh, SubAxis, unplaced_message
from collir.machine import Level, Machine


class CostError(ValueError):
    """What has no cost: an unplaced mesh, an algorithm that does not fit; the text says why."""


@dataclass(frozen=True)
class RankDigit:
    """A sub-axis: ``size`` coordinates on level ``level`` (0 is outermost).

    ``step`` is how many children of its level lie between two neighbouring coordinates, ``stride``
    how many ranks.
    """

    size: int
    level: int
    step: int
    stride: int


@dataclass(frozen=True)
class Group:
    """The ranks of a communicator, and the groups beside it.

    ``digits`` are the group's own, the first most significant in the order of its ranks. ``others``
    are those of the groups that run at the same time.
    """

    machine: Machine
    digits: tuple[RankDigit, ...]
    others: tuple[RankDigit, ...] = ()

    @staticmethod
    def of(
        mesh: Mesh, axes: Sequence[str], at_root: frozenset[str] = frozenset(), order: str = ""
    ) -> "Group":
        """The groups over ``axes``, ranks in their written order (or that of the ``hardware``).

        Raises:
            CostError: the mesh is not placed on levels.
        """
        digits = _digits(mesh)
        machine = _as_seen(mesh.machine, [digits[axis] for axis in axes])
        over = sorted(axes, key=lambda axis: -digits[axis].stride) if order == "hardware" else axes
        beside = (axis for axis in digits if axis not in axes and axis not in at_root)
        return Group(
            machine,
            tuple(digits[axis] for axis in over),
            tuple(digits[axis] for axis in beside),
        )

    @cached_property
    def size(self) -> int:
        """The number of ranks of one group."""
        return math.prod(digit.size for digit in self.digits)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of the machine, outermost first."""
        return self.machine.levels

    @cached_property
    def below(self) -> tuple[int, ...]:
        """For each level, how many ranks of one group are below one of its children."""
        return self._products(self.digits)

    @cached_property
    def beside(self) -> tuple[int, ...]:
        """For each level, how many groups are the same below one of its children."""
        return self._products(self.others)

    def _products(self, digits: Sequence[RankDigit]) -> tuple[int, ...]:
        return tuple(
            math.prod(digit.size for digit in digits if digit.level > level)
            for level in range(len(self.levels))
        )

    @cached_property
    def across(self) -> tuple[int, ...]:
        """For each level, over how many children of one parent a group extends."""
        return self._on_levels(self.digits)

    @cached_property
    def groups_across(self) -> tuple[int, ...]:
        """For each level, over how many coordinates of one parent's children the groups extend."""
        return self._on_levels(self.others)

    def _on_levels(self, digits: Sequence[RankDigit]) -> tuple[int, ...]:
        return tuple(
            math.prod(digit.size for digit in digits if digit.level == level)
            for level in range(len(self.levels))
        )

    def spread(self, level: int) -> int:
        """Over how many children, of whatever parent, a group extends: ranks / ``below``."""
        return self.size // self.below[level]

    @cached_property
    def latencies(self) -> tuple[float, ...]:
        """The latency of a message that goes through the ports of a level, and all inside it."""
        levels = self.levels
        return tuple(max(inner.latency for inner in levels[i:]) for i in range(len(levels)))

    @cached_property
    def ports(self) -> tuple[float, ...]:
        """The bandwidth of each level's port that the devices below that take part can use: of the
        slowest such port, where they are not all alike."""
        each = zip(self.levels, self.each_port, strict=True)
        return tuple(
            min(uneven) if uneven else level.port * self._rails_used(index) / level.rails
            for index, (level, uneven) in enumerate(each)
        )

    @cached_property
    def each_port(self) -> tuple[tuple[float, ...] | None, ...]:
        """The same for each child over which a group extends below one parent, in the order of its
        ranks: the slowest that is there in any of the groups. None where all are alike."""
        return tuple(self._each_port(index) for index in range(len(self.levels)))

    def _each_port(self, index: int) -> tuple[float, ...] | None:
        level = self.levels[index]
        if level.ports is None:
            return None
        share = self._rails_used(index) / level.rails
        offsets = self._places(self.others, index)
        own = self._places(self.digits, index)
        return tuple(min(level.ports[place + at] for at in offsets) * share for place in own)

    def reached(self, index: int) -> list[list[int]]:
        """The children below one parent of a level over which each of the groups extends."""
        own = self._places(self.digits, index)
        return [[place + at for place in own] for at in self._places(self.others, index)]

    def _places(self, digits: Sequence[RankDigit], index: int) -> list[int]:
        """The children of a level that digits reach, the first digit most significant."""
        found = [0]
        for digit in digits:
            if digit.level == index:
                found = [place + digit.step * x for place in found for x in range(digit.size)]
        return found

    @cached_property
    def uneven(self) -> bool:
        """Whether groups extend over children whose ports differ."""
        return any(each and self.spread(index) > 1 for index, each in enumerate(self.each_port))

    def _rails_used(self, index: int) -> int:
        rails = self.levels[index].rails
        block = math.prod(level.size for level in self.levels[index + 1 :]) // rails
        digits = [digit for digit in (*self.digits, *self.others) if digit.level > index]
        if rails == 1 or math.prod(digit.size for digit in digits) == block * rails:
            return rails
        # Coordinates that stay within a block of neighbours only matter where blocks cut them.
        reached = {0}
        for digit in digits:
            aligned = block % (digit.stride * digit.size) == 0
            steps = range(1 if aligned else digit.size)
            reached = {offset + digit.stride * x for offset in reached for x in steps}
        return len({offset // block for offset in reached})

    @cached_property
    def is_power_of_two(self) -> bool:
        """Whether the number of ranks is 2^k."""
        return self.size & (self.size - 1) == 0

    @cached_property
    def bits(self) -> tuple[tuple[RankDigit, int], ...]:
        """For 2^k ranks, the bits of their index, least significant first: (digit, value)."""
        return tuple(
            (digit, 1 << bit)
            for digit in reversed(self.digits)
            for bit in range(digit.size.bit_length() - 1)
        )


def _as_seen(machine: Machine, digits: Sequence[RankDigit]) -> Machine:
    """Return the machine with the links that a group uses on levels of which it has a part."""
    if not any(level.parts for level in machine.levels):
        return machine
    across = [
        math.prod(digit.size for digit in digits if digit.level == index)
        for index in range(len(machine.levels))
    ]
    seen = (level.for_children(n) for level, n in zip(machine.levels, across, strict=True))
    return replace(machine, levels=tuple(seen))


def _digits(mesh: Mesh) -> dict[str, RankDigit]:
    """The digit of every sub-axis of a mesh."""
    levels = mesh.machine.levels
    extended = [index for index, level in enumerate(levels) if level.size > 1]
    if not mesh.placed and len(extended) > 1:
        raise CostError(unplaced_message(mesh))
    index_of = {level.name: index for index, level in enumerate(levels)}

    def digit(sub: SubAxis) -> RankDigit:
        index = extended[0] if sub.level is None else index_of[sub.level]
        inside = math.prod(level.size for level in levels[index + 1 :])
        return RankDigit(sub.size, index, sub.stride // inside, sub.stride)

    return {sub.name: digit(sub) for sub in mesh.sub_axes}
