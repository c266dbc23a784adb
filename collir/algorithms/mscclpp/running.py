"""The agents of a launch: the thread blocks of all ranks with what they know, hosts, and ports."""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from collir.algorithms.checking import MOST_PROBLEMS, CheckedAlgorithm
from collir.algorithms.mscclpp.cells import (
    CellTransfer,
    ChunkSize,
    MemoryOfRanks,
    cell_transfers,
)
from collir.algorithms.mscclpp.clocks import Clock, Reading
from collir.algorithms.mscclpp.plan import ExecutionPlan, PlanBlock, PlanOperation


class PlanStep(NamedTuple):
    """An operation that a block runs once.

    Attributes:
        number: its place in the block, or that of its pipeline.
    """

    operation: PlanOperation
    number: int
    pipeline: PlanOperation | None = None
    iteration: int = 0


@dataclass
class RunningBlock:
    """A thread block that runs.

    Attributes:
        index: its number as an agent.
        at: the number of steps done in this launch.
        time: the number of steps done in all launches.
        clock: what all of its threads know.
        threads: what some threads know beyond ``clock``.
        heard: what others know until all do.
        readings: readings by ports that are over, as packets told.
        heard_readings: the readings that are over, but not known to all threads.
    """

    rank: int
    block: PlanBlock
    index: int
    steps: list[PlanStep]
    clock: Clock
    at: int = 0
    time: int = 0
    threads: dict[int, Clock] = field(default_factory=dict[int, Clock])
    heard: Clock | None = None
    readings: set[Reading] = field(default_factory=set[Reading])
    heard_readings: set[Reading] = field(default_factory=set[Reading])

    @property
    def step(self) -> PlanStep:
        """The step that is next."""
        return self.steps[self.at]

    @property
    def ended(self) -> bool:
        """True if all steps are done."""
        return self.at == len(self.steps)

    def knows(self, thread: int) -> Clock:
        """Return what a thread knows."""
        return self.threads.get(thread, self.clock)

    def learn(self, thread: int, clock: Clock) -> None:
        """Let a thread know more."""
        self.threads[thread] = np.maximum(self.knows(thread), clock)

    def hear(self, clock: Clock, readings: Set[Reading]) -> None:
        """Let threads know more, of which none tells it before all meet."""
        self.heard = np.maximum(self.clock if self.heard is None else self.heard, clock)
        self.heard_readings |= readings

    def synchronise(self, time: int) -> None:
        """Let all threads know what each does, and that all has been done until a time."""
        for clock in (*self.threads.values(), *([] if self.heard is None else [self.heard])):
            np.maximum(self.clock, clock, out=self.clock)
        self.threads.clear()
        self.heard = None
        self.readings |= self.heard_readings
        self.heard_readings.clear()
        self.clock[self.index] = time


