"""An algorithm as rounds of moves: which blocks each rank sends to which other one.

A rank has one row of blocks: those of its full buffer, where its input and its output lie. In a
round it sends some of them to a peer, and what comes from another one is added to its own, or takes
their place. All else follows from the rounds: who sends what, the chunk program, and the proof.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from collir.algorithms.collectives import divisions, sizes_of
from collir.algorithms.program import (
    ChunkBuffer,
    ChunkProgram,
    ChunkRange,
    ChunkStep,
    RankProgram,
    ThreadBlock,
)


@dataclass(frozen=True)
class Round:
    """A move of all ranks at the same time.

    Attributes:
        peer: the rank that a rank sends to; itself if it sends nothing.
        blocks: the blocks that a rank sends.
        reduces: whether they are added to those of the peer.
    """

    peer: Callable[[int], int]
    blocks: Callable[[int], Sequence[int]]
    reduces: bool = False


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of one collective.

    Attributes:
        rounds: the rounds for a number of ranks.
        fits: whether it is one for a number of ranks.
        blocks: the blocks of the full buffer, for a number of ranks; by default as many as ranks.
    """

    name: str
    collective: str
    rounds: Callable[[int], Iterable[Round]]
    fits: Callable[[int], bool] = lambda ranks: ranks > 1
    blocks: Callable[[int], int] = lambda ranks: ranks


def program_of(algorithm: Algorithm, ranks: int) -> ChunkProgram:
    """Return the program of an algorithm for a number of ranks, in place.

    A thread block serves a pair of peers. The steps of a rank run one round after the other.

    Raises:
        ValueError: the algorithm is none for as many ranks.
    """
    if not algorithm.fits(ranks):
        raise ValueError(f"{algorithm.name} is no {algorithm.collective} of {ranks} ranks")
    row = ChunkBuffer.INPUT if algorithm.collective == _IN_INPUT else ChunkBuffer.OUTPUT
    writers = [_Writer(rank, row) for rank in range(ranks)]
    channels: dict[tuple[int, ...], int] = {}
    used: dict[tuple[int, int, int], tuple[int, ...]] = {}
    for each in algorithm.rounds(ranks):
        peers = tuple(each.peer(rank) for rank in range(ranks))
        channel = _channel(peers, channels, used)
        senders = {to: rank for rank, to in enumerate(peers) if to != rank}
        for writer in writers:
            rank, source = writer.rank, senders.get(writer.rank)
            to = peers[rank] if peers[rank] != rank else -1
            writer.round(
                to, each.blocks(rank) if to >= 0 else (),
                -1 if source is None else source,
                () if source is None else each.blocks(source), each.reduces, channel,
            )  # fmt: skip
    count = algorithm.blocks(ranks)
    chunks = count // divisions(algorithm.collective, ranks)
    taken, given = sizes_of(algorithm.collective, ranks, chunks)
    sizes = {ChunkBuffer.INPUT: taken, ChunkBuffer.OUTPUT: given}
    made = [RankProgram(writer.done(), sizes) for writer in writers]
    return ChunkProgram(algorithm.name, algorithm.collective, made, chunks, in_place=True)


_IN_INPUT = "reduce_scatter"
"""The collective whose full buffer is the input; others have it as output."""


def _channel(
    peers: tuple[int, ...],
    channels: dict[tuple[int, ...], int],
    used: dict[tuple[int, int, int], tuple[int, ...]],
) -> int:
    """Return the channel of a round: one on which no pair of ranks has other partners."""
    if peers in channels:
        return channels[peers]
    pairs = [(rank, to) for rank, to in enumerate(peers) if to != rank]
    channel = 0
    while any((*pair, channel) in used for pair in pairs):
        channel += 1
    for pair in pairs:
        used[(*pair, channel)] = peers
    channels[peers] = channel
    return channel


class _Writer:
    """The thread blocks of a rank, as its rounds are written."""

    def __init__(self, rank: int, row: ChunkBuffer):
        self.rank, self.row = rank, row
        self.steps: dict[tuple[int, int, int], list[ChunkStep]] = {}
        self.last: tuple[int, int] | None = None

    def round(
        self, to: int, sent: Sequence[int], source: int, received: Sequence[int], reduces: bool,
        channel: int,
    ) -> None:  # fmt: skip
        """Write a round: the blocks that are sent, and those that come."""
        if to < 0 and source < 0:
            return
        key = to, source, channel
        number = [*self.steps].index(key) if key in self.steps else len(self.steps)
        steps = self.steps.setdefault(key, [])
        after = () if self.last is None or self.last[0] == number else (self.last,)
        for part in _runs(self.row, sent):
            steps.append(ChunkStep("send", part, None, after))
            after = ()
        kind = "receive_reduce_copy" if reduces else "receive"
        for part in _runs(self.row, received):
            steps.append(ChunkStep(kind, part if reduces else None, part, after))
            after = ()
        self.last = number, len(steps) - 1

    def done(self) -> tuple[ThreadBlock, ...]:
        """Return the thread blocks."""
        return tuple(
            ThreadBlock(number, tuple(steps), *key)
            for number, (key, steps) in enumerate(self.steps.items())
        )


def _runs(row: ChunkBuffer, blocks: Sequence[int]) -> Iterator[ChunkRange]:
    """Yield neighbouring blocks together."""
    start = 0
    for at in range(1, len(blocks) + 1):
        if at == len(blocks) or blocks[at] != blocks[at - 1] + 1:
            yield ChunkRange(row, blocks[start], at - start)
            start = at
