"""Deadlocks: blocks that wait for each other, or for a signal that never comes."""

from collections.abc import Iterator, Sequence

from collir.algorithms.mscclpp.data import Data
from collir.algorithms.mscclpp.operations import MOVES, SIGNALS
from collir.algorithms.mscclpp.ordering import Ordering, OrderKey
from collir.algorithms.mscclpp.running import Agents, PlanStep, RunningBlock


def note_deadlock(
    agents: Agents, ordering: Ordering, data: Data, stuck: Sequence[RunningBlock]
) -> None:
    """Note blocks that wait for each other, or a block that waits for something that never
    comes."""
    search = _Search(agents, ordering, data, stuck)
    for x in search.cycle():
        agents.note(x, "deadlock", f"waits for ever: {search.reason(x)}")


class _Search:
    def __init__(
        self, agents: Agents, ordering: Ordering, data: Data, stuck: Sequence[RunningBlock]
    ):
        self.agents, self.ordering, self.data, self.stuck = agents, ordering, data, stuck

    def cycle(self) -> list[RunningBlock]:
        """Return a cycle of blocks that wait for each other, or the last block of a chain."""
        chain: list[RunningBlock] = []
        x: RunningBlock | None = self.stuck[0]
        while x is not None and x not in chain:
            chain.append(x)
            x = next(self._providers(x), None)
        return chain[chain.index(x) :] if x is not None else chain[-1:]

    def _missing(self, x: RunningBlock) -> OrderKey | int:
        operation = x.step.operation
        if operation.name == "barrier":
            return OrderKey("barrier", x.rank, operation.barrier)
        key = self.ordering.missing(x)
        cell = self.data.missing(x) if key is None and operation.name in MOVES else None
        assert key is not None or cell is not None
        return key or cell or 0

    def _providers(self, x: RunningBlock) -> Iterator[RunningBlock]:
        """Yield the stuck blocks that still have a step for which a block waits."""
        key = self._missing(x)
        for each in self.stuck:
            if isinstance(key, OrderKey) and each in self.ordering.arrived.get(key, ()):
                continue
            if any(self._provides(each, step, key) for step in each.steps[each.at :]):
                yield each

    def _provides(self, y: RunningBlock, step: PlanStep, key: OrderKey | int) -> bool:
        operation = step.operation
        if not isinstance(key, OrderKey):
            moves = self.agents.transfers(step) if operation.name in MOVES else ()
            return any(packets and key in cells for x in moves for cells, packets in x.targets)
        if key.kind == "semaphore":
            releases = operation.name == "sem_release" and key.number in operation.semaphores
            return releases and y.rank == key.rank
        if key.kind == "barrier":
            meets = operation.name == "barrier" and operation.barrier == key.number
            return meets and y.rank == key.rank
        ends = (OrderKey(operation.channel_type, y.rank, n) for n in operation.channels)
        signals = operation.name in (*SIGNALS, "pws", "pwsf")
        return signals and any(self.ordering.other_end.get(x) == key for x in ends)

    def reason(self, x: RunningBlock) -> str:
        """Return what a block waits for, in words."""
        key = self._missing(x)
        if not isinstance(key, OrderKey):
            return f"no packet comes to {self.agents.memory.named(key)}"
        if key.kind == "semaphore":
            return f"semaphore {key.number} is not released"
        if key.kind == "barrier":
            there = len(self.ordering.arrived.get(key, ()))
            return f"{there} of {x.step.operation.blocks} blocks have come to barrier {key.number}"
        peer = self.agents.plan.ranks[key.rank].peers[key.kind][key.number]
        channel = f"{key.kind} channel {key.number}"
        if key not in self.ordering.other_end:
            return f"rank {peer} has no channel that ends at its {channel}"
        return f"no signal comes from rank {peer} on its {channel}"
