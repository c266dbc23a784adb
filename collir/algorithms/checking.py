"""Run a chunk program on sets of contributions, and say what is wrong with it.

Every chunk of an input is a contribution, and a value is the set of contributions reduced to it.
Thread blocks run as far as they can; a connection holds a limited number of messages. Whether a
program ends does not depend on the order in which its blocks run, as each waits for one thing at a
time. What it computes does not either, unless two blocks use a chunk without waiting for each
other, which is found by vector clocks.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collir.algorithms.collectives import (
    Contributions,
    aliases,
    expected_outputs,
    has_one_input,
    sizes_of,
)
from collir.algorithms.contributions import fault_of_result, fault_of_sum
from collir.algorithms.program import (
    DOES,
    ChunkBuffer,
    ChunkProgram,
    ChunkRange,
    ChunkStep,
    ThreadBlock,
)

CAPACITY = 8
"""The messages that a connection holds: the steps of NCCL's buffers (``NCCL_STEPS``)."""

MOST_PROBLEMS = 20
"""The most problems of a kind that are kept."""

Clock = npt.NDArray[np.int32]


class AlgorithmProblem(NamedTuple):
    """A fault, in words that name the rank, the step and the chunk, and its line of the file.

    Attributes:
        kind: ``form``, ``deadlock``, ``race``, ``value`` or ``result``.
    """

    kind: str
    message: str
    line: int = 0


@dataclass
class CheckedAlgorithm:
    """The faults that a check found.

    Attributes:
        problems: some of each kind; ``counts`` has how many there were.
        messages: how many were sent.
    """

    problems: list[AlgorithmProblem] = field(default_factory=list[AlgorithmProblem])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    messages: int = 0

    @property
    def is_right(self) -> bool:
        """True if the program implements its collective."""
        return not self.problems

    def add(self, kind: str, message: str, line: int = 0) -> None:
        """Add a problem, unless enough of its kind are known."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= MOST_PROBLEMS:
            self.problems.append(AlgorithmProblem(kind, message, line))


def check(program: ChunkProgram, capacity: int = CAPACITY) -> CheckedAlgorithm:
    """Return what is wrong with a program, for its collective.

    Args:
        capacity: the messages that a connection holds.
    """
    checked = CheckedAlgorithm()
    for problem in _malformed(program):
        checked.add("form", *problem)
    if not checked.problems:
        run = _Run(program, capacity, checked)
        run.run()
        run.check_results()
    return checked


def where(rank: int, block: ThreadBlock, number: int) -> str:
    """Return a step as messages name it."""
    step = block.steps[number]
    return f"rank {rank}, block {block.number}, step {number} ({step.kind.replace('_', ' ')})"


# --- form ----------------------------------------------------------------------------------------


def _malformed(program: ChunkProgram) -> Iterator[tuple[str, int]]:
    """Yield what no run could make sense of, with its line."""
    ends: dict[tuple[int, int, int, str], ThreadBlock] = {}
    for rank, own in enumerate(program.ranks):
        known = {block.number: block for block in own.blocks}
        for block in own.blocks:
            for peer, way in ((block.sends_to, "sends to"), (block.receives_from, "receives from")):
                if peer == -1:
                    continue
                if not 0 <= peer < len(program.ranks) or peer == rank:
                    yield f"block {block.number} of rank {rank} {way} rank {peer}", block.line
                    continue
                key = rank, peer, block.channel, way
                if key in ends:
                    both = f"blocks {ends[key].number} and {block.number} of rank {rank} both {way}"
                    yield f"{both} rank {peer} on channel {block.channel}", block.line
                ends[key] = block
            for number, step in enumerate(block.steps):
                yield from _malformed_step(program, rank, block, number, step, known)
    for (rank, peer, channel, way), block in ends.items():
        back = "receives from" if way == "sends to" else "sends to"
        if (peer, rank, channel, back) not in ends and 0 <= peer < len(program.ranks):
            on = f"block {block.number} of rank {rank} {way} rank {peer} on channel {channel}"
            yield f"{on}, and no block there {back} rank {rank} on it", block.line


def _malformed_step(
    program: ChunkProgram, rank: int, block: ThreadBlock, number: int, step: ChunkStep,
    known: dict[int, ThreadBlock],
) -> Iterator[tuple[str, int]]:  # fmt: skip
    does, at = DOES[step.kind], where(rank, block, number)
    if does.sends and block.sends_to == -1:
        yield f"{at}: the block sends to no rank", step.line
    if does.receives and block.receives_from == -1:
        yield f"{at}: the block receives from no rank", step.line
    needs_source = does.reduces or (not does.receives and (does.sends or does.keeps))
    for part, needed, name in ((step.source, needs_source, "source"),
                               (step.target, does.keeps, "target")):  # fmt: skip
        if part is None:
            if needed:
                yield f"{at} has no {name}", step.line
            continue
        size = program.ranks[rank].sizes.get(part.buffer, 0)
        if needed and (part.offset < 0 or part.size < 1 or part.offset + part.size > size):
            yield f"{at}: {part} is not in the {size} chunks of the buffer", step.line
    for awaited, at_step in step.after:
        if awaited not in known or not 0 <= at_step < len(known[awaited].steps):
            yield f"{at} waits for step {at_step} of block {awaited}, which is not there", step.line
        elif awaited == block.number and at_step >= number:
            yield f"{at} waits for step {at_step} of its own block", step.line


# --- runs ----------------------------------------------------------------------------------------


@dataclass
class _Block:
    """A thread block that runs: how many steps it has done, and what it knows of others."""

    rank: int
    block: ThreadBlock
    index: int
    done: int = 0
    clock: Clock | None = None
    kept: dict[int, Clock] = field(default_factory=dict[int, Clock])
    waiting: list["_Block"] = field(default_factory=list["_Block"])


@dataclass
class _Connection:
    """Messages that were sent and not yet received: their values, and the sender's clock."""

    sender: _Block
    receiver: _Block
    messages: deque[tuple[Sequence[Contributions | None], Clock | None, int, int]] = field(
        default_factory=deque[tuple[Sequence["Contributions | None"], "Clock | None", int, int]]
    )


