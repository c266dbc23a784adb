"""Trees as a chunk program, in place.

Each tree has chunks of its own. To gather, chunks go from the root down their tree; to reduce, they
go up, and each rank adds what its children send. Every rank has a thread block for each connection.
All blocks work in one order of all messages, so that no connection needs to hold more than one.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from collir.algorithms.collectives import divisions, sizes_of
from collir.algorithms.program import (
    ChunkBuffer,
    ChunkProgram,
    ChunkRange,
    ChunkStep,
    RankProgram,
    ThreadBlock,
)
from collir.synthesis.trees.packing import SpanningTree

TREE_COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")
"""The collectives that trees implement."""


def gathers(collective: str) -> bool:
    """Return whether chunks go down trees."""
    return collective in ("all_gather", "all_reduce", "broadcast")


def reduces(collective: str) -> bool:
    """Return whether chunks go up trees, and are reduced."""
    return collective in ("reduce_scatter", "all_reduce", "reduce")


class ProgramLimits(NamedTuple):
    """The limits of thread blocks.

    Attributes:
        size: the chunks that a step moves at most.
        steps: the steps of a thread block at most; a connection with more gets several channels.
        connections: the most over which a rank sends on a channel.
    """

    size: int = 71
    steps: int = 64
    connections: int = 32


class _Message(NamedTuple):
    """Chunks that a rank sends to another one."""

    sender: int
    receiver: int
    first: int
    size: int
    reduces: bool


def program_of_trees(
    name: str, collective: str, ranks: int, trees: Sequence[SpanningTree], root: int,
    limits: ProgramLimits | None = None,
) -> ChunkProgram:  # fmt: skip
    """Return the program of spanning trees: as many from each rank, or all from one root.

    Args:
        root: of a broadcast or reduce.
    """
    limits = limits or ProgramLimits()
    count = sum(tree.count for tree in trees)
    row = ChunkBuffer.INPUT if collective == "reduce_scatter" else ChunkBuffer.OUTPUT
    writer = _ProgramWriter(ranks, row, limits)
    for message in _messages(collective, trees, limits.size):
        writer.write(message)
    chunks = count // divisions(collective, ranks)
    taken, given = sizes_of(collective, ranks, chunks)
    sizes = {ChunkBuffer.INPUT: taken, ChunkBuffer.OUTPUT: given}
    programs = [RankProgram(writer.blocks(rank), sizes) for rank in range(ranks)]
    return ChunkProgram(name, collective, programs, chunks, in_place=True, root=root)


def _messages(collective: str, trees: Sequence[SpanningTree], most: int) -> Iterator[_Message]:
    """Yield all messages: those up the trees, far from the roots first, then those down."""
    up: list[tuple[int, _Message]] = []
    down: list[tuple[int, _Message]] = []
    first = 0
    for tree in sorted(trees, key=lambda tree: tree.root):
        depths = tree.depths
        for start in range(first, first + tree.count, most):
            size = min(most, first + tree.count - start)
            for parent, rank in tree.links:
                up.append((-depths[rank], _Message(rank, parent, start, size, True)))
                down.append((depths[rank], _Message(parent, rank, start, size, False)))
        first += tree.count
    # The sort is stable: messages at the same depth stay in the order of the chunks.
    if reduces(collective):
        yield from (message for _, message in sorted(up, key=lambda x: x[0]))
    if gathers(collective):
        yield from (message for _, message in sorted(down, key=lambda x: x[0]))


class _ProgramWriter:
    """The thread blocks of all ranks, as messages are written one after the other."""

    def __init__(self, ranks: int, row: ChunkBuffer, limits: ProgramLimits):
        self.row, self.limits, self.ranks = row, limits, ranks
        self.channels = self._channel(ranks - 1, 0) + 1
        self.steps: list[dict[tuple[int, int, int], list[ChunkStep]]] = [{} for _ in range(ranks)]
        self.written: list[dict[int, tuple[int, int]]] = [{} for _ in range(ranks)]
        self.sent: dict[tuple[int, int], int] = {}

    def write(self, message: _Message) -> None:
        """Write a message: a step of its sender, and one of its receiver."""
        sender, receiver, first, size, adds = message
        number = self.sent.get((sender, receiver), 0)
        self.sent[sender, receiver] = number + 1
        channel = number // self.limits.steps * self.channels
        channel += self._channel(receiver, sender)
        part = ChunkRange(self.row, first, size)
        self._step(sender, (receiver, -1, channel), "send", part, None, first)
        kind = "receive_reduce_copy" if adds else "receive"
        source = part if adds else None
        at = self._step(receiver, (-1, sender, channel), kind, source, part, first)
        self.written[receiver][first] = at

    def _channel(self, receiver: int, sender: int) -> int:
        """Return a channel for a connection on which neither rank has too many."""
        return (receiver - sender) % self.ranks // self.limits.connections

    def _step(
        self, rank: int, block: tuple[int, int, int], kind: str, source: ChunkRange | None,
        target: ChunkRange | None, chunk: int,
    ) -> tuple[int, int]:  # fmt: skip
        """Write a step, which waits for the last one that wrote its chunks; return its place."""
        blocks = self.steps[rank]
        steps = blocks.setdefault(block, [])
        number = [*blocks].index(block)
        last = self.written[rank].get(chunk)
        after = () if last is None or last[0] == number else (last,)
        steps.append(ChunkStep(kind, source, target, after))
        return number, len(steps) - 1

    def blocks(self, rank: int) -> tuple[ThreadBlock, ...]:
        """Return the thread blocks of a rank."""
        return tuple(
            ThreadBlock(number, tuple(steps), *ends)
            for number, (ends, steps) in enumerate(self.steps[rank].items())
        )
