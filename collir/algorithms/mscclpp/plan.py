"""An execution plan of MSCCL++: what the thread blocks of every rank do, operation by operation.

Ranks read and write each other's buffers. They are ordered by signals over channels, by semaphores
and barriers between the blocks of a rank, and by the flags of packets.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collir.algorithms.program import ChunkBuffer, ChunkProgram


class PlanRange(NamedTuple):
    """Neighbouring chunks of a buffer of one rank, or of the same buffer of several.

    Attributes:
        ranks: whose buffer it is; several if it is used by way of a switch.
    """

    ranks: tuple[int, ...]
    buffer: ChunkBuffer
    offset: int
    size: int

    def __str__(self) -> str:
        last = self.offset + self.size - 1
        chunks = f"{self.buffer}[{self.offset}{f'..{last}' if self.size > 1 else ''}]"
        whose = ", ".join(map(str, self.ranks[:4])) + ", ..." * (len(self.ranks) > 4)
        return f"{chunks} of rank{'s' * (len(self.ranks) > 1)} {whose}"


@dataclass(frozen=True)
class PlanOperation:
    """An operation of a thread block.

    Attributes:
        name: as the format has it; a key of ``operations.KINDS``.
        channels: the numbers of the rank's channels of the type, in the order of the operands.
        slice, slices: which part of its ranges it uses, of how many equal ones.
        barrier, blocks: the number of a barrier, and how many thread blocks meet there.
        unit, chunks: the bytes of an iteration of a pipeline, and the chunks that it runs over.
        body: the operations of a pipeline.
    """

    name: str
    sources: tuple[PlanRange, ...] = ()
    targets: tuple[PlanRange, ...] = ()
    channel_type: str = "none"
    channels: tuple[int, ...] = ()
    semaphores: tuple[int, ...] = ()
    slice: int = 0
    slices: int = 1
    barrier: int = 0
    blocks: int = 1
    unit: int = 0
    chunks: int = 0
    body: tuple["PlanOperation", ...] = ()
    line: int = 0

    @property
    def flat(self) -> Iterator["PlanOperation"]:
        """The operation, and those in it."""
        yield self
        yield from self.body


@dataclass(frozen=True)
class PlanBlock:
    """A thread block.

    Attributes:
        channels: for each type the numbers of the rank's channels that it may use.
        remote_buffers: how many buffers of other ranks it may use, by the type of channel.
    """

    number: int
    operations: tuple[PlanOperation, ...]
    channels: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    remote_buffers: Mapping[str, int] = field(default_factory=dict[str, int])
    line: int = 0


@dataclass(frozen=True)
class PlanRank:
    """The program of a rank.

    Attributes:
        sizes: the chunks of each of its buffers.
        peers: for ``memory`` and ``port`` the rank at the other end of each channel.
        semaphores: the value that each semaphore begins with.
        switches: for each switch channel the buffer, and the ranks whose buffers it joins.
    """

    blocks: tuple[PlanBlock, ...]
    sizes: Mapping[ChunkBuffer, int]
    peers: Mapping[str, tuple[int, ...]]
    semaphores: tuple[int, ...] = ()
    switches: tuple[tuple[ChunkBuffer, tuple[int, ...]], ...] = ()
    line: int = 0


@dataclass(frozen=True)
class ExecutionPlan:
    """A plan.

    Attributes:
        outline: the collective, its chunks, the sizes of buffers, and whether it is in place.
        packets: whether the protocol is LL: scratch has room for packets, twice as large as data.
        double_scratch: whether launches take turns with two halves of the scratch buffer.
        threads: the threads of a block.
        alignment: the bytes that buffers and chunks are multiples of.
    """

    outline: ChunkProgram
    ranks: Sequence[PlanRank]
    packets: bool = False
    double_scratch: bool = False
    reuses_scratch: bool = False
    threads: int = 1024
    alignment: int = 16

    @property
    def operation_count(self) -> int:
        """The number of all operations."""
        return sum(
            1 + len(x.body) for rank in self.ranks for block in rank.blocks
            for x in block.operations
        )  # fmt: skip

    def ends(self, kind: str) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the other end of each channel of a type that has one: rank and number.

        The channels of two ranks are joined in the order in which each lists them.
        """
        between: dict[tuple[int, int], list[int]] = {}
        for rank, own in enumerate(self.ranks):
            for number, peer in enumerate(own.peers.get(kind, ())):
                between.setdefault((rank, peer), []).append(number)
        return {
            (rank, number): (peer, peer_number)
            for (rank, peer), numbers in between.items()
            for number, peer_number in zip(numbers, between.get((peer, rank), ()), strict=False)
        }  # fmt: skip
