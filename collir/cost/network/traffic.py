"""The loads of patterns of messages on every level of the machine, in closed form by symmetry.

Loads are counted in messages, over all groups that run at the same time. Patterns whose loads have
no closed form on a group are listed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from collir.algorithms.patterns import (
    AllPairs,
    AroundLevel,
    Binomial,
    Exchange,
    GroupDigit,
    GroupShape,
    Offset,
    Pattern,
    Ranks,
    Shift,
    Star,
)
from collir.cost.network.group import CostError, Group, RankDigit
from collir.cost.network.loads import (
    Array,
    Load,
    Pairs,
    check_wired_pairs,
    group_link_loads,
    reached_children,
)
from collir.cost.network.wires import all_pairs_loads
from collir.machine import LinkKind

Counts = Callable[[Ranks], Ranks]
"""A function from the numbers of ranks to the sizes of their messages."""

MAX_LISTED = 2**20
"""Largest number of ranks of a group whose messages are listed for lack of symmetry."""


class Traffic(ABC):
    """The messages of a pattern, all of the same size, on the groups of a machine."""

    @abstractmethod
    def loads(self, group: Group) -> tuple[Load, ...]:
        """Return the load of every level, in messages."""


# ---------------------------------------------------------------------------------------------
# Traffic that is the same below every child
# ---------------------------------------------------------------------------------------------


class UniformTraffic(Traffic):
    """Traffic with equally many messages from (and to) every child of a level."""

    def sent(self, group: Group) -> int:
        """Return the number of messages that each rank sends."""
        return 1

    @abstractmethod
    def staying(self, group: Group, level: int) -> int:
        """Return the number of messages of one group that stay below one child of a level."""

    @abstractmethod
    def pairs(self, group: Group, level: int) -> Pairs:
        """Yield the messages of one group between children of one parent."""

    def links(self, group: Group, level: int) -> Array:
        """Return the messages over the links of a level whose children have links of their own."""
        return group_link_loads(group, level, [self.pairs(group, level)])

    def loads(self, group: Group) -> tuple[Load, ...]:
        sent = self.sent(group)
        ranks, staying, groups = group.size, group.size * sent, _group_count(group)
        loads: list[Load] = []
        for level in range(len(group.levels)):
            below, stay = group.below[level], self.staying(group, level)
            inside = (staying - group.across[level] * stay) * groups
            leaving = (ranks * sent - staying) * groups
            links = None
            if not group.levels[level].uniform and inside:
                links = self.links(group, level)
            crossing = (below * sent - stay) * group.beside[level]
            loads.append(Load(crossing, inside, inside + 2 * leaving, links))
            ranks, staying, groups = below, stay, group.beside[level]
        return tuple(loads)


def _group_count(group: Group) -> int:
    return group.beside[0] * group.groups_across[0]


@dataclass(frozen=True)
class _ShiftTraffic(UniformTraffic):
    pattern: Shift

    def _offsets(self, group: Group) -> list[tuple[RankDigit, int]]:
        """Return the distance in mixed radix, least significant digit first."""
        rest = self.pattern.distance % group.size
        offsets: list[tuple[RankDigit, int]] = []
        for digit in reversed(group.digits):
            rest, offset = divmod(rest, digit.size)
            offsets.append((digit, offset))
        return offsets

    def staying(self, group: Group, level: int) -> int:
        counts = [1, 0]  # numbers of ranks below the child, by the carry into the next digit
        for digit, offset in self._offsets(group):
            if digit.level > level:
                counts = [
                    sum(count * (digit.size - offset - c) for c, count in enumerate(counts)),
                    sum(count * (offset + c) for c, count in enumerate(counts)),
                ]
            else:  # the digit must stay as it is: nothing is added to it, or its whole size
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
        inside = [digit for digit, _ in offsets if digit.level == level]
        for coordinates in product(*(range(digit.size) for digit in inside)):
            coordinate = dict(zip(inside, coordinates, strict=True))
            source = sum(digit.step * x for digit, x in coordinate.items())
            states: dict[tuple[int, int], int] = {(0, 0): 1}  # (carry, target) -> number of ranks
            for digit, offset in offsets:
                states = _next_states(states, digit, offset, level, coordinate.get(digit))
            for (_, target), count in states.items():
                if target != source:
                    yield source, target, count


def _next_states(
    states: dict[tuple[int, int], int],
    digit: RankDigit,
    offset: int,
    level: int,
    coordinate: int | None,
) -> dict[tuple[int, int], int]:
    """Add one digit of an offset to ranks, and return their number by carry and target child.

    Ranks have this ``coordinate`` on a digit of ``level``, any coordinate on digits inside it, and
    must keep their coordinate on digits outside it.
    """
    following: dict[tuple[int, int], int] = {}

    def add(carry: int, target: int, count: int) -> None:
        if count:
            following[carry, target] = following.get((carry, target), 0) + count

    for (carry, target), count in states.items():
        moved = offset + carry
        if coordinate is not None:
            out, x = divmod(coordinate + moved, digit.size)
            add(out, target + digit.step * x, count)
        elif digit.level > level:
            add(0, target, count * (digit.size - moved))
            add(1, target, count * moved)
        elif moved in (0, digit.size):
            add(int(moved == digit.size), target, count)
    return following


@dataclass(frozen=True)
class _ExchangeTraffic(UniformTraffic):
    pattern: Exchange

    def staying(self, group: Group, level: int) -> int:
        digit, _ = group.bits[self.pattern.bit]
        return group.below[level] if digit.level > level else 0

    def pairs(self, group: Group, level: int) -> Pairs:
        digit, value = group.bits[self.pattern.bit]
        if digit.level != level:
            return
        for source, x in reached_children(group.digits, level, digit):
            yield source, source + digit.step * ((x ^ value) - x), group.below[level]


@dataclass(frozen=True)
class _OffsetTraffic(UniformTraffic):
    pattern: Offset

    def staying(self, group: Group, level: int) -> int:
        return group.below[level] if level < self.pattern.level else 0

    def pairs(self, group: Group, level: int) -> Pairs:
        if level != self.pattern.level:
            return
        check_wired_pairs(group, level)
        inside = [digit for digit in group.digits if digit.level == level]
        rest, moves = self.pattern.offset, list[int]()
        for digit in reversed(inside):
            rest, move = divmod(rest, digit.size)
            moves.insert(0, move)
        for coordinates in product(*(range(digit.size) for digit in inside)):
            moved = list(zip(inside, coordinates, moves, strict=True))
            source = sum(digit.step * x for digit, x, _ in moved)
            target = sum(digit.step * ((x + move) % digit.size) for digit, x, move in moved)
            yield source, target, group.below[level]


@dataclass(frozen=True)
class _AroundTraffic(UniformTraffic):
    pattern: AroundLevel

    def staying(self, group: Group, level: int) -> int:
        return group.below[level] if level < self.pattern.level else 0

    def pairs(self, group: Group, level: int) -> Pairs:
        if level != self.pattern.level:
            return
        children = [child for child, _ in reached_children(group.digits, level)]
        for source, target in zip(children, [*children[1:], children[0]], strict=True):
            yield source, target, group.below[level]


@dataclass(frozen=True)
class _AllPairsTraffic(UniformTraffic):
    pattern: AllPairs

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
        entry = group.levels[level]
        if group.across[level] < entry.size or entry.kind is LinkKind.LINKS:
            return super().links(group, level)
        return all_pairs_loads(entry) * (group.below[level] ** 2 * group.beside[level])


# ---------------------------------------------------------------------------------------------
# Traffic that differs from child to child
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BinomialTraffic(Traffic):
    """A round of a binomial tree of 2^k ranks, in either direction."""

    pattern: Binomial

    def loads(self, group: Group) -> tuple[Load, ...]:
        bit = self.pattern.distance.bit_length() - 1
        digit, value = group.bits[bit]
        below, above = group.bits[:bit], group.bits[bit + 1 :]
        zeros, rest = (above, below) if self.pattern.leading else (below, above)
        free = [bit_digit.level for bit_digit, _ in rest]
        zero_bits: dict[RankDigit, int] = {}
        for bit_digit, bit_value in (*zeros, (digit, value)):
            zero_bits[bit_digit] = zero_bits.get(bit_digit, 0) | bit_value
        loads: list[Load] = []
        for level in range(len(group.levels)):
            parent_groups = _group_count(group) if level == 0 else group.beside[level - 1]
            senders = 2 ** sum(free_level > level for free_level in free)
            per_parent = 2 ** sum(free_level >= level for free_level in free) * parent_groups
            inside = per_parent if digit.level == level else 0
            leaving = per_parent if digit.level < level else 0
            links = None
            if inside and not group.levels[level].uniform:
                pairs = [
                    (source, source + digit.step * value, senders)
                    for source in _children_with_zeros(group.digits, level, zero_bits)
                ]
                links = group_link_loads(group, level, [pairs])
            port = senders * group.beside[level] if digit.level <= level else 0
            loads.append(Load(port, inside, inside + leaving, links))
        return tuple(loads)


@dataclass(frozen=True)
class _StarTraffic(Traffic):
    pattern: Star

    def loads(self, group: Group) -> tuple[Load, ...]:
        loads: list[Load] = []
        ranks, groups = group.size, _group_count(group)
        for level, (below, beside) in enumerate(zip(group.below, group.beside, strict=True)):
            inside = (ranks - below) * groups
            leaving = (group.size - ranks) * groups
            links = None
            if inside and not group.levels[level].uniform:
                children = [child for child, _ in reached_children(group.digits, level)]
                links = group_link_loads(group, level, [[(c, 0, below) for c in children if c]])
            crossing = (group.size - below) * beside
            loads.append(Load(crossing, inside, inside + leaving, links))
            ranks, groups = below, beside
        return tuple(loads)


def check_listed(ranks: int) -> None:
    """Check that the messages of a group can be listed one by one.

    Raises:
        CostError: more than ``MAX_LISTED`` ranks.
    """
    if ranks > MAX_LISTED:
        raise CostError(
            f"a group of {ranks} ranks is too large to list its messages, which this step needs as "
            f"they follow no symmetry: {MAX_LISTED} ranks at most; use a ring or direct messages"
        )


@dataclass(frozen=True, eq=False)
class ListedMessages(Traffic):
    """Listed messages: from rank ``sources[i]`` of the group to ``targets[i]``, of size
    ``sizes[i]``, or 1 if ``sizes`` is None.

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
        groups = _group_count(group)
        loads: list[Load] = []
        for level, beside in enumerate(group.beside):
            across = group.across[level]
            inner = [c[level][0] for c in coordinates]
            children = [
                parent * across + index for parent, index in zip(parents, inner, strict=True)
            ]
            crossing = children[0] != children[1]
            away = parents[0] != parents[1]
            within = crossing & ~away
            counts = [_summed(side, sizes, crossing, group.spread(level)) for side in children]
            every_port = np.stack(counts) * beside
            count = group.spread(level) // across
            inside = _summed(parents[0], sizes, within, count)
            leaving = [_summed(side, sizes, away, count) for side in parents]
            through = inside + leaving[0] + leaving[1]
            links = None
            if within.any() and not group.levels[level].uniform:
                steps = [c[level][1][within] for c in coordinates]
                links = _links_of_parents(group, level, parents[0][within], steps, sizes[within])
            busiest = float(inside.max()) * groups, float(through.max()) * groups
            loads.append(Load(float(every_port.max()), *busiest, links, every_port))
            parents, groups = children, beside
        return tuple(loads)


