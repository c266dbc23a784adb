"""What a round of messages puts on the machine: closed forms by symmetry, per level.

A pattern says which rank of a group sends to which, one message each of the same size. Its loads
are counted in messages, over all groups that run at the same time. A message between two devices
goes through the ports of both on every level from the innermost to the outermost on which they
differ, and over the interconnect of that outermost one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from collir.cost.group import CostError, Digit, Group
from collir.machine import LinkKind

Array = npt.NDArray[Any]

MAX_LISTED = 2**20
"""The most ranks of a group whose messages are listed, where they follow no symmetry."""

MAX_WIRED = {LinkKind.RING: 2**16, LinkKind.FULL: 2**12}
"""The most children of a ring, and of a full mesh, that have links of their own."""

MAX_WIRED_PAIRS = 512
"""The most of them that all send to all."""


@dataclass(frozen=True)
class Load:
    """Messages on one level.

    ``port``: through the busiest port in its busier direction. ``inside``: between the children
    of the busiest parent. ``through``: those, and all that leave or enter that parent. ``links``:
    over each link of a ring (clockwise, then counterclockwise) or between each two children.
    ``each``: out of and into every port, where not every child has as many (and where the busiest
    is not always the same).
    """

    port: float = 0.0
    inside: float = 0.0
    through: float = 0.0
    links: Array | None = None
    each: Array | None = None

    @property
    def busiest_link(self) -> float:
        """The messages over the busiest link; 0 on a switch or bus."""
        return 0.0 if self.links is None else float(np.max(self.links))


Pairs = Iterable[tuple[int, int, float]]
"""(child, child, messages) under one parent."""


class Pattern(ABC):
    """Which ranks of a group send to which."""

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

    def loads(self, group: Group) -> tuple[Load, ...]:
        each = self.sent(group)
        ranks, staying, groups = group.size, group.size * each, _groups(group)
        found: list[Load] = []
        for level in range(len(group.levels)):
            below, stay = group.below[level], self.staying(group, level)
            inside = (staying - group.across[level] * stay) * groups
            leaving = (ranks * each - staying) * groups
            links = None
            if _is_wired(group, level) and inside:
                links = link_loads(group, level, [self.pairs(group, level)])
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

    def _offsets(self, group: Group) -> list[tuple[Digit, int]]:
        """The distance in mixed radix, least significant digit first."""
        rest = self.distance % group.size
        offsets: list[tuple[Digit, int]] = []
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
    states: dict[tuple[int, int], int], digit: Digit, offset: int, level: int, at: int | None
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
        for source, x in _places(group.digits, level, digit):
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
        places = [source for source, _ in _places(group.digits, level)]
        check_wired_pairs(group, level)
        for source in places:
            for target in places:
                if source != target:
                    yield source, target, group.below[level] ** 2


# ---------------------------------------------------------------------------------------------
# Patterns that are not
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree(Pattern):
    """A round of a binomial tree, for 2^k ranks: ranks whose index is 0 in some bits send to (or
    receive from) those that differ in ``bit``.

    The zeros are below ``bit``, or above it with ``leading``.
    """

    bit: int
    leading: bool = False

    def loads(self, group: Group) -> tuple[Load, ...]:
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
            if inside and _is_wired(group, level):
                each = 2 ** sum(other > level for other in free)
                zero: dict[Digit, int] = {}
                for other, bit_value in (*zeros, (digit, value)):
                    zero[other] = zero.get(other, 0) | bit_value
                pairs = [
                    (source, source + digit.step * value, each)
                    for source in _places_with_zeros(group.digits, level, zero)
                ]
                links = link_loads(group, level, [pairs])
            port = per_child if digit.level <= level else 0
            found.append(Load(port, inside, inside + leaving, links))
        return tuple(found)


@dataclass(frozen=True)
class Star(Pattern):
    """Every rank sends a message to rank 0, or receives one from it."""

    def loads(self, group: Group) -> tuple[Load, ...]:
        found: list[Load] = []
        ranks, groups = group.size, _groups(group)
        for level, (below, beside) in enumerate(zip(group.below, group.beside, strict=True)):
            inside = (ranks - below) * groups
            leaving = (group.size - ranks) * groups
            links = None
            if inside and _is_wired(group, level):
                places = [place for place, _ in _places(group.digits, level)]
                links = link_loads(group, level, [[(p, 0, below) for p in places if p]])
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
            places = [c[level][0] for c in coordinates]
            children = [
                parent * across + place for parent, place in zip(parents, places, strict=True)
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
            if within.any() and _is_wired(group, level):
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
        link_loads(
            group,
            level,
            [zip(*(each[of].tolist() for each in (*steps, sizes)), strict=True)],
        )
        for of in (parents == parent for parent in np.unique(parents))
    ]
    return np.concatenate([part.ravel() for part in found])


# ---------------------------------------------------------------------------------------------
# Inside a level
# ---------------------------------------------------------------------------------------------


def _places(
    digits: Sequence[Digit], level: int, watched: Digit | None = None
) -> Iterable[tuple[int, int]]:
    """The children of a level that digits reach, with the coordinate on one of the digits."""
    here = [digit for digit in digits if digit.level == level]
    for at in product(*(range(digit.size) for digit in here)):
        place = sum(digit.step * x for digit, x in zip(here, at, strict=True))
        yield place, at[here.index(watched)] if watched else 0


def _places_with_zeros(
    digits: Sequence[Digit], level: int, zero: dict[Digit, int]
) -> Iterable[int]:
    """The children of a level where the given bits of digits are 0."""
    here = [digit for digit in digits if digit.level == level]
    ranges = [[x for x in range(d.size) if not x & zero.get(d, 0)] for d in here]
    for at in product(*ranges):
        yield sum(digit.step * x for digit, x in zip(here, at, strict=True))


def _is_wired(group: Group, level: int) -> bool:
    return group.levels[level].kind in (LinkKind.RING, LinkKind.FULL)


def check_wired_pairs(group: Group, level: int) -> None:
    """Whether the links between all children of a level can be counted pair by pair.

    Raises:
        CostError: there are more than ``MAX_WIRED_PAIRS`` children.
    """
    if group.across[level] > MAX_WIRED_PAIRS:
        entry = group.levels[level]
        raise CostError(
            f"messages between all {entry.size} children of level '{entry.name}' are counted for "
            f"{MAX_WIRED_PAIRS} at most on a {entry.kind}: use another algorithm"
        )


def link_loads(group: Group, level: int, lists: Iterable[Pairs]) -> Array:
    """The messages over each link of a level that is a ring or a full mesh.

    On a ring messages take the shorter way; where both are as long, half of them each.

    Raises:
        CostError: more than ``MAX_WIRED`` children.
    """
    machine = group.levels[level]
    size = machine.size
    if size > (most := MAX_WIRED[machine.kind]):
        raise CostError(
            f"level '{machine.name}' has {size} children: a {machine.kind} is costed for {most} at "
            "most; say kind = switch"
        )
    offsets = [place for place, _ in _places(group.others, level)]
    listed = [pair for pairs in lists for pair in pairs]
    shape = (2, size) if machine.kind is LinkKind.RING else (size, size)
    links = np.zeros(shape)
    if not listed:
        return links
    table = np.array(listed, dtype=float)
    sources, targets = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    counts = table[:, 2] * group.beside[level]
    for offset in offsets:
        if machine.kind is LinkKind.RING:
            _add_on_ring(links, sources + offset, targets + offset, counts)
        else:
            np.add.at(links, (sources + offset, targets + offset), counts)
    return links


def _add_on_ring(links: Array, sources: Array, targets: Array, counts: Array) -> None:
    size = links.shape[1]
    ahead = (targets - sources) % size
    share = np.where(2 * ahead < size, 1.0, np.where(2 * ahead == size, 0.5, 0.0))
    for direction, part in ((0, share), (1, 1 - share)):
        starts = sources if direction == 0 else targets
        length = ahead if direction == 0 else size - ahead
        change = np.zeros(2 * size + 1)
        np.add.at(change, starts, counts * part)
        np.add.at(change, starts + length, -counts * part)
        level = np.cumsum(change)[:-1]
        links[direction] += level[:size] + level[size:]


def total(parts: Sequence[tuple[tuple[Load, ...], float]]) -> tuple[Load, ...]:
    """Loads together, in bytes: each of the parts with the bytes of its messages."""
    return tuple(
        Load(
            _through_port(each),
            sum(load.inside * size for load, size in each),
            sum(load.through * size for load, size in each),
            _sum([(load.links, size) for load, size in each]),
        )
        for each in zip(*([(load, size) for load in loads] for loads, size in parts), strict=True)
    )


def port_bytes(parts: Sequence[tuple[tuple[Load, ...], float]]) -> tuple[float, ...]:
    """The bytes through the busiest port of every level."""
    return tuple(
        _through_port(each)
        for each in zip(*([(load, size) for load in loads] for loads, size in parts), strict=True)
    )


def _through_port(parts: Sequence[tuple[Load, float]]) -> float:
    listed = _sum([(load.each, size) for load, size in parts])
    same = sum(load.port * size for load, size in parts if load.each is None)
    return same if listed is None else same + float(listed.max())


def _sum(parts: Sequence[tuple[Array | None, float]]) -> Array | None:
    present = [counts * size for counts, size in parts if counts is not None]
    return sum(present[1:], present[0]) if present else None


def seconds(group: Group, loads: Sequence[Load]) -> float:
    """How long the most loaded port, link or interconnect takes for loads in bytes."""
    return max(_each(group, loads), default=0.0)


def _each(group: Group, loads: Sequence[Load]) -> Iterable[float]:
    for level, port, load in zip(group.levels, group.ports, loads, strict=True):
        yield load.port / port
        if level.taper > 1:
            yield load.inside * level.taper / (level.size * level.port)
        if level.kind is LinkKind.BUS:
            yield load.through / level.port
        elif load.links is not None:
            links = 2 if level.kind is LinkKind.RING else level.size - 1
            yield load.busiest_link * links / level.port