@dataclass
class _Used:
    """Who wrote a chunk last, and who read it since: blocks, each with its step."""

    writer: int = -1
    written: int = 0
    readers: dict[int, int] = field(default_factory=dict[int, int])


class _Run:
    """A run of a program."""

    def __init__(self, program: ChunkProgram, capacity: int, found: CheckedAlgorithm):
        self.program, self.capacity, self.found = program, capacity, found
        self.aliases = aliases(program)
        self.memory: list[dict[tuple[ChunkBuffer, int], Contributions]] = []
        self.used: list[dict[tuple[ChunkBuffer, int], _Used]] = [{} for _ in program.ranks]
        self.blocks: list[_Block] = []
        self.of: dict[tuple[int, int], _Block] = {}
        for rank, own in enumerate(program.ranks):
            self.memory.append(self._inputs(rank))
            for block in own.blocks:
                made = _Block(rank, block, len(self.blocks))
                self.blocks.append(made)
                self.of[rank, block.number] = made
        self.depended = {
            (x.rank, *step)
            for x in self.blocks for step_of_block in x.block.steps for step in step_of_block.after
        }  # fmt: skip
        self.has_races = any(len(own.blocks) > 1 for own in program.ranks)
        if self.has_races:
            for x in self.blocks:
                x.clock = np.zeros(len(self.blocks), dtype=np.int32)
        self.out: dict[int, _Connection] = {}
        self.into: dict[int, _Connection] = {}
        self._connect()

    def _connect(self) -> None:
        receivers = {
            (x.block.receives_from, x.rank, x.block.channel): x
            for x in self.blocks if x.block.receives_from >= 0
        }  # fmt: skip
        for x in self.blocks:
            if x.block.sends_to < 0:
                continue
            receiver = receivers[x.rank, x.block.sends_to, x.block.channel]
            self.out[x.index] = self.into[receiver.index] = _Connection(x, receiver)

    def _inputs(self, rank: int) -> dict[tuple[ChunkBuffer, int], Contributions]:
        if has_one_input(self.program.collective) and rank != self.program.root:
            return {}
        count = self.program.ranks[rank].sizes.get(ChunkBuffer.INPUT, 0)
        if self.aliases.get(rank, (ChunkBuffer.OUTPUT, 0))[0] is ChunkBuffer.INPUT:
            count = max(count, self._input_size())
        return {
            self.place(rank, ChunkBuffer.INPUT, n): Contributions(n, 1 << rank)
            for n in range(count)
        }

    def _input_size(self) -> int:
        name = self.program.collective
        return sizes_of(name, len(self.program.ranks), self.program.chunks)[0]

    def place(self, rank: int, buffer: ChunkBuffer, number: int) -> tuple[ChunkBuffer, int]:
        """Return where a chunk of a buffer lies."""
        inner, offset = self.aliases.get(rank, (None, 0))
        if buffer is not inner:
            return buffer, number
        other = ChunkBuffer.OUTPUT if inner is ChunkBuffer.INPUT else ChunkBuffer.INPUT
        return other, number + offset

    def run(self) -> None:
        """Run all blocks as far as they can, and note the blocks that cannot end."""
        ready = deque(self.blocks)
        queued = [True] * len(self.blocks)
        while ready:
            x = ready.popleft()
            queued[x.index] = False
            for woken in self._advance(x):
                if not queued[woken.index]:
                    queued[woken.index] = True
                    ready.append(woken)
        stuck = [x for x in self.blocks if x.done < len(x.block.steps)]
        for x in self._cycle(stuck) if stuck else ():
            at = where(x.rank, x.block, x.done)
            line = x.block.steps[x.done].line
            self.found.add("deadlock", f"{at} waits for ever: {self._blocked(x)}", line)
        for x in () if stuck else self.out.values():
            if x.messages:
                _, _, rank, number = x.messages[0]
                at = where(rank, x.sender.block, number)
                line = x.sender.block.steps[number].line
                self.found.add("form", f"{at}: no step of rank {x.receiver.rank} receives it", line)

    def _advance(self, x: _Block) -> Iterator[_Block]:
        """Run the steps of a block until it has to wait; yield the blocks that may go on."""
        while x.done < len(x.block.steps) and self._blocked(x) is None:
            step = x.block.steps[x.done]
            does = DOES[step.kind]
            self._step(x, step)
            x.done += 1
            if does.sends:
                yield self.out[x.index].receiver
            if does.receives:
                yield self.into[x.index].sender
            if x.waiting:
                yield from x.waiting
                x.waiting.clear()

    def _blocked(self, x: _Block) -> str | None:
        """Return why a block cannot run its next step; None if it can."""
        step = x.block.steps[x.done]
        for awaited, number in step.after:
            on = self.of[x.rank, awaited]
            if on.done <= number:
                on.waiting.append(x)
                return f"step {number} of block {awaited} is not done"
        does = DOES[step.kind]
        if does.receives and not self.into[x.index].messages:
            return f"nothing comes from rank {x.block.receives_from} on channel {x.block.channel}"
        if does.sends and len(self.out[x.index].messages) >= self.capacity:
            return (
                f"{self.capacity} messages to rank {x.block.sends_to} on channel "
                f"{x.block.channel} are not received"
            )
        return None

    def _cycle(self, stuck: Sequence[_Block]) -> Sequence[_Block]:
        """Return blocks that wait for each other, or a block that waits for something that never
        comes."""
        seen: dict[int, int] = {}
        chain: list[_Block] = []
        x: _Block | None = stuck[0]
        while x is not None and x.index not in seen:
            seen[x.index] = len(chain)
            chain.append(x)
            x = self._waits_for(x)
        return chain[seen[x.index] :] if x is not None else chain[-1:]

    def _waits_for(self, x: _Block) -> _Block | None:
        """Return the block that another one waits for; None if that has ended."""
        step = x.block.steps[x.done]
        for awaited, number in step.after:
            if (on := self.of[x.rank, awaited]).done <= number:
                return on
        does = DOES[step.kind]
        if does.receives and not self.into[x.index].messages:
            on = self.into[x.index].sender
        else:
            on = self.out[x.index].receiver
        return on if on.done < len(on.block.steps) else None

    # --- a step ----------------------------------------------------------------------------------

    def _step(self, x: _Block, step: ChunkStep) -> None:
        does = DOES[step.kind]
        for awaited, number in step.after:
            if x.clock is not None:
                np.maximum(x.clock, self.of[x.rank, awaited].kept[number], out=x.clock)
        values: Sequence[Contributions | None] | None = None
        if does.receives:
            values, clock, rank, number = self.into[x.index].messages.popleft()
            if x.clock is not None and clock is not None:
                np.maximum(x.clock, clock, out=x.clock)
            if len(values) != step.count and step.count:
                sent = where(rank, self.into[x.index].sender.block, number)
                counts = f"takes {step.count} chunks, and {sent} sends {len(values)}"
                self._note(x, step, "form", counts)
                values = [*values[: step.count], *[None] * (step.count - len(values))]
        if values is None or does.reduces:
            own = self._read(x, step, step.source) if step.source else []
            values = own if values is None else self._reduced(x, step, own, values)
        if step.kind == "reduce" and step.target:
            values = self._reduced(x, step, self._read(x, step, step.target), values)
        if does.keeps and step.target:
            self._write(x, step, step.target, values)
        if x.clock is not None:
            x.clock[x.index] = x.done + 1
            if (x.rank, x.block.number, x.done) in self.depended:
                x.kept[x.done] = x.clock.copy()
        if does.sends:
            queue = self.out[x.index].messages
            clock = None if x.clock is None else x.clock.copy()
            queue.append((values, clock, x.rank, x.done))
            self.found.messages += 1

    def _note(self, x: _Block, step: ChunkStep, kind: str, message: str) -> None:
        self.found.add(kind, f"{where(x.rank, x.block, x.done)} {message}", step.line)

    def _read(self, x: _Block, step: ChunkStep, part: ChunkRange) -> list[Contributions | None]:
        contributions: list[Contributions | None] = []
        memory = self.memory[x.rank]
        for n in range(part.offset, part.offset + part.size):
            place = self.place(x.rank, part.buffer, n)
            value = memory.get(place)
            if value is None:
                self._note(x, step, "value", f"reads {part.buffer}[{n}], which nothing has written")
            if self.has_races:
                self._reads(x, step, place, f"{part.buffer}[{n}]")
            contributions.append(value)
        return contributions

    def _write(
        self, x: _Block, step: ChunkStep, part: ChunkRange, values: Sequence[Contributions | None]
    ) -> None:
        memory = self.memory[x.rank]
        for n, value in zip(range(part.offset, part.offset + part.size), values, strict=False):
            place = self.place(x.rank, part.buffer, n)
            if self.has_races:
                self._writes(x, step, place, f"{part.buffer}[{n}]")
            if value is None:
                memory.pop(place, None)
            else:
                memory[place] = value

    def _reduced(
        self, x: _Block, step: ChunkStep, own: Sequence[Contributions | None],
        other: Sequence[Contributions | None],
    ) -> list[Contributions | None]:  # fmt: skip
        made: list[Contributions | None] = []
        for a, b in zip(own, other, strict=False):
            if a is None or b is None:
                made.append(None)
                continue
            if fault := fault_of_sum(a, b):
                self._note(x, step, "value", fault)
            if a.chunk != b.chunk:
                made.append(None)
                continue
            made.append(Contributions(a.chunk, a.ranks | b.ranks))
        return made

    # --- races -----------------------------------------------------------------------------------

    def _reads(self, x: _Block, step: ChunkStep, place: tuple[ChunkBuffer, int], name: str) -> None:
        used = self.used[x.rank].setdefault(place, _Used())
        assert x.clock is not None
        if used.writer not in (-1, x.index) and x.clock[used.writer] <= used.written:
            self._race(x, step, name, "reads", used.writer, used.written, "writes")
        used.readers[x.index] = x.done

    def _writes(
        self, x: _Block, step: ChunkStep, place: tuple[ChunkBuffer, int], name: str
    ) -> None:
        used = self.used[x.rank].setdefault(place, _Used())
        assert x.clock is not None
        if used.writer not in (-1, x.index) and x.clock[used.writer] <= used.written:
            self._race(x, step, name, "writes", used.writer, used.written, "writes")
        for reader, number in used.readers.items():
            if reader != x.index and x.clock[reader] <= number:
                self._race(x, step, name, "writes", reader, number, "reads")
        used.writer, used.written, used.readers = x.index, x.done, {}

    def _race(
        self, x: _Block, step: ChunkStep, name: str, does: str, other: int, number: int, did: str
    ) -> None:
        block = self.blocks[other].block
        self._note(
            x, step, "race",
            f"{does} {name}, and step {number} of block {block.number} {did} it; neither waits "
            "for the other",
        )  # fmt: skip

    # --- results ---------------------------------------------------------------------------------

    def check_results(self) -> None:
        """Note the chunks of outputs that differ from the results of the collective."""
        program = self.program
        if self.found.counts.get("deadlock"):
            return
        ranks = len(program.ranks)
        outputs = expected_outputs(program.collective, ranks, program.chunks, program.root)
        for rank, number, expected in outputs:
            place = self.place(rank, ChunkBuffer.OUTPUT, number)
            value = self.memory[rank].get(place)
            if value == expected:
                continue
            line = program.ranks[rank].line
            message = f"output[{number}] of rank {rank} {fault_of_result(value, expected)}"
            self.found.add("result", message, line)
