"""What a round of messages puts on the machine: closed forms by symmetry, per level.

A pattern says which rank of a group sends to which, one message each of the same size. Its loads
are counted in messages, over all groups that run at the same time.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import ClassVar

import numpy as np

from collir.cost.network.group import CostError, Group, RankDigit
from collir.cost.network.loads import (
    Array,
    Load,
    Pairs,
    check_wired_pairs,
    group_link_loads,
    is_wired,
    reached_children,
)
from collir.cost.network.wires import all_pairs_loads
from collir.machine import LinkKind

MAX_LISTED = 2**20
"""The most ranks of a group whose messages are listed, where they follow no symmetry."""


class Pattern(ABC):
    """Which ranks of a group send to which.

    Attributes:
        part: of its bytes, what goes to one other rank.
    """

    part: ClassVar[float] = 1.0

    @abstractmethod
    def loads(self, group: Group) -> tuple[Load, ...]:
        """The load of every level."""


# ---------------------------------------------------------------------------------------------
# Patterns that are the same below every child
# ---------------------------------------------------------------------------------------------


class UniformPattern(Pattern):
    """A pattern with as many messages from (and to) one child of a level as any other."""

    def sent(self, group: Group) -> int:
        """How many messages each rank sends."""
        return 1

    @abstractmethod
    def staying(self, group: Group, level: int) -> int:
        """Of the messages of one group from below one child of a level, how many stay there."""

    @abstractmethod
    def pairs(self, group: Group, level: int) -> Pairs:
        """The messages of one group between children of one parent."""

    def links(self, group: Group, level: int) -> Array:
        """The messages over the links of a level whose children have some of their own."""
        return group_link_loads(group, level, [self.pairs(group, level)])

    def loads(self, group: Group) -> tuple[Load, ...]:
        each = self.sent(group)
        ranks, staying, groups = group.size, group.size * each, _groups(group)
        found: list[Load] = []
        for level in range(len(group.levels)):
            below, stay = group.below[level], self.staying(group, level)
            inside = (staying - group.across[level] * stay) * groups
            leaving = (ranks * each - staying) * groups
            links = None
            if is_wired(group, level) and inside:
                links = self.links(group, level)
            crossing = (below * each - stay) * group.beside[level]
            found.append(Load(crossing, inside, inside + 2 * leaving, links))
            ranks, staying, groups = below, stay, group.beside[level]
        return tuple(found)


def _groups(group: Group) -> int:
    return group.beside[0] * group.groups_across[0]


@dataclass(frozen=True)
class Shift(UniformPattern):
    """Rank i sends to rank i + distance (modulo the group)."""

    distance: int

    def _offsets(self, group: Group) -> list[tuple[RankDigit, int]]:
        """The distance in mixed radix, least significant digit first."""
        rest = self.distance % group.size
        offsets: list[tuple[RankDigit, int]] = []
        for digit in reversed(group.digits):
            rest, offset = divmod(rest, digit.size)
            offsets.append((digit, offset))
        return offsets

    def staying(self, group: Group, level: int) -> int:
        counts = [1, 0]  # ranks below the child, by the carry into the next digit
        for digit, offset in self._offsets(group):
            if digit.level > level:
                counts = [
                    sum(count * (digit.size - offset - c) for c, count in enumerate(counts)),
                    sum(count * (offset + c) for c, count in enumerate(counts)),
                ]
            else:  # must come out as it was: without a carry, or with one all the way round
                stays = [offset + c in (0, digit.size) for c in (0, 1)]
                kept = [count if stays[c] else 0 for c, count in enumerate(counts)]
                wraps = [offset + c == digit.size for c in (0, 1)]
                counts = [
                    sum(count for c, count in enumerate(kept) if not wraps[c]),
                    sum(count for c, count in enumerate(kept) if wraps[c]),
                ]
        return sum(counts)

    def pairs(self, group: Group, level: int) -> Pairs:
        offsets = self._offsets(group)
        here = [digit for digit, _ in offsets if digit.level == level]
        for coordinates in product(*(range(digit.size) for digit in here)):
            at = dict(zip(here, coordinates, strict=True))
            source = sum(digit.step * x for digit, x in at.items())
            states: dict[tuple[int, int], int] = {(0, 0): 1}  # (carry, target) -> ranks
            for digit, offset in offsets:
                states = _carried(states, digit, offset, level, at.get(digit))
            for (_, target), count in states.items():
                if target != source:
                    yield source, target, count


def _carried(
    states: dict[tuple[int, int], int], digit: RankDigit, offset: int, level: int, at: int | None
) -> dict[tuple[int, int], int]:
    """One digit of an addition: how many ranks arrive where, by the carry that goes on."""
    found: dict[tuple[int, int], int] = {}

    def add(carry: int, target: int, count: int) -> None:
        if count:
            found[carry, target] = found.get((carry, target), 0) + count

    for (carry, target), count in states.items():
        moved = offset + carry
        if at is not None:
            out, x = divmod(at + moved, digit.size)
            add(out, target + digit.step * x, count)
        elif digit.level > level:
            add(0, target, count * (digit.size - moved))
            add(1, target, count * moved)
        elif moved in (0, digit.size):
            add(int(moved == digit.size), target, count)
    return found


@dataclass(frozen=True)
class Exchange(UniformPattern):
    """Every rank exchanges with the one whose index differs in one bit; for 2^k ranks."""

    bit: int

    def staying(self, group: Group, level: int) -> int:
        digit, _ = group.bits[self.bit]
        return group.below[level] if digit.level > level else 0

    def pairs(self, group: Group, level: int) -> Pairs:
        digit, value = group.bits[self.bit]
        if digit.level != level:
            return
        for source, x in reached_children(group.digits, level, digit):
            yield source, source + digit.step * ((x ^ value) - x), group.below[level]


@dataclass(frozen=True)
class Offset(UniformPattern):
    """Every rank sends to the one whose coordinates on a level are ``offset`` further, digit by
    digit, and whose coordinates on the levels inside are others too."""

    level: int
    offset: int

    def staying(self, group: Group, level: int) -> int:
        return group.below[level] if level < self.level else 0

    def pairs(self, group: Group, level: int) -> Pairs:
        if level != self.level:
            return
        here = [digit for digit in group.digits if digit.level == level]
        rest, moves = self.offset, list[int]()
        for digit in reversed(here):
            rest, move = divmod(rest, digit.size)
            moves.insert(0, move)
        for at in product(*(range(digit.size) for digit in here)):
            each = list(zip(here, at, moves, strict=True))
            source = sum(digit.step * x for digit, x, _ in each)
            target = sum(digit.step * ((x + move) % digit.size) for digit, x, move in each)
            yield source, target, group.below[level]


@dataclass(frozen=True)
class AllPairs(UniformPattern):
    """Every rank sends a message to every other."""

    def sent(self, group: Group) -> int:
        return group.size - 1

    def staying(self, group: Group, level: int) -> int:
        return group.below[level] * (group.below[level] - 1)

    def pairs(self, group: Group, level: int) -> Pairs:
        check_wired_pairs(group, level)
        children = [source for source, _ in reached_children(group.digits, level)]
        for source in children:
            for target in children:
                if source != target:
                    yield source, target, group.below[level] ** 2

    def links(self, group: Group, level: int) -> Array:
        machine = group.levels[level]
        if group.across[level] < machine.size or machine.kind is LinkKind.LINKS:
            return super().links(group, level)
        return all_pairs_loads(machine) * (group.below[level] ** 2 * group.beside[level])


# ---------------------------------------------------------------------------------------------
# Patterns that are not
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BinomialRound(Pattern):
    """A round of a binomial tree, for 2^k ranks: ranks whose index is 0 in some bits send to (or
    receive from) those that differ in ``bit``.

    The zeros are below ``bit``, or above it with ``leading``.
    """

    bit: int
    leading: bool = False

    def loads(self, group: Group) -> tuple[Load, ...]:
        if group.uneven:
            return self._listed(group).loads(group)
        digit, value = group.bits[self.bit]
        below, above = group.bits[: self.bit], group.bits[self.bit + 1 :]
        zeros, rest = (above, below) if self.leading else (below, above)
        free = [other.level for other, _ in rest]
        found: list[Load] = []
        for level in range(len(group.levels)):
            parent_groups = _groups(group) if level == 0 else group.beside[level - 1]
            per_child = 2 ** sum(other > level for other in free) * group.beside[level]
            per_parent = 2 ** sum(other >= level for other in free) * parent_groups
            inside = per_parent if digit.level == level else 0
            leaving = per_parent if digit.level < level else 0
            links = None
            if inside and is_wired(group, level):
                each = 2 ** sum(other > level for other in free)
                zero: dict[RankDigit, int] = {}
                for other, bit_value in (*zeros, (digit, value)):
                    zero[other] = zero.get(other, 0) | bit_value
                pairs = [
                    (source, source + digit.step * value, each)
                    for source in _places_with_zeros(group.digits, level, zero)
                ]
                links = group_link_loads(group, level, [pairs])
            port = per_child if digit.level <= level else 0
            found.append(Load(port, inside, inside + leaving, links))
        return tuple(found)

    def _listed(self, group: Group) -> "Listed":
        """One by one: where ports differ, it counts which children send."""
        check_listed(group.size)
        step, index = 1 << self.bit, np.arange(group.size >> self.bit)
        sources = np.arange(step) if self.leading else index[index % 2 == 0] * step
        return Listed(sources, sources + step)


@dataclass(frozen=True)
class Star(Pattern):
    """Every rank sends a message to rank 0, or receives one from it."""

    def loads(self, group: Group) -> tuple[Load, ...]:
        if group.uneven:
            check_listed(group.size)
            others = np.arange(1, group.size)
            return Listed(others, np.zeros_like(others)).loads(group)
        found: list[Load] = []
        ranks, groups = group.size, _groups(group)
        for level, (below, beside) in enumerate(zip(group.below, group.beside, strict=True)):
            inside = (ranks - below) * groups
            leaving = (group.size - ranks) * groups
            links = None
            if inside and is_wired(group, level):
                children = [child for child, _ in reached_children(group.digits, level)]
                links = group_link_loads(group, level, [[(c, 0, below) for c in children if c]])
            crossing = (group.size - below) * beside
            found.append(Load(crossing, inside, inside + leaving, links))
            ranks, groups = below, beside
        return tuple(found)


def check_listed(ranks: int) -> None:
    """Whether the messages of a group can be listed one by one.

    Raises:
        CostError: more than ``MAX_LISTED`` ranks.
    """
    if ranks > MAX_LISTED:
        raise CostError(
            f"a group of {ranks} ranks is too large to list its messages, which this step needs as "
            f"they follow no symmetry: {MAX_LISTED} ranks at most; use a ring or direct messages"
        )


@dataclass(frozen=True, eq=False)
class Listed(Pattern):
    """Messages one by one: from rank ``sources[i]`` of the group to ``targets[i]``, of size
    ``sizes[i]`` (None: 1 each).

    Raises (by ``loads``):
        CostError: more than ``MAX_LISTED`` ranks.
    """

    sources: Array = field(repr=False)
    targets: Array = field(repr=False)
    sizes: Array | None = field(default=None, repr=False)

    def loads(self, group: Group) -> tuple[Load, ...]:
        check_listed(group.size)
        coordinates = [_coordinates(group, ranks) for ranks in (self.sources, self.targets)]
        parents = [np.zeros(len(self.sources), dtype=np.int64) for _ in range(2)]
        sizes = np.ones(len(self.sources)) if self.sizes is None else self.sizes
        groups = _groups(group)
        found: list[Load] = []
        for level, beside in enumerate(group.beside):
            across = group.across[level]
            inner = [c[level][0] for c in coordinates]
            children = [
                parent * across + place for parent, place in zip(parents, inner, strict=True)
            ]
            crossing = children[0] != children[1]
            away = parents[0] != parents[1]
            within = crossing & ~away
            counts = [_counted(side, sizes, crossing, group.spread(level)) for side in children]
            each = np.stack(counts) * beside
            count = group.spread(level) // across
            inside = _counted(parents[0], sizes, within, count)
            leaving = [_counted(side, sizes, away, count) for side in parents]
            through = inside + leaving[0] + leaving[1]
            links = None
            if within.any() and is_wired(group, level):
                steps = [c[level][1][within] for c in coordinates]
                links = _links_of_parents(group, level, parents[0][within], steps, sizes[within])
            most = float(inside.max()) * groups, float(through.max()) * groups
            found.append(Load(float(each.max()), *most, links, each))
            parents, groups = children, beside
        return tuple(found)


def _coordinates(group: Group, ranks: Array) -> list[tuple[Array, Array]]:
    """For every level: the index of each rank's child in its parent (dense, and as placed)."""
    dense = [np.zeros(len(ranks), dtype=np.int64) for _ in group.levels]
    placed = [np.zeros(len(ranks), dtype=np.int64) for _ in group.levels]
    weights = [1] * len(group.levels)
    rest = ranks
    for digit in reversed(group.digits):
        rest, x = rest // digit.size, rest % digit.size
        dense[digit.level] = dense[digit.level] + x * weights[digit.level]
        placed[digit.level] = placed[digit.level] + x * digit.step
        weights[digit.level] *= digit.size
    return list(zip(dense, placed, strict=True))


def _counted(keys: Array, sizes: Array, of: Array, count: int) -> Array:
    return np.bincount(keys[of], weights=sizes[of], minlength=count)


def _links_of_parents(
    group: Group, level: int, parents: Array, steps: Sequence[Array], sizes: Array
) -> Array:
    """The links of all parents, one behind the other."""
    found = [
        group_link_loads(
            group,
            level,
            [zip(*(each[of].tolist() for each in (*steps, sizes)), strict=True)],
        )
        for of in (parents == parent for parent in np.unique(parents))
    ]
    return np.concatenate([part.ravel() for part in found])


def _places_with_zeros(
    digits: Sequence[RankDigit], level: int, zero: dict[RankDigit, int]
) -> Iterable[int]:
    """The children of a level where the given bits of digits are 0."""
    here = [digit for digit in digits if digit.level == level]
    ranges = [[x for x in range(d.size) if not x & zero.get(d, 0)] for d in here]
    for at in product(*ranges):
        yield sum(digit.step * x for digit, x in zip(here, at, strict=True))
