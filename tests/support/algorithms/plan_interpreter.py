"""A plain interpreter of MSCCL++'s plans on numbers: threads, delayed writes, random orders.

It knows nothing of how collir reads or checks plans. A chunk is a few elements, each of which one
thread of a block moves. What a thread writes comes to memory at a random time, unless it is made
to; its block sees it after the next synchronisation. A port channel works off what it is told, in
order and at random times. Each rank launches the plan again once it has ended, and reads its
outputs and fills its inputs in between.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Cell = tuple[int, str, int, int, bool]
"""Rank, buffer, half of the scratch, place, and whether it is a packet."""

Outputs = list[list[list[int]]]
"""The elements of each output, by launch and rank."""

ELEMENTS = 2
GARBAGE = -(10**30)


class Stuck(Exception):
    """Nothing can go on."""


def number_of(rank: int, element: int, launch: int) -> int:
    """Return an element of an input: sums of few tell what was added how often."""
    return pow(3, 1 + launch * 4096 + rank * 512 + element, 2**61 - 1)


def wanted(plan: Json, launches: int, elements: int = ELEMENTS) -> Outputs:
    """Return the outputs that a plan should have."""
    gpus, name = plan["gpus"], plan["collective"]
    n, taken = len(gpus), gpus[0]["input_chunks"] * elements
    made: Outputs = []
    for launch in range(launches):

        def own(rank: int, k: int, launch: int = launch) -> int:
            return number_of(rank, k, launch)

        match name:
            case "allreduce":
                rows = [[sum(own(q, k) for q in range(n)) for k in range(taken)]] * n
            case "allgather":
                rows = [[own(q, k) for q in range(n) for k in range(taken)]] * n
            case "reducescatter":
                part = taken // n
                rows = [[sum(own(q, r * part + k) for q in range(n)) for k in range(part)]
                        for r in range(n)]  # fmt: skip
            case "alltoall":
                part = taken // n
                rows = [[own(q, r * part + k) for q in range(n) for k in range(part)]
                        for r in range(n)]  # fmt: skip
            case "broadcast":
                rows = [[own(0, k) for k in range(taken)]] * n
            case "reduce":
                rows = [[sum(own(q, k) for q in range(n)) for k in range(taken)], *[[]] * (n - 1)]
            case "gather":
                rows = [[own(q, k) for q in range(n) for k in range(taken)], *[[]] * (n - 1)]
            case _:
                part = taken // n
                rows = [[own(0, r * part + k) for k in range(part)] for r in range(n)]
        made.append(rows)
    return made


class Block:
    """A thread block: what its threads wrote that is not in memory yet.

    Attributes:
        epoch: how often its threads have met.
        writes: thread, epoch, cell, value and flag, in the order in which they were written.
    """

    def __init__(self, rank: int, made: Json):
        self.rank, self.made = rank, made
        self.epoch = self.came = self.ended = 0
        self.writes: list[tuple[int, int, Cell, int, int]] = []


class Interpreter:
    """The ranks of a plan, and the memories."""

    def __init__(self, plan: Json, seed: int, launches: int = 2, elements: int = ELEMENTS):
        self.elements = elements
        self.plan, self.rng, self.launches = plan, random.Random(seed), launches
        self.gpus: list[Json] = plan["gpus"]
        self.memory: dict[Cell, int] = {}
        self.flags: dict[Cell, int] = {}
        self.signals: dict[tuple[str, int, int], int] = {}
        self.taken: dict[tuple[str, int, int], int] = {}
        self.semaphores = {
            (r, k): x["init_value"] for r, gpu in enumerate(self.gpus)
            for k, x in enumerate(gpu["semaphores"])
        }  # fmt: skip
        self.barriers: dict[tuple[int, int], int] = {}
        self.ports: dict[tuple[int, int], deque[Callable[[], None]]] = {}
        self.blocks: list[Block] = []
        self.outputs: Outputs = [[[] for _ in self.gpus] for _ in range(launches)]
        self.threads: list[Iterator[bool]] = []
        used = [
            len(op.get(key, ())) for gpu in self.gpus for tb in gpu["threadblocks"]
            for outer in tb["ops"] for op in (outer, *outer.get("ops", ()))
            for key in ("channel_ids", "semaphore_ids")
        ]  # fmt: skip
        self.threads_of_block = max(2, *used, 2)
        self.peers = {
            (r, kind): [p for c in gpu["channels"] if c["channel_type"] == kind
                        for p in c["connected_to"]]
            for r, gpu in enumerate(self.gpus) for kind in ("memory", "port")
        }  # fmt: skip
        self.switches: list[list[tuple[str, list[int]]]] = [
            [(c["buffer_type"], g["ranks"]) for c in gpu["channels"]
             if c["channel_type"] == "switch" for g in c["rank_groups"]]
            for gpu in self.gpus
        ]  # fmt: skip

    def run(self) -> Outputs | None:
        """Return the outputs; None if nothing can go on."""
        try:
            self._run()
        except Stuck:
            return None
        return self.outputs

    def _run(self) -> None:
        rng = self.rng
        lazy = rng.choice([0.01, 0.1, 0.4])
        self.threads = [self._rank(rank) for rank in range(len(self.gpus))]
        able = [*self.threads]
        asleep: list[Iterator[bool]] = []
        for _ in range(300_000):
            writers = [x for x in self.blocks if x.writes] if rng.random() < lazy else []
            if writers:
                x = rng.choice(writers)
                self._apply(x, rng.randrange(len(x.writes)))
                able, asleep = able + asleep, []
                continue
            told = [q for q in self.ports.values() if q]
            if told and (rng.random() < lazy or not able):
                rng.choice(told).popleft()()
                able, asleep = able + asleep, []
                continue
            if not able:
                writers = [x for x in self.blocks if x.writes]
                if not writers:
                    if asleep:
                        raise Stuck
                    return
                self._apply(rng.choice(writers), 0)
                able, asleep = asleep, []
                continue
            at = rng.randrange(len(able))
            thread = able[at]
            for _ in range(rng.choice([1, 1, 3, 20])):
                self.born: list[Iterator[bool]] = []
                went = next(thread, None)
                able += self.born
                if went is None:
                    able.remove(thread)
                    able, asleep = able + asleep, []
                    break
                if not went:
                    able.remove(thread)
                    asleep.append(thread)
                    break
                if asleep:
                    able, asleep = able + asleep, []
        raise Stuck

    # --- memory ----------------------------------------------------------------------------------

    def _cell(self, rank: int, buffer: str, half: int, at: int, packet: bool = False) -> Cell:
        """Return where an element lies: in place, input and output are one buffer."""
        gpu, name = self.gpus[rank], self.plan["collective"]
        if buffer != "s" and self.plan["inplace"]:
            if name in ("allgather", "gather"):
                if buffer == "i":
                    buffer, at = "o", at + rank * gpu["input_chunks"] * self.elements
            elif name in ("reducescatter", "scatter"):
                if buffer == "o":
                    buffer, at = "i", at + rank * gpu["output_chunks"] * self.elements
            else:
                buffer = "o"
        return rank, buffer, half, at, packet

    def _store(self, cell: Cell, value: int, flag: int) -> None:
        rank, buffer, half, at, packet = cell
        self.memory[cell] = value
        if packet:
            self.flags[cell] = flag
            for k in (0, 1):
                self.memory[rank, buffer, half, 2 * at + k, False] = GARBAGE
        elif buffer == "s":
            self.flags.pop((rank, buffer, half, at // 2, True), None)

    def _apply(self, block: Block, at: int) -> None:
        """Let a write come to memory, and those of the same cell before it."""
        cell = block.writes[at][2]
        kept: list[tuple[int, int, Cell, int, int]] = []
        for k, write in enumerate(block.writes):
            if k <= at and write[2] == cell:
                self._store(cell, write[3], write[4])
            else:
                kept.append(write)
        block.writes = kept

    def _release(self, block: Block, thread: int) -> None:
        """Let all that a thread knows of come to memory."""
        kept: list[tuple[int, int, Cell, int, int]] = []
        for write in block.writes:
            if write[0] == thread or write[1] < block.epoch:
                self._store(*write[2:])
            else:
                kept.append(write)
        block.writes = kept

    def _read(self, block: Block, thread: int, cell: Cell) -> tuple[int, int]:
        """Return the value and the flag that a thread sees."""
        for by, epoch, at, value, flag in reversed(block.writes):
            if at == cell and (by == thread or epoch < block.epoch):
                return value, flag
        return self.memory.get(cell, GARBAGE), self.flags.get(cell, 0)

    # --- ranks and threads -----------------------------------------------------------------------

    def _rank(self, rank: int) -> Iterator[bool]:
        """Launch the plan again and again; yield whether something was done."""
        gpu, name = self.gpus[rank], self.plan["collective"]
        for launch in range(self.launches):
            for k in range(gpu["output_chunks"] * self.elements):
                self.memory[self._cell(rank, "o", 0, k)] = GARBAGE
            for k in range(gpu["input_chunks"] * self.elements):
                root = name not in ("broadcast", "scatter") or rank == 0
                value = number_of(rank, k, launch) if root else GARBAGE
                self.memory[self._cell(rank, "i", 0, k)] = value
            yield True
            blocks = [Block(rank, x) for x in gpu["threadblocks"]]
            self.blocks += blocks
            for block in blocks:
                for thread in range(self.threads_of_block):
                    self.born.append(self._thread(block, thread, launch))
            yield True
            while any(x.ended < self.threads_of_block for x in blocks):
                yield False
            for block in blocks:
                while block.writes:
                    self._apply(block, 0)
                self.blocks.remove(block)
            only_root = name in ("reduce", "gather") and rank > 0
            count = 0 if only_root else gpu["output_chunks"] * self.elements
            self.outputs[launch][rank] = [
                self.memory[self._cell(rank, "o", 0, k)] for k in range(count)
            ]
            yield True
            # The program of the rank uses its buffers for other things.
            for buffer in "io":
                chunks = gpu["input_chunks" if buffer == "i" else "output_chunks"]
                for k in range(chunks * self.elements):
                    self.memory[self._cell(rank, buffer, 0, k)] = GARBAGE
            yield True

    def _thread(self, block: Block, thread: int, launch: int) -> Iterator[bool]:
        for op in block.made["ops"]:
            if op["name"] != "pipeline":
                yield from self._op(block, thread, launch, op, None)
                continue
            for iteration in range(op["iter_context"]["num_chunks"] * self.elements):
                for each in op["ops"]:
                    yield from self._op(block, thread, launch, each, iteration)
        block.ended += 1

    def _meet(self, block: Block) -> Iterator[bool]:
        """Wait for all threads of a block."""
        epoch = block.epoch
        block.came += 1
        if block.came == self.threads_of_block:
            block.came, block.epoch = 0, epoch + 1
        while block.epoch == epoch:
            yield False
        yield True

    def _ids(self, block: Block, op: Json) -> list[int]:
        """Return the channels of an operation, as numbers of the rank's."""
        own = [k for c in block.made["channels"] if c["channel_type"] == op["channel_type"]
               for k in c["channel_ids"]]  # fmt: skip
        return [own[k] for k in op["channel_ids"]]

    def _end(self, kind: str, rank: int, channel: int) -> tuple[str, int, int] | None:
        """Return the other end of a channel."""
        peer = self.peers[rank, kind][channel]
        copy = self.peers[rank, kind][:channel].count(peer)
        there = [k for k, p in enumerate(self.peers[peer, kind]) if p == rank]
        return (kind, peer, there[copy]) if copy < len(there) else None

    def _signal(self, block: Block, kind: str, channel: int) -> None:
        end = self._end(kind, block.rank, channel)

        def arrives() -> None:
            if end:
                self.signals[end] = self.signals.get(end, 0) + 1

        if kind == "port":
            self.ports.setdefault((block.rank, channel), deque()).append(arrives)
        else:
            arrives()

    def _op(
        self, block: Block, thread: int, launch: int, op: Json, iteration: int | None
    ) -> Iterator[bool]:
        name = op["name"]
        match name:
            case "nop":
                yield from self._meet(block)
            case "barrier":
                yield from self._meet(block)
                key = block.rank, op["barrier_id"]
                if thread == 0:
                    self._release(block, thread)
                    goal = self.barriers.get(key, 0) // op["num_threadblocks"] + 1
                    self.barriers[key] = self.barriers.get(key, 0) + 1
                    yield True
                    while self.barriers[key] < goal * op["num_threadblocks"]:
                        yield False
                yield from self._meet(block)
            case "signal" | "rlxsignal":
                for k, channel in enumerate(self._ids(block, op)):
                    if k == thread:
                        if name == "signal" or op["channel_type"] == "port":
                            self._release(block, thread)
                        self._signal(block, op["channel_type"], channel)
                        yield True
            case "wait" | "rlxwait":
                for k, channel in enumerate(self._ids(block, op)):
                    if k == thread:
                        key = op["channel_type"], block.rank, channel
                        self.taken[key] = self.taken.get(key, 0) + 1
                        goal = self.taken[key]
                        while self.signals.get(key, 0) < goal:
                            yield False
                        yield True
            case "flush":
                for k, channel in enumerate(self._ids(block, op)):
                    while k == thread and self.ports.get((block.rank, channel)):
                        yield False
            case "sem_release":
                for k, number in enumerate(op["semaphore_ids"]):
                    if k == thread:
                        self._release(block, thread)
                        self.semaphores[block.rank, number] += 1
                        yield True
            case "sem_acquire":
                for k, number in enumerate(op["semaphore_ids"]):
                    if k == thread:
                        while self.semaphores[block.rank, number] < 1:
                            yield False
                        self.semaphores[block.rank, number] -= 1
                        yield True
            case _:
                yield from self._moves(block, thread, launch, op, iteration)

    # --- data ------------------------------------------------------------------------------------

    def _switch(self, rank: int, own: list[int], part: Json) -> tuple[str, list[int]]:
        """Return the buffer of a switch channel, and its ranks."""
        at: int = part["switch_channel_id"]
        return self.switches[rank][own[at]]

    def _parts(self, block: Block, launch: int, op: Json, key: str) -> list[list[Cell]]:
        """Return the cells of each range, for each element those of all its ranks in a row."""
        name, kind = op["name"], op.get("channel_type", "none")
        double = self.plan["use_double_scratch_buffer"]
        half = launch % 2 if double else 0
        packets = {
            "cpkt": "lp", "upkt": "pl", "ppkt": "lp", "rppkt": "pp", "repkt": "xl", "respkt": "xm",
            "recpkt": "xn", "recspkt": "xn",
        }.get(name, "ll")[key != "src_buff"]  # fmt: skip
        if name == "ppkt" and kind == "port":
            packets = "p"
        refs = [
            b
            for group in block.made["remote_buffer_refs"]
            if group["access_channel_type"] == kind
            for b in group["remote_buffer_ids"]
        ]
        own = [k for c in block.made["channels"] if c["channel_type"] == "switch"
               for k in c["channel_ids"]]  # fmt: skip
        found: list[list[Cell]] = []
        group = op.get("tbg_info", {"tb_id": 0, "tbg_size": 1})
        for place, part in enumerate(op[key]):
            packet = packets == "p" or (packets in "xmn" and place > 0)
            local = "type" in part
            ranks: list[int]
            buffer: str
            if local:
                ranks, buffer = [block.rank], part["type"]
            elif "buffer_id" in part:
                remote = self.gpus[block.rank]["remote_buffers"][refs[part["buffer_id"]]]
                ranks, buffer = [remote["rank"]], remote["type"]
            else:
                buffer, ranks = self._switch(block.rank, own, part)
            used = half if packet or (local and kind != "port") else 0
            whole, parts, at = part["size"] * self.elements, group["tbg_size"], group["tb_id"]
            before = at * (whole // parts) + min(at, whole % parts)
            begin = part["index"] * self.elements + before
            count = whole // parts + (at < whole % parts)
            for rank in ranks:
                found.append([
                    self._cell(rank, buffer, used if buffer == "s" else 0, k, packet)
                    for k in range(begin, begin + count)
                ])  # fmt: skip
        return found

    def _moves(
        self, block: Block, thread: int, launch: int, op: Json, iteration: int | None
    ) -> Iterator[bool]:
        sources = self._parts(block, launch, op, "src_buff")
        targets = self._parts(block, launch, op, "dst_buff")
        name = op["name"]
        if iteration is not None:
            sources = [x[iteration : iteration + 1] for x in sources]
            targets = [x[iteration : iteration + 1] for x in targets]
        paired = name in ("put", "pws", "pwsf", "get", "ppkt", "rppkt")
        if op.get("channel_type") == "port":
            for k, channel in enumerate(self._ids(block, op)):
                if k == thread:
                    yield from self._tells_port(block, thread, launch, name, channel,
                                                sources[k], targets[k])  # fmt: skip
            return
        moves = [([s], [t]) for s, t in zip(sources, targets, strict=False)]
        for froms, tos in moves if paired else [(sources, targets)]:
            for k in range(len(froms[0])):
                if k % self.threads_of_block != thread:
                    continue
                total = 0
                for cells in froms:
                    value, flag = self._read(block, thread, cells[k])
                    while cells[k][4] and flag != launch + 1:
                        yield False
                        value, flag = self._read(block, thread, cells[k])
                    total += value
                    yield True
                for cells in tos:
                    flag = launch + 1 if cells[k][4] else 0
                    block.writes.append((thread, block.epoch, cells[k], total, flag))
                yield True

    def _tells_port(
        self, block: Block, thread: int, launch: int, name: str, channel: int,
        source: list[Cell], target: list[Cell],
    ) -> Iterator[bool]:  # fmt: skip
        """Let a port channel write one range to another."""
        if name == "rppkt":
            for cell in source:
                while self._read(block, thread, cell)[1] != launch + 1:
                    yield False
        self._release(block, thread)

        def writes() -> None:
            for one, other in zip(source, target, strict=True):
                self._store(other, self.memory.get(one, GARBAGE), self.flags.get(one, 0))

        queue = self.ports.setdefault((block.rank, channel), deque())
        queue.append(writes)
        if name in ("pws", "pwsf"):
            self._signal(block, "port", channel)
        yield True
        while name == "pwsf" and queue:
            yield False
