"""An algorithm as rounds of moves: the blocks that each rank sends, and their receivers.

A rank has one row of blocks: those of its full buffer, where its input and its output lie. In a
round it sends some of them to a peer; blocks that arrive are added to its own, or take their place.
The price, the chunk program, its proof, and code follow from the rounds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from collir.algorithms.patterns import GroupShape, Pattern, Ranks
from collir.algorithms.program import ChunkBuffer


class Waits(StrEnum):
    """The event that a message waits for, which decides how latencies add up."""

    ROUND = "round"
    """All messages of the round before."""
    DATA = "data"
    """The message that brings the blocks to pass on: rounds overlap, as chunks of a block flow."""
    NOTHING = "nothing"
    """Its sender alone: a rank sends one message after the other."""


class Cyclic(Sequence[int]):
    """Blocks in steps, modulo their number: ``start``, ``start + step``, ..."""

    def __init__(self, start: int, length: int, modulus: int, step: int = 1):
        self.start, self.length, self.modulus, self.step = start, length, modulus, step

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not 0 <= index < self.length:
            raise IndexError(index)
        return (self.start + index * self.step) % self.modulus


Blocks = Callable[[int, int, int], Sequence[int]]
"""A function from a turn, a rank and the peer that it sends to then, to blocks."""


@dataclass(frozen=True)
class Round:
    """Moves of all ranks at the same time.

    Attributes:
        pattern: which ranks send to which.
        blocks: the blocks that a rank sends; nothing is sent where there are none.
        into: where they lie at the peer, if not at the same numbers.
        reduces: whether they are added to those of the peer.
        times: how many rounds alike follow each other; turns count on.
        waits: what its messages wait for.
        source, target: the buffers in which the blocks lie; by default that of the full buffer.
        counts: the number of blocks that each of some ranks sends, where they differ.
        length: the blocks of each message, where those of patterns are many; else they are counted.
        line: the line of a file that it comes from; 0 if there is none.
    """

    pattern: Pattern
    blocks: Blocks
    into: Blocks | None = None
    reduces: bool = False
    times: int = 1
    waits: Waits = Waits.ROUND
    source: ChunkBuffer | None = None
    target: ChunkBuffer | None = None
    counts: Callable[[Ranks], Ranks] | None = None
    length: int | None = None
    line: int = 0


@dataclass(frozen=True)
class LocalCopy:
    """Copies of blocks from one buffer of a rank to another one.

    Attributes:
        pairs: a function of a rank that returns the blocks, each with where it goes.
    """

    pairs: Callable[[int], Iterable[tuple[int, int]]]
    source: ChunkBuffer
    target: ChunkBuffer


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of one collective.

    Attributes:
        rounds: the rounds of a group of a shape.
        power_of_two: whether it needs 2^k ranks.
        instead: the names of algorithms without that need, to suggest instead.
        blocks: the blocks of the full buffer, for a group; by default as many as ranks.
        scratch: the blocks of memory besides, for a group.
        composed: whether it is a sequence of other algorithms, as ``decompose`` makes them of
            steps. No library has it, so a choice of the cheapest algorithm leaves it out.
    """

    name: str
    collective: str
    rounds: Callable[[GroupShape], Iterable[Round | LocalCopy]]
    power_of_two: bool = False
    instead: str = ""
    blocks: Callable[[GroupShape], int] = lambda shape: shape.ranks
    scratch: Callable[[GroupShape], int] = lambda _: 0
    composed: bool = False

    def fits(self, ranks: int) -> bool:
        """Return whether it is one for a number of ranks."""
        return not (self.power_of_two and ranks & (ranks - 1))

    def check(self, ranks: int) -> None:
        """Check that it is one for a number of ranks.

        Raises:
            ValueError: it is not.
        """
        if not self.fits(ranks):
            raise ValueError(
                f"the {self.name} {self.collective} needs a group of 2^k ranks, and this one has "
                f"{ranks}: use {self.instead}"
            )


def row_of(collective: str) -> ChunkBuffer:
    """Return the buffer that is the full one."""
    full_input = collective in ("reduce_scatter", "scatter")
    return ChunkBuffer.INPUT if full_input else ChunkBuffer.OUTPUT


@dataclass(frozen=True)
class Turn:
    """The messages of ranks at a time, one from each at most.

    Attributes:
        round: the round that it is a part of.
        number: its number in it.
        peers: to whom each rank sends; itself if it sends nothing.
    """

    round: Round
    number: int
    peers: Sequence[int]

    def sent(self, rank: int) -> Sequence[int]:
        """Return the blocks that a rank sends."""
        peer = self.peers[rank]
        return self.round.blocks(self.number, rank, peer) if peer != rank else ()

    def stored(self, rank: int) -> Sequence[int]:
        """Return where at its peer the blocks lie that a rank sends."""
        peer, into = self.peers[rank], self.round.into or self.round.blocks
        return into(self.number, rank, peer) if peer != rank else ()


def turns_of(algorithm: Algorithm, shape: GroupShape) -> Iterator[Turn | LocalCopy]:
    """Yield what the ranks of a group do, turn by turn.

    Raises:
        ValueError: the algorithm is none for as many ranks.
    """
    algorithm.check(shape.ranks)
    everyone = np.arange(shape.ranks)
    for round_ in algorithm.rounds(shape):
        if isinstance(round_, LocalCopy):
            yield round_
            continue
        for number in range(round_.times * round_.pattern.turns(shape)):
            peers = round_.pattern.targets(everyone, number, shape)
            yield Turn(round_, number, peers.tolist())
