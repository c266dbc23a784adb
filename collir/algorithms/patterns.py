"""Patterns of messages: the pairs of ranks of a group that send at the same time.

A group has digits: its rank is a number in mixed radix, most significant digit first, and each
digit counts children of a level of a machine. Patterns know no sizes and no links.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from collir.machine import Level

Ranks = npt.NDArray[np.int64]
"""Numbers of ranks in a group."""


class GroupDigit(NamedTuple):
    """A digit of a rank.

    Attributes:
        size: the number of its values.
        level: the level of the machine whose children it counts; 0 is outermost.
    """

    size: int
    level: int = 0


@dataclass(frozen=True)
class GroupShape:
    """The shape of a group.

    Attributes:
        digits: the digits of its ranks, most significant first.
        wired: the levels whose children have links of their own.
        pieces: into how many pieces pipelines cut what goes along them.
    """

    digits: tuple[GroupDigit, ...]
    wired: frozenset[int] = frozenset()
    pieces: int = 1

    @staticmethod
    def flat(ranks: int) -> "GroupShape":
        """Return the shape of ranks that are all alike."""
        return GroupShape((GroupDigit(ranks),))

    @staticmethod
    def on(digits: Iterable[GroupDigit], levels: Sequence[Level]) -> "GroupShape":
        """Return the shape of a group with some digits on the levels of a machine."""
        own = tuple(digits)
        reached = {digit.level for digit in own if digit.size > 1}
        return GroupShape(own, frozenset(n for n in reached if not levels[n].uniform))

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return math.prod(digit.size for digit in self.digits)

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels over which it extends, outermost first."""
        return tuple(sorted({digit.level for digit in self.digits if digit.size > 1}))

    def across(self, level: int) -> int:
        """Return the number of children of one parent over which it extends."""
        return math.prod(digit.size for digit in self.digits if digit.level == level)

    def below(self, level: int) -> int:
        """Return the number of its ranks below one child of a level."""
        return math.prod(digit.size for digit in self.digits if digit.level > level)


class Pattern(ABC):
    """A rule that maps ranks to the ranks that they send to.

    It has turns where a rank sends several messages: in each of them it sends one at most.

    Attributes:
        part: the part of a rank's data in a round that goes to each peer.
    """

    part: ClassVar[float] = 1.0

    def turns(self, shape: GroupShape) -> int:
        """Return the number of messages that a rank sends at most."""
        return 1

    def sender(self, shape: GroupShape) -> int:
        """Return a rank that sends as much as any other one."""
        return 0

    @abstractmethod
    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        """Return to whom ranks send in a turn; themselves where they send nothing.

        Turns go on over the rounds of a pattern that follow each other.
        """

    def sized_messages(self, shape: GroupShape) -> tuple[Ranks, Ranks, Ranks] | None:
        """Return the senders and the receivers of all messages of a round, and their blocks; None
        if a rank sends as much as any other one that sends."""
        return None

    def messages(self, shape: GroupShape) -> tuple[Ranks, Ranks]:
        """Return the senders and the receivers of all messages of a round."""
        ranks = np.arange(shape.ranks)
        targets = [self.targets(ranks, turn, shape) for turn in range(self.turns(shape))]
        sources, ends = np.tile(ranks, len(targets)), np.concatenate(targets)
        return sources[sources != ends], ends[sources != ends]


@dataclass(frozen=True)
class Shift(Pattern):
    """Rank i sends to rank i + distance (modulo the group)."""

    distance: int

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        return (ranks + self.distance) % shape.ranks


@dataclass(frozen=True)
class BothWays(Pattern):
    """Every rank sends half of a message to the next rank, and half to the previous one."""

    part = 0.5

    def turns(self, shape: GroupShape) -> int:
        return 2

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        return (ranks + (-1 if turn % 2 else 1)) % shape.ranks


@dataclass(frozen=True)
class Exchange(Pattern):
    """Every rank exchanges with the rank whose number differs in one bit; for 2^k ranks."""

    bit: int

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        return ranks ^ (1 << self.bit)


