"""The ranks that take part in a collective, in order, and their places on the machine.

The groups of a step all run at the same time: there is one for every coordinate on the sub-axes
outside the group, except that on sub-axes at root only one coordinate takes part. By symmetry one
group represents all of them; the other groups are a factor on the load of every port.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from collir.layout import Mesh, SubAxis, unplaced_message
from collir.machine import Level, Machine

Array = npt.NDArray[np.int64]


MAX_OF_PARENTS = 2**20
"""Largest number of children of a level whose parents differ in size."""


class CostError(ValueError):
    """An unplaced mesh or an unsuitable algorithm, which has no cost; the text says why."""


@dataclass(frozen=True)
class RankDigit:
    """A sub-axis as a digit of a rank in mixed radix.

    Attributes:
        size: the number of coordinates.
        level: the index of its level; 0 is outermost.
        step: the distance of two neighbouring coordinates in children of the level.
        stride: their distance in ranks.
    """

    size: int
    level: int
    step: int
    stride: int


@dataclass(frozen=True)
class Group:
    """The ranks of a communicator, and the groups that run at the same time.

    Attributes:
        digits: the digits of the group's own sub-axes in the order of its ranks, most significant
            first.
        others: the digits whose coordinates tell apart the groups that run at the same time.
        base: the first rank of the first group.
    """

    machine: Machine
    digits: tuple[RankDigit, ...]
    others: tuple[RankDigit, ...] = ()
    base: int = 0

    @staticmethod
    def of(
        mesh: Mesh,
        axes: Sequence[str],
        at_root: frozenset[str] = frozenset(),
        order: str = "",
        base: int = 0,
    ) -> "Group":
        """Return the groups over ``axes``, with ranks in the written or the ``hardware`` order.

        Args:
            base: the first rank that takes part, if it is not 0.

        Raises:
            CostError: the mesh is not placed on levels, or has more than ``MAX_OF_PARENTS``
                children of parents that differ in size.
        """
        digits = _digits(mesh)
        machine = _as_seen(mesh.machine, [digits[axis] for axis in axes])
        ordered = sorted(axes, key=lambda axis: -digits[axis].stride)
        beside = (axis for axis in digits if axis not in axes and axis not in at_root)
        group = Group(
            machine,
            tuple(digits[axis] for axis in (ordered if order == "hardware" else axes)),
            tuple(digits[axis] for axis in beside),
            base,
        )
        return group._among_parents() if machine.levels[0].parents else group

    def _among_parents(self) -> "Group":
        """Return the group without the parents of the outermost level if no group has ranks below
        several of them.

        Raises:
            CostError: more than ``MAX_OF_PARENTS`` children.
        """
        level = self.levels[0]
        if level.parents and level.size > MAX_OF_PARENTS:
            raise CostError(
                f"level '{level.name}' has {level.size} children: a level with a list of sizes is "
                f"costed for {MAX_OF_PARENTS} at most"
            )
        if self.parents_reached > 1:
            return self
        return replace(self, machine=self.machine.without_parents)

    @property
    def parents_of_ranks(self) -> Array:
        """The parent of each rank on the outermost level, as an array of (group, rank); groups that
        differ only further inside are one. One parent for all if the level has none."""
        level = self.levels[0]
        children = np.zeros(1, dtype=np.int64)
        for digit in self.digits:
            steps = np.arange(digit.size) * (digit.step if digit.level == 0 else 0)
            children = (children[:, None] + steps).ravel()
        reached = np.array(self.first_children(0))[:, None] + children
        counts = level.parents.children if level.parents else (level.size,)
        return np.repeat(np.arange(len(counts)), counts)[reached]

    @cached_property
    def parents_reached(self) -> int:
        """The largest number of parents of the outermost level below which a group has ranks."""
        return max(len(np.unique(row)) for row in self.parents_of_ranks)

    @cached_property
    def hops_between_parents(self) -> int:
        """The largest number of hops from parent to parent of a ring in the order of ranks."""
        rows = self.parents_of_ranks
        return int((rows != np.roll(rows, 1, axis=1)).sum(axis=1).max())

    def ranks_apart(self, rank: int | None = None) -> int:
        """Return the largest number of ranks of a group below other parents than a rank of it, or
        than any rank."""
        rows = self.parents_of_ranks
        ranks = range(self.size) if rank is None else (rank,)
        return max(int((rows != rows[:, [own]]).sum(axis=1).max()) for own in ranks)

    @property
    def latency_between_parents(self) -> float:
        """The latency of a message between parents of the outermost level; that of the level itself
        if it has no parents."""
        parents = self.levels[0].parents
        return max(self.latencies[0], parents.level.latency if parents else 0.0)

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
        """For each level, the number of ranks of one group below one child."""
        return self._products(self.digits)

    @cached_property
    def beside(self) -> tuple[int, ...]:
        """For each level, the number of groups that have ranks below one child."""
        return self._products(self.others)

    def _products(self, digits: Sequence[RankDigit]) -> tuple[int, ...]:
        return tuple(
            math.prod(digit.size for digit in digits if digit.level > level)
            for level in range(len(self.levels))
        )

    @cached_property
    def across(self) -> tuple[int, ...]:
        """For each level, the number of children of one parent over which a group extends."""
        return self._on_levels(self.digits)

    @cached_property
    def groups_across(self) -> tuple[int, ...]:
        """For each level, the number of coordinates that tell groups below one parent apart."""
        return self._on_levels(self.others)

    def _on_levels(self, digits: Sequence[RankDigit]) -> tuple[int, ...]:
        return tuple(
            math.prod(digit.size for digit in digits if digit.level == level)
            for level in range(len(self.levels))
        )

    def spread(self, level: int) -> int:
        """Return the number of children of a level, of all parents, over which a group extends."""
        return self.size // self.below[level]

    @cached_property
    def latencies(self) -> tuple[float, ...]:
        """For each level, the latency of a message through its ports: the largest on its way."""
        levels = self.levels
        return tuple(max(inner.latency for inner in levels[i:]) for i in range(len(levels)))

    @cached_property
    def ports(self) -> tuple[float, ...]:
        """For each level, the port bandwidth that the ranks below a child can use, in bytes/second;
        of the slowest child if ports differ."""
        levels = zip(self.levels, self.each_port, strict=True)
        return tuple(
            min(uneven) if uneven else level.port * self._rails_used(index) / level.rails
            for index, (level, uneven) in enumerate(levels)
        )

    @cached_property
    def each_port(self) -> tuple[tuple[float, ...] | None, ...]:
        """For each level, the port bandwidths of the children of one parent over which a group
        extends, in the order of its ranks: each the smallest over all groups. None if all ports
        are alike."""
        return tuple(self._each_port(index) for index in range(len(self.levels)))

    def _each_port(self, index: int) -> tuple[float, ...] | None:
        level = self.levels[index]
        if level.ports is None:
            return None
        share = self._rails_used(index) / level.rails
        offsets = self.first_children(index)
        return tuple(
            min(level.ports[child + offset] for offset in offsets) * share
            for child in self._children(self.digits, index)
        )

    def reached(self, index: int) -> list[list[int]]:
        """Return, for each group, the children below one parent of a level that it extends over."""
        children = self._children(self.digits, index)
        offsets = self.first_children(index)
        return [[child + offset for child in children] for offset in offsets]

    def first_children(self, index: int) -> list[int]:
        """Return, for each group, the child of a level that its first rank is below."""
        inside = math.prod(level.size for level in self.levels[index + 1 :])
        base = self.base // inside % self.levels[index].size
        return [base + child for child in self._children(self.others, index)]

    def _children(self, digits: Sequence[RankDigit], index: int) -> list[int]:
        """Return the children of a level that digits reach, the first digit most significant."""
        children = [0]
        for digit in digits:
            if digit.level == index:
                children = [child + digit.step * x for child in children for x in range(digit.size)]
        return children

    @property
    def uneven(self) -> bool:
        """True if groups extend over children whose ports differ."""
        return any(ports and self.spread(index) > 1 for index, ports in enumerate(self.each_port))

    def _rails_used(self, index: int) -> int:
        """Return the number of rails of a level's port that the ranks below it use."""
        rails = self.levels[index].rails
        block = math.prod(level.size for level in self.levels[index + 1 :]) // rails
        digits = [digit for digit in (*self.digits, *self.others) if digit.level > index]
        if rails == 1 or math.prod(digit.size for digit in digits) == block * rails:
            return rails
        # A digit whose coordinates all stay in one block of neighbours reaches no other rail.
        reached = {self.base % (block * rails)}
        for digit in digits:
            aligned = block % (digit.stride * digit.size) == 0
            steps = range(1 if aligned else digit.size)
            reached = {offset + digit.stride * x for offset in reached for x in steps}
        return len({offset // block for offset in reached})

    @property
    def is_power_of_two(self) -> bool:
        """True if the number of ranks is a power of two."""
        return self.size & (self.size - 1) == 0

    @property
    def bits(self) -> tuple[tuple[RankDigit, int], ...]:
        """The bits of the index of 2^k ranks, least significant first: (digit, value in it)."""
        return tuple(
            (digit, 1 << bit)
            for digit in reversed(self.digits)
            for bit in range(digit.size.bit_length() - 1)
        )


def _as_seen(machine: Machine, digits: Sequence[RankDigit]) -> Machine:
    """Return the machine with the links that a group uses on levels that it covers in part."""
    if not any(level.parts for level in machine.levels):
        return machine
    across = [
        math.prod(digit.size for digit in digits if digit.level == index)
        for index in range(len(machine.levels))
    ]
    seen = (level.for_children(n) for level, n in zip(machine.levels, across, strict=True))
    return replace(machine, levels=tuple(seen))


def _digits(mesh: Mesh) -> dict[str, RankDigit]:
    """Return the digit of every sub-axis of a mesh."""
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
