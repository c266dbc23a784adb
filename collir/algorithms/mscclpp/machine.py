"""Run an execution plan on sets of contributions, launch after launch.

Thread blocks run as far as they can. The k-th wait on a channel takes the k-th signal, so that what
a plan computes does not depend on the order in which its blocks run, unless there is a race.

Threads of a block run apart from ``nop`` to ``nop``: after the next ``nop``, all know what one of
them waited for and what the others did. A signal tells what its thread knows. A relaxed one, and a
packet, tell that the launch has begun, and a packet that its value was read.
"""

from collections import deque

from collir.algorithms.checking import CheckedAlgorithm
from collir.algorithms.mscclpp.cells import ChunkSize
from collir.algorithms.mscclpp.data import Data
from collir.algorithms.mscclpp.deadlocks import note_deadlock
from collir.algorithms.mscclpp.launches import Launches
from collir.algorithms.mscclpp.operations import MOVES, SIGNALS, WAITS
from collir.algorithms.mscclpp.ordering import Ordering, OrderKey
from collir.algorithms.mscclpp.plan import ExecutionPlan
from collir.algorithms.mscclpp.running import Agents, RunningBlock


class MachineRun:
    """A run of a plan for a size of chunks."""

    def __init__(self, plan: ExecutionPlan, size: ChunkSize, found: CheckedAlgorithm):
        self.found = found
        self.agents = Agents(plan, size, found)
        self.ordering = Ordering(self.agents)
        self.data = Data(self.agents)
        self.launches = Launches(self.agents, self.data)
        self.waiting: dict[OrderKey | int, list[RunningBlock]] = {}
        self.ready: deque[RunningBlock] = deque()
        self.unsure: list[RunningBlock] = []

    def run_launch(self) -> bool:
        """Run the plan once more; return whether it is right so far."""
        self.launches.begin()
        self.ready = deque(self.agents.blocks)
        while self.ready or self.unsure:
            while self.ready:
                self._advance(self.ready.popleft())
            if self.unsure:
                self._acquire_last()
        if stuck := [x for x in self.agents.blocks if not x.ended]:
            note_deadlock(self.agents, self.ordering, self.data, stuck)
        else:
            self.launches.end()
            if self.found.is_right:
                self.ordering.note_left()
        self.agents.launch += 1
        return self.found.is_right

    def _advance(self, x: RunningBlock) -> None:
        """Run the steps of a block until it has to wait."""
        while not x.ended and not self._waits(x):
            name = x.step.operation.name
            if name == "barrier":
                gone = self.ordering.arrive(x)
                for block in gone:
                    self._finish(block)
                self.ready.extend(block for block in gone if block is not x)
                if not gone:
                    return
                continue
            if self.ordering.is_unsure(x):
                if x not in self.unsure:
                    self.unsure.append(x)
                return
            self._perform(x, name)
            self._finish(x)

    def _acquire_last(self) -> None:
        """Let a block acquire what several release: all else has run as far as it can without."""
        sure = len(self.unsure) == 1
        x = self.unsure.pop(0)
        if not self._waits(x):
            self.ordering.acquire(x, sure)
            self._finish(x)
            self.ready.append(x)

    def _waits(self, x: RunningBlock) -> bool:
        """Return whether the next step of a block has to wait, and let it be woken then."""
        missing = self.ordering.missing(x)
        if missing is None and x.step.operation.name in MOVES:
            cell = self.data.missing(x)
            if cell is None:
                return False
            self.waiting.setdefault(cell, []).append(x)
            return True
        if missing is not None:
            self.waiting.setdefault(missing, []).append(x)
        return missing is not None

    def _wake(self, key: OrderKey | int | None) -> None:
        if key is not None:
            self.ready.extend(self.waiting.pop(key, ()))

    def _finish(self, x: RunningBlock) -> None:
        """Count a step as done."""
        self.agents.doings[x.index].append(x.step)
        x.time += 1
        x.at += 1

    def _perform(self, x: RunningBlock, name: str) -> None:
        """Run a step that need not wait."""
        operation = x.step.operation
        if name == "nop":
            x.synchronise(x.time + 1)
        elif name == "sem_acquire":
            self.ordering.acquire(x, True)
        elif name in MOVES:
            for transfer in self.agents.transfers(x.step):
                for cell in self.data.move(x, transfer):
                    self._wake(cell)
        for thread, channel in enumerate(operation.channels):
            if name in (*SIGNALS, "pws", "pwsf"):
                self._wake(self.ordering.signal(x, thread, channel, name == "rlxsignal"))
            if name in WAITS:
                self.ordering.wait(x, thread, channel, name == "rlxwait")
            if name in ("flush", "pwsf"):
                x.learn(thread, self.agents.port_clocks[x.rank, channel])
        for thread, number in enumerate(operation.semaphores if name == "sem_release" else ()):
            self._wake(self.ordering.release(x, thread, number))