def _coordinates(group: Group, ranks: Array) -> list[tuple[Array, Array]]:
    """Return for every level the child of each rank in its parent: its index among the group's
    children, and its index in the parent."""
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


def _summed(keys: Array, sizes: Array, chosen: Array, count: int) -> Array:
    """Return the sums of the chosen sizes by key."""
    return np.bincount(keys[chosen], weights=sizes[chosen], minlength=count)


def _links_of_parents(
    group: Group, level: int, parents: Array, steps: Sequence[Array], sizes: Array
) -> Array:
    """Return the messages over the links below all parents, concatenated."""
    loads = [
        group_link_loads(
            group,
            level,
            [zip(*(column[chosen].tolist() for column in (*steps, sizes)), strict=True)],
        )
        for chosen in (parents == parent for parent in np.unique(parents))
    ]
    return np.concatenate([part.ravel() for part in loads])


def _children_with_zeros(
    digits: Sequence[RankDigit], level: int, zero_bits: dict[RankDigit, int]
) -> Iterable[int]:
    """Yield the children of a level for which these bits of the digits are 0."""
    inside = [digit for digit in digits if digit.level == level]
    ranges = [[x for x in range(d.size) if not x & zero_bits.get(d, 0)] for d in inside]
    for coordinates in product(*ranges):
        yield sum(digit.step * x for digit, x in zip(inside, coordinates, strict=True))


