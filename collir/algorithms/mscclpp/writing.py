"""Chunk programs as execution plans of MSCCL++.

A connection of a program is a channel, and two slots in the scratch buffer of its receiver:

    sender    wait (a slot is free), put into the slot, signal (it is full)
    receiver  signal (ready), wait (a slot is full), copy or add from it, signal (it is free)

The receiver signals once that it is ready, when it is launched; later it signals that a slot is
free, for each slot that is needed again. So each launch has as many signals as waits, and none
disturbs the next one. Only scratch is used by other ranks: what the program of a rank does with its
buffers between launches needs no care. Over ports data are sent from scratch as well, since the
sender's buffers may be written again before they are sent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from collir.algorithms.mscclpp.limits import MOST_OPERATIONS
from collir.algorithms.mscclpp.plan import (
    ExecutionPlan,
    PlanBlock,
    PlanOperation,
    PlanRange,
    PlanRank,
)
from collir.algorithms.program import (
    DOES,
    ChunkBuffer,
    ChunkProgram,
    ChunkRange,
    ChunkStep,
    ThreadBlock,
)

SLOTS = 2
"""The messages that a connection holds."""


@dataclass
class _Wire:
    """A connection: from where to where, its channel at both ends, and its slots.

    Attributes:
        size: the chunks of its largest message.
        messages: how many are sent.
        slot, stage: where the slots of the receiver and of the sender begin in their scratch.
    """

    sender: int
    receiver: int
    channel: int
    size: int = 0
    messages: int = 0
    sending_end: int = 0
    receiving_end: int = 0
    slot: int = 0
    stage: int = 0


@dataclass
class _Rank:
    """A rank of a plan, as it is written."""

    peers: list[int] = field(default_factory=list[int])
    scratch: int = 0
    semaphores: int = 0
    blocks: list[PlanBlock] = field(default_factory=list[PlanBlock])


def plan_of(program: ChunkProgram, kind: str = "memory", slots: int = SLOTS) -> ExecutionPlan:
    """Return the plan of a program.

    Args:
        kind: the type of channels: ``memory`` or ``port``.
        slots: the messages that a connection holds.
    """
    wires = _wires(program)
    ranks = [_Rank() for _ in program.ranks]
    for wire in sorted(wires.values(), key=lambda x: (x.sender, x.receiver, x.channel)):
        # Both ends list the channels of two ranks in the same order.
        ends = ranks[wire.sender], ranks[wire.receiver]
        wire.sending_end, wire.receiving_end = (len(x.peers) for x in ends)
        ends[0].peers.append(wire.receiver)
        ends[1].peers.append(wire.sender)
        wire.slot, ends[1].scratch = ends[1].scratch, ends[1].scratch + slots * wire.size
        if kind == "port":
            wire.stage, ends[0].scratch = ends[0].scratch, ends[0].scratch + slots * wire.size
    for rank, own in enumerate(program.ranks):
        _write_blocks(rank, own.blocks, ranks[rank], wires, kind, slots)
    made = [
        PlanRank(tuple(own.blocks), _sizes(program, rank, own.scratch), {kind: tuple(own.peers)},
                 (0,) * own.semaphores)
        for rank, own in enumerate(ranks)
    ]  # fmt: skip
    return ExecutionPlan(program, made)


def _sizes(program: ChunkProgram, rank: int, slots: int) -> dict[ChunkBuffer, int]:
    """Return the chunks of the buffers of a rank: its own scratch lies behind the slots."""
    sizes = {x: program.ranks[rank].sizes.get(x, 0) for x in ChunkBuffer}
    return {**sizes, ChunkBuffer.SCRATCH: slots + sizes[ChunkBuffer.SCRATCH]}


def _wires(program: ChunkProgram) -> dict[tuple[int, int, int], _Wire]:
    """Return the connections of a program, by sender, receiver and channel."""
    wires: dict[tuple[int, int, int], _Wire] = {}
    for rank, own in enumerate(program.ranks):
        for block in own.blocks:
            if block.sends_to < 0:
                continue
            key = rank, block.sends_to, block.channel
            wire = wires[key] = _Wire(*key)
            sent = [x.count for x in block.steps if DOES[x.kind].sends]
            wire.size, wire.messages = max(sent, default=0), len(sent)
    return {key: wire for key, wire in wires.items() if wire.messages}


def _write_blocks(
    rank: int, blocks: Sequence[ThreadBlock], own: _Rank,
    wires: dict[tuple[int, int, int], _Wire], kind: str, slots: int,
) -> None:  # fmt: skip
    """Write the thread blocks of a rank."""
    links = _Links(blocks)
    own.semaphores = links.count
    parts: list[list[PlanOperation]] = []
    for block in blocks:
        into = wires.get((block.receives_from, rank, block.channel))
        out = wires.get((rank, block.sends_to, block.channel))
        writer = _BlockWriter(rank, own.scratch, kind, slots, into, out)
        for number, step in enumerate(block.steps):
            writer.step(step, links.acquired(block, number), links.released(block, number))
        parts.extend(_divided(writer.operations, own))
    for number, operations in enumerate(parts):
        channels = {
            x
            for operation in operations
            if operation.channel_type == kind
            for x in operation.channels
        }
        own.blocks.append(
            PlanBlock(number, tuple(operations), {kind: tuple(sorted(channels))},
                      {kind: len({(x.ranks, x.buffer) for operation in operations
                                  for x in operation.targets if x.ranks != (rank,)})})
        )  # fmt: skip


def _divided(operations: list[PlanOperation], own: _Rank) -> Iterator[list[PlanOperation]]:
    """Yield as many operations as a thread block may have; each part waits for the one before."""
    rest = operations
    while len(rest) > MOST_OPERATIONS:
        semaphore, own.semaphores = own.semaphores, own.semaphores + 1
        cut = MOST_OPERATIONS - 2
        nop = PlanOperation("nop")
        yield [*rest[:cut], nop, PlanOperation("sem_release", semaphores=(semaphore,))]
        rest = [PlanOperation("sem_acquire", semaphores=(semaphore,)), nop, *rest[cut:]]
    yield rest


class _Links:
    """The semaphores by which the blocks of a rank wait for each other: one for each two blocks.

    Each is released as often as it is acquired, and in the same order.
    """

    def __init__(self, blocks: Sequence[ThreadBlock]):
        self.acquires: dict[tuple[int, int], list[int]] = {}
        self.releases: dict[tuple[int, int], list[int]] = {}
        semaphores: dict[tuple[int, int], int] = {}
        for block in blocks:
            latest: dict[int, int] = {}
            for number, step in enumerate(block.steps):
                for awaited, at in step.after:
                    if awaited == block.number or latest.get(awaited, -1) >= at:
                        continue
                    latest[awaited] = at
                    semaphore = semaphores.setdefault((awaited, block.number), len(semaphores))
                    self.acquires.setdefault((block.number, number), []).append(semaphore)
                    self.releases.setdefault((awaited, at), []).append(semaphore)
        self.count = len(semaphores)

    def acquired(self, block: ThreadBlock, step: int) -> list[int]:
        """Return the semaphores that a step waits for."""
        return self.acquires.get((block.number, step), [])

    def released(self, block: ThreadBlock, step: int) -> list[int]:
        """Return the semaphores that a step releases, on which other steps wait."""
        return self.releases.get((block.number, step), [])


class _BlockWriter:
    """The operations of a thread block, as its steps are written.

    Threads of a block meet only at a ``nop``: one stands between a step and the steps that need its
    work or its wait.
    """

    def __init__(
        self, rank: int, scratch: int, kind: str, slots: int, into: _Wire | None, out: _Wire | None
    ):
        self.rank, self.scratch, self.kind, self.slots = rank, scratch, kind, slots
        self.into, self.out = into, out
        self.received = self.sent = 0
        self.operations: list[PlanOperation] = []
        self.touched: set[tuple[ChunkBuffer, int]] = set()
        self.written: set[tuple[ChunkBuffer, int]] = set()
        self.waited = False
        if into:
            self._order("signal", [into.receiving_end])

    def step(self, step: ChunkStep, acquired: list[int], released: list[int]) -> None:
        """Write a step.

        Args:
            acquired, released: the semaphores that the step waits for, and those it releases.
        """
        if acquired:
            self._semaphores("sem_acquire", acquired)
        does = DOES[step.kind]
        if does.receives and self.into:
            self._order("wait", [self.into.receiving_end])
        if does.sends and self.out and (self.sent == 0 or self.sent >= self.slots):
            self._order("wait", [self.out.sending_end])
        sent = self._compute(step)
        if sent and self.out:
            slot = self.sent % self.slots * self.out.size
            target = PlanRange((self.out.receiver,), ChunkBuffer.SCRATCH, self.out.slot + slot,
                               step.count)  # fmt: skip
            channels = (self.out.sending_end,) if self.kind == "port" else ()
            self._data(sent.name, sent.sources, [*sent.targets, target], channels)
        if sent and self.out:
            self._order("signal", [self.out.sending_end])
            self.sent += 1
        if does.receives and self.into:
            self.received += 1
            if self.received + self.slots <= self.into.messages:
                self._order("signal", [self.into.receiving_end])
        if released:
            self._semaphores("sem_release", released)

    def _compute(self, step: ChunkStep) -> PlanOperation | None:
        """Write what a step computes; return the operation that sends, but for its target."""
        does = DOES[step.kind]
        source = self._local(step.source) if step.source else None
        target = self._local(step.target) if step.target and does.keeps else None
        came, staged = self._slot(step, does.receives), self._stage(step, does.sends)
        if step.kind == "reduce" and source and target:
            self._data("re", [target, source], [target])
            return None
        value = came or source
        if does.reduces and source and came:
            value = target or staged or came
            if does.sends and not staged:
                return PlanOperation("res", (source, came), (value,))
            self._data("re", [source, came], [value])
        elif target and value:
            self._data("copy", [value], [target])
        if value is None or not does.sends:
            return None
        if staged and value != staged:
            self._data("copy", [value], [staged])
        return PlanOperation("put", (staged or value,))

    def _slot(self, step: ChunkStep, receives: bool) -> PlanRange | None:
        """Return where the message lies that a step receives."""
        if not (receives and self.into):
            return None
        slot = self.received % self.slots * self.into.size
        return PlanRange((self.rank,), ChunkBuffer.SCRATCH, self.into.slot + slot, step.count)

    def _stage(self, step: ChunkStep, sends: bool) -> PlanRange | None:
        """Return where a message lies until a port has sent it."""
        if not (sends and self.out and self.kind == "port"):
            return None
        slot = self.sent % self.slots * self.out.size
        return PlanRange((self.rank,), ChunkBuffer.SCRATCH, self.out.stage + slot, step.count)

    def _local(self, part: ChunkRange) -> PlanRange:
        own = self.scratch if part.buffer is ChunkBuffer.SCRATCH else 0
        return PlanRange((self.rank,), part.buffer, own + part.offset, part.size)

    # --- operations ------------------------------------------------------------------------------

    def _nop(self) -> None:
        self.operations.append(PlanOperation("nop"))
        self.touched.clear()
        self.written.clear()
        self.waited = False

    def _data(
        self, name: str, sources: Sequence[PlanRange], targets: Sequence[PlanRange],
        channels: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        def chunks(parts: Sequence[PlanRange]) -> set[tuple[ChunkBuffer, int]]:
            return {
                (_row(x.buffer), n) for x in parts if x.ranks == (self.rank,)
                for n in range(x.offset, x.offset + x.size)
            }  # fmt: skip

        reads, writes = chunks(sources), chunks(targets)
        if self.waited or reads & self.written or writes & self.touched:
            self._nop()
        kind = self.kind if name in ("put", "res") else "none"
        self.operations.append(PlanOperation(name, tuple(sources), tuple(targets), kind, channels))
        self.touched |= reads | writes | {(ChunkBuffer.SCRATCH, -1)}
        self.written |= writes

    def _order(self, name: str, channels: list[int]) -> None:
        """Write a signal or a wait, together with the one before if that is of the same kind."""
        if name == "signal" and (self.touched or self.waited):
            self._nop()
        self.waited = self.waited or name == "wait"
        last = self.operations[-1] if self.operations else None
        if last and last.name == name and not {*last.channels} & {*channels}:
            channels = [*last.channels, *channels]
            _ = self.operations.pop()
        self.operations.append(
            PlanOperation(name, channel_type=self.kind, channels=tuple(channels))
        )

    def _semaphores(self, name: str, numbers: list[int]) -> None:
        if name == "sem_release" and (self.touched or self.waited):
            self._nop()
        self.waited = self.waited or name == "sem_acquire"
        for at in range(0, len(numbers), 16):
            self.operations.append(PlanOperation(name, semaphores=tuple(numbers[at : at + 16])))


def _row(buffer: ChunkBuffer) -> ChunkBuffer:
    """Return a buffer by which chunks are told apart: input and output may be the same one."""
    return ChunkBuffer.OUTPUT if buffer is ChunkBuffer.INPUT else buffer
