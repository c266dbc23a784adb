"""The chunk program of an algorithm: its rounds, written out for every rank."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from collir.algorithms.collectives import divisions, sizes_of
from collir.algorithms.moves import Algorithm, LocalCopy, Turn, row_of, turns_of
from collir.algorithms.patterns import GroupShape
from collir.algorithms.program import (
    ChunkBuffer,
    ChunkProgram,
    ChunkRange,
    ChunkStep,
    RankProgram,
    ThreadBlock,
)


def program_of(algorithm: Algorithm, ranks: int, shape: GroupShape | None = None) -> ChunkProgram:
    """Return the program of an algorithm for a number of ranks, in place if that is possible.

    A thread block serves a pair of peers. The steps of a rank run one round after the other.

    Raises:
        ValueError: the algorithm is none for as many ranks.
    """
    shape = shape or GroupShape.flat(ranks)
    collective = algorithm.collective
    writers = [_Writer(rank, row_of(collective)) for rank in range(ranks)]
    channels = _Channels()
    for turn in turns_of(algorithm, shape):
        if isinstance(turn, LocalCopy):
            for writer in writers:
                writer.copy(turn)
            continue
        channel = channels.of(turn)
        senders = {to: rank for rank, to in enumerate(turn.peers) if to != rank}
        for writer in writers:
            writer.turn(turn, senders.get(writer.rank, -1), channel)
    chunks = algorithm.blocks(shape) // divisions(collective, ranks)
    taken, given = sizes_of(collective, ranks, chunks)
    sizes = {ChunkBuffer.INPUT: taken, ChunkBuffer.OUTPUT: given}
    if scratch := algorithm.scratch(shape):
        sizes[ChunkBuffer.SCRATCH] = scratch
    made = [RankProgram(writer.done(), sizes) for writer in writers]
    in_place = collective != "all_to_all"
    return ChunkProgram(algorithm.name, collective, made, chunks, in_place)


class _Channels:
    """The channels of turns: on one of them, no pair of ranks has other partners."""

    def __init__(self) -> None:
        self.by_peers: dict[tuple[int, ...], int] = {}
        self.used: set[tuple[int, int, int]] = set()

    def of(self, turn: Turn) -> int:
        """Return the channel of a turn."""
        peers = tuple(turn.peers)
        if peers not in self.by_peers:
            pairs = [(rank, to) for rank, to in enumerate(peers) if to != rank]
            channel = 0
            while any((*pair, channel) in self.used for pair in pairs):
                channel += 1
            self.used |= {(*pair, channel) for pair in pairs}
            self.by_peers[peers] = channel
        return self.by_peers[peers]


class _Writer:
    """The thread blocks of a rank, as its rounds are written."""

    def __init__(self, rank: int, row: ChunkBuffer):
        self.rank, self.row = rank, row
        self.steps: dict[tuple[int, int, int], list[ChunkStep]] = {}
        self.last: tuple[int, int] | None = None

    def turn(self, turn: Turn, source: int, channel: int) -> None:
        """Write what the rank sends in a turn, and what it receives from a rank, if not -1."""
        to = turn.peers[self.rank] if turn.peers[self.rank] != self.rank else -1
        lies, kept = turn.round.source or self.row, turn.round.target or self.row
        kind = "receive_reduce_copy" if turn.round.reduces else "receive"
        sent = [ChunkRange(lies, a, n) for a, _, n in _runs(turn, self.rank)] if to >= 0 else []
        parts = [ChunkRange(kept, b, n) for _, b, n in _runs(turn, source)] if source >= 0 else []
        line = turn.round.line
        sends = [ChunkStep("send", part, line=line) for part in sent]
        reduces = turn.round.reduces
        receives = [ChunkStep(kind, part if reduces else None, part, line=line) for part in parts]
        made = [*sends, *receives]
        sent_at = {place: n for n, part in enumerate(sent) for place in _places(part)}
        if all(
            sent_at.get(place, n) <= n for n, part in enumerate(parts) for place in _places(part)
        ):
            # In turns, so that a connection holds few messages; nothing is overwritten unsent.
            made = [step for pair in zip_longest(sends, receives) for step in pair if step]
        if made:
            self._write((to, source, channel), made)

    def copy(self, copy: LocalCopy) -> None:
        """Write copies between buffers."""
        made = [
            ChunkStep("copy", ChunkRange(copy.source, a, n), ChunkRange(copy.target, b, n))
            for a, b, n in runs(copy.pairs(self.rank))
        ]
        self._write((-1, -1, 0), made)

    def _write(self, key: tuple[int, int, int], made: list[ChunkStep]) -> None:
        number = [*self.steps].index(key) if key in self.steps else len(self.steps)
        steps = self.steps.setdefault(key, [])
        if self.last and self.last[0] != number:
            first = made[0]
            made[0] = replace(first, after=(self.last,))
        steps += made
        self.last = number, len(steps) - 1

    def done(self) -> tuple[ThreadBlock, ...]:
        """Return the thread blocks."""
        return tuple(
            ThreadBlock(number, tuple(steps), *key)
            for number, (key, steps) in enumerate(self.steps.items())
        )


def _places(part: ChunkRange) -> Iterator[tuple[ChunkBuffer, int]]:
    return ((part.buffer, part.offset + n) for n in range(part.size))


def _runs(turn: Turn, sender: int) -> Iterator[tuple[int, int, int]]:
    return runs(zip(turn.sent(sender), turn.stored(sender), strict=True))


def runs(pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield neighbours among pairs of blocks together: the first of each, and their number."""
    start: tuple[int, int] | None = None
    count = 0
    for a, b in pairs:
        if start and (a, b) == (start[0] + count, start[1] + count):
            count += 1
            continue
        if start:
            yield (*start, count)
        start, count = (a, b), 1
    if start:
        yield (*start, count)