@dataclass(frozen=True)
class Offset(Pattern):
    """Every rank sends to one whose children of a level are ``offset`` further, digit by digit.

    It differs on the digits of levels inside too, by another offset in each of the rounds that
    follow each other; behind all of these the next ``offset`` comes. Digits of levels outside stay.
    """

    level: int
    offset: int

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        further, inside = divmod(turn, shape.below(self.level))
        rests = {True: self.offset + further, False: inside}
        receivers, weight = np.zeros_like(ranks), 1
        for digit in reversed(shape.digits):
            own, move = ranks // weight % digit.size, 0
            if digit.level >= self.level:
                own_level = digit.level == self.level
                rests[own_level], move = divmod(rests[own_level], digit.size)
            receivers = receivers + (own + move) % digit.size * weight
            weight *= digit.size
        return receivers


@dataclass(frozen=True)
class AroundLevel(Pattern):
    """Every rank sends to the one whose child of a level is the next, the last one to the first.

    All digits of the level count together; those of other levels stay.
    """

    level: int

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        receivers, weight, carry = np.zeros_like(ranks), 1, np.ones_like(ranks)
        for digit in reversed(shape.digits):
            value = ranks // weight % digit.size
            if digit.level == self.level:
                carry, value = np.divmod(value + carry, digit.size)
            receivers = receivers + value * weight
            weight *= digit.size
        return receivers


@dataclass(frozen=True)
class Binomial(Pattern):
    """A round of a binomial tree, whose root is rank 0.

    A rank that is a multiple of 2 distance sends to the rank ``distance`` further, if there is one;
    with ``leading``, all ranks below ``distance`` do. To the root they send the other way.
    """

    distance: int
    to_root: bool = False
    leading: bool = False

    def sender(self, shape: GroupShape) -> int:
        return self.distance if self.to_root else 0

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        step = self.distance
        near = ranks - step if self.to_root else ranks
        belongs = (near >= 0) & (near < step if self.leading else near % (2 * step) == 0)
        sends = belongs & (near + step < shape.ranks)
        return np.where(sends, near if self.to_root else near + step, ranks)


@dataclass(frozen=True)
class FoldPairs(Pattern):
    """Of the first ranks, each one with an even number sends to the next, so that 2^k are left; or
    receives from it."""

    back: bool = False

    def sender(self, shape: GroupShape) -> int:
        return 1 if self.back else 0

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        sends = (ranks < 2 * folded(shape)) & (ranks % 2 == (1 if self.back else 0))
        return np.where(sends, ranks + (-1 if self.back else 1), ranks)


@dataclass(frozen=True)
class FoldedExchange(Pattern):
    """An exchange among the ranks that ``FoldPairs`` leaves: numbers of peers differ in one bit."""

    bit: int

    def sender(self, shape: GroupShape) -> int:
        return 1 if folded(shape) else 0

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        extra = folded(shape)
        out = (ranks < 2 * extra) & (ranks % 2 == 0)
        number = np.where(ranks < 2 * extra, ranks // 2, ranks - extra) ^ (1 << self.bit)
        return np.where(out, ranks, np.where(number < extra, 2 * number + 1, number + extra))


def folded(shape: GroupShape) -> int:
    """Return by how many ranks a group has more than 2^k."""
    return shape.ranks - (1 << shape.ranks.bit_length() - 1)


@dataclass(frozen=True)
class AllPairs(Pattern):
    """Every rank sends a message to every other rank, to the next one first."""

    def turns(self, shape: GroupShape) -> int:
        return shape.ranks - 1

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        return (ranks + 1 + turn) % shape.ranks


@dataclass(frozen=True)
class Star(Pattern):
    """Rank 0 sends a message to every other rank, or receives one from it."""

    to_root: bool = False

    def turns(self, shape: GroupShape) -> int:
        return shape.ranks - 1

    def sender(self, shape: GroupShape) -> int:
        return 1 if self.to_root else 0

    def targets(self, ranks: Ranks, turn: int, shape: GroupShape) -> Ranks:
        if self.to_root:
            return np.where(ranks == turn + 1, 0, ranks)
        return np.where(ranks == 0, turn + 1, ranks)

    def messages(self, shape: GroupShape) -> tuple[Ranks, Ranks]:
        others = np.arange(1, shape.ranks)
        root = np.zeros_like(others)
        return (others, root) if self.to_root else (root, others)