# ---------------------------------------------------------------------------------------------
# The traffic of a pattern
# ---------------------------------------------------------------------------------------------


def traffic_of(pattern: Pattern, group: Group, counts: Counts | None = None) -> Traffic:
    """Return the traffic of a pattern on a group.

    Args:
        counts: a function from ranks to the sizes of their messages, the largest of which is 1; by
            default all are 1.

    Raises:
        CostError: it has to be listed, and has more than ``MAX_LISTED`` ranks.
    """
    match pattern:
        case Shift():
            return _ShiftTraffic(pattern)
        case Exchange():
            return _ExchangeTraffic(pattern)
        case Offset():
            return _OffsetTraffic(pattern)
        case AroundLevel():
            return _AroundTraffic(pattern)
        case AllPairs():
            return _AllPairsTraffic(pattern)
        case Binomial() if group.is_power_of_two and not group.uneven:
            return _BinomialTraffic(pattern)
        case Star() if not group.uneven:
            return _StarTraffic(pattern)
        case _:
            return listed_traffic(pattern, group, counts)


def listed_traffic(
    pattern: Pattern, group: Group, counts: Counts | None = None, root: int = 0
) -> ListedMessages:
    """Return the messages of a pattern one by one; see ``traffic_of``.

    Args:
        root: the rank that is the first one of the pattern; the next one is the second.
    """
    check_listed(group.size)
    sources, targets = pattern.messages(shape_of(group))
    sizes = None if counts is None else counts(sources)
    return listed_messages(sources, targets, sizes, group, root)


def listed_messages(
    sources: Ranks, targets: Ranks, sizes: Ranks | None, group: Group, root: int
) -> ListedMessages:
    """Return messages whose largest size is 1 message, for ranks that are counted from a root."""
    ends = (sources + root) % group.size, (targets + root) % group.size
    return ListedMessages(
        *ends, None if sizes is None else sizes / max(int(sizes.max(initial=0)), 1)
    )


def next_pairs(group: Group, level: int) -> Pairs:
    """Yield the messages of one group between children of one parent, if each rank sends to the
    next one."""
    return _ShiftTraffic(Shift(1)).pairs(group, level)


def shape_of(group: Group) -> GroupShape:
    """Return the shape of a group."""
    return GroupShape.on((GroupDigit(x.size, x.level) for x in group.digits), group.levels)