class Agents:
    """The agents of a run, and what they have done: blocks first, then hosts, then port channels.

    Attributes:
        launch: the number of the launch, from 0 on.
        hosts: what the host of each rank knows.
        launched: what was known when the launch of each rank began.
        readings: the readings by ports that were known to be over then.
        ports: the port channels that are used, with their numbers; by rank and channel.
        port_clocks: what each of them knows.
        doings: the steps of each agent; what an agent does at time t is the one before place t.
    """

    def __init__(self, plan: ExecutionPlan, size: ChunkSize, found: CheckedAlgorithm):
        self.plan, self.size, self.found = plan, size, found
        self.memory = MemoryOfRanks(plan, size.cells)
        self.launch = 0
        used = {
            (rank, channel): None
            for rank, own in enumerate(plan.ranks) for block in own.blocks
            for x in block.operations for operation in x.flat if operation.channel_type == "port"
            for channel in operation.channels
        }  # fmt: skip
        blocks = [(rank, x) for rank, own in enumerate(plan.ranks) for x in own.blocks]
        self.first_host = len(blocks)
        first_port = len(blocks) + len(plan.ranks)
        count = first_port + len(used)
        self.blocks = [
            RunningBlock(rank, block, index, [*_steps(block, size)], _zero(count))
            for index, (rank, block) in enumerate(blocks)
        ]
        self.hosts = [_zero(count) for _ in plan.ranks]
        self.launched = [_zero(count) for _ in plan.ranks]
        self.readings: list[frozenset[Reading]] = [frozenset() for _ in plan.ranks]
        self.ports = {key: first_port + n for n, key in enumerate(used)}
        self.port_clocks = {key: _zero(count) for key in used}
        self._port_ranks = [rank for rank, _ in used]
        self.doings: list[list[PlanStep]] = [[] for _ in range(count)]

    def rank_of(self, agent: int) -> int:
        """Return the rank of an agent."""
        if agent < self.first_host:
            return self.blocks[agent].rank
        host = agent - self.first_host
        ranks = len(self.plan.ranks)
        return host if host < ranks else self._port_ranks[host - ranks]

    def is_port(self, agent: int) -> bool:
        """Return whether an agent is a port channel."""
        return agent >= self.first_host + len(self.plan.ranks)

    def is_host(self, agent: int) -> bool:
        """Return whether an agent is the program of a rank, outside of the plan."""
        return 0 <= agent - self.first_host < len(self.plan.ranks)

    def transfers(self, step: PlanStep) -> Iterator[CellTransfer]:
        """Yield what a step moves in this launch."""
        return cell_transfers(
            self.memory, step.operation, self.size, self.launch, step.iteration, step.pipeline
        )

    # --- words -----------------------------------------------------------------------------------

    def where(self, x: RunningBlock, step: PlanStep) -> str:
        """Return a step as messages name it."""
        turn = f", iteration {step.iteration}" if step.pipeline else ""
        name = f"{step.operation.name}{turn}"
        return f"rank {x.rank}, block {x.block.number}, operation {step.number} ({name})"

    def doing(self, agent: int, time: int) -> str:
        """Return what an agent did at a time, as messages name it."""
        if self.is_host(agent):
            return f"the program of rank {self.rank_of(agent)}, outside of the plan,"
        steps = self.doings[agent]
        if agent < self.first_host:
            x = self.blocks[agent]
            return self.where(x, steps[time - 1] if time <= len(steps) else x.step)
        step = steps[time - 1]
        name = step.operation.name
        return f"rank {self.rank_of(agent)}, operation {step.number} ({name} over a port)"

    def operation(self, agent: int, time: int) -> PlanOperation | None:
        """Return the operation that an agent did at a time, if that has ended."""
        steps = self.doings[agent]
        return steps[time - 1].operation if time <= len(steps) else None

    def again(self) -> str:
        """Return the launch, if it is not the first one."""
        return f" (launch {self.launch + 1})" * (self.launch > 0)

    def has_enough(self, kind: str) -> bool:
        """Return whether faults of a kind are only counted from here on; count one if so."""
        enough = self.found.counts.get(kind, 0) >= MOST_PROBLEMS
        if enough:
            self.found.add(kind, "")
        return enough

    def note(self, x: RunningBlock, kind: str, message: str) -> None:
        """Note a fault of the step that a block does."""
        where = self.where(x, x.step)
        self.found.add(kind, f"{where} {message}{self.again()}", x.step.operation.line)


def _zero(count: int) -> Clock:
    return np.zeros(count, dtype=np.int32)


def _steps(block: PlanBlock, size: ChunkSize) -> Iterator[PlanStep]:
    """Yield what a block runs, one after the other."""
    for number, operation in enumerate(block.operations):
        if operation.name != "pipeline":
            yield PlanStep(operation, number)
            continue
        for iteration in range(size.iterations(operation) if operation.body else 0):
            for each in operation.body:
                yield PlanStep(each, number, operation, iteration)
