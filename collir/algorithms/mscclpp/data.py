"""The data of a run: what operations read and write, and the races between them."""

from dataclasses import dataclass, field

import numpy as np

from collir.algorithms.collectives import Contributions
from collir.algorithms.contributions import fault_of_sum
from collir.algorithms.mscclpp.cells import CellTransfer
from collir.algorithms.mscclpp.clocks import (
    Clock,
    Conflict,
    Reading,
    UsedCell,
    conflict_of_reading,
    conflict_of_writing,
)
from collir.algorithms.mscclpp.plan import PlanOperation
from collir.algorithms.mscclpp.running import Agents, RunningBlock

MOST_READINGS = 1000
"""The most readings that are remembered of a value; without them more is a race."""

STRIDE = 2**32
"""The distance between the numbers of a chunk in one launch and in the next."""


@dataclass
class Doing:
    """A use of memory: by which agent, when, and with what knowledge.

    Attributes:
        readings: the readings from which the value comes that it writes.
        own: the cells that it read for it.
    """

    x: RunningBlock
    agent: int
    time: int
    clock: Clock
    readings: frozenset[Reading] = frozenset()
    own: set[int] = field(default_factory=set[int])


class Data:
    """The cells of all memories that were used."""

    def __init__(self, agents: Agents):
        self.agents = agents
        self.used: dict[int, UsedCell] = {}

    def cell(self, number: int) -> UsedCell:
        """Return the cell of a number, which is a new one if it was not used yet."""
        known = self.used.get(number)
        if known is None:
            known = self.used[number] = UsedCell()
        return known

    def missing(self, x: RunningBlock) -> int | None:
        """Return a cell whose packet the next step of a block has to wait for."""
        operation = x.step.operation
        if not self.agents.plan.packets or is_raw(operation):
            return None
        for transfer in self.agents.transfers(x.step):
            for cells, packets in transfer.sources:
                for cell in cells if packets else ():
                    if self.cell(cell).launch != self.agents.launch + 1:
                        return cell
        return None

    def move(self, x: RunningBlock, transfer: CellTransfer) -> list[int]:
        """Do a transfer; return the cells to which packets came."""
        operation, agents = x.step.operation, self.agents
        doing = Doing(x, x.index, x.time + 1, x.clock)
        if operation.channel_type == "port":
            key = x.rank, operation.channels[transfer.position]
            clock = agents.port_clocks[key]
            np.maximum(clock, x.knows(transfer.position), out=clock)
            agents.doings[agents.ports[key]].append(x.step)
            doing = Doing(x, agents.ports[key], len(agents.doings[agents.ports[key]]), clock)
        came: list[int] = []
        for k in range(len(transfer.sources[0][0])):
            value = self._sum(doing, transfer, k)
            for cells, packets in transfer.targets:
                self._write(doing, cells[k], packets, value)
                if packets:
                    came.append(cells[k])
        if doing.agent != x.index:
            doing.clock[doing.agent] = doing.time
        return came

    def _sum(self, doing: Doing, transfer: CellTransfer, k: int) -> Contributions | None:
        """Return the sum of the k-th cells; note the readings that it comes from."""
        total: Contributions | None = None
        known, flags = True, not is_raw(doing.x.step.operation)
        doing.readings, doing.own = frozenset(), set()
        for cells, packets in transfer.sources:
            value = self._read(doing, cells[k], packets, packets and flags)
            if value is None:
                known = False
            elif total is not None and (fault := self._fault_of_sum(total, value)):
                self.agents.note(doing.x, "value", fault)
                known = known and total.chunk == value.chunk
            if value is not None:
                total = Contributions(value.chunk, value.ranks | (total.ranks if total else 0))
        return total if known else None

    def _read(self, doing: Doing, cell: int, packets: bool, flags: bool) -> Contributions | None:
        """Return a value, if there is one.

        Args:
            flags: whether the reader waits for the flag: the first packet needs no other order.
        """
        used, agents, x = self.cell(cell), self.agents, doing.x
        if not (flags and used.times == 1) and (conflict := conflict_of_reading(used, doing.clock)):
            self._note_race(x, cell, "reads", conflict)
        if flags:
            rank = agents.rank_of(used.writer)
            x.hear(agents.launched[rank], agents.readings[rank])
            x.heard_readings |= {r for r in used.readings if agents.is_port(r[1])}
        used.readers[doing.agent, doing.time] = None
        doing.own.add(cell)
        if agents.plan.packets:
            before = used.readings if len(used.readings) < MOST_READINGS else frozenset[Reading]()
            doing.readings |= before | {(cell, doing.agent, doing.time)}
        is_packet = used.launch == agents.launch + 1
        if used.value is not None and (is_packet if packets else not used.launch):
            return used.value
        if agents.has_enough("value"):
            return None
        what = "which nothing has written"
        if used.value is not None:
            what = "which are no packets" if packets else "which are packets"
        name = agents.memory.named(cell, x.step.operation)
        agents.note(x, "value", f"reads {name}, {what}")
        return None

    def _write(self, doing: Doing, cell: int, packets: bool, value: Contributions | None) -> None:
        for at in (cell, cell + 1) if packets else (cell,):
            used = self.cell(at)
            same = (doing.agent, doing.time) if cell in doing.own else None
            done = doing.readings, doing.x.readings
            if conflict := conflict_of_writing(used, at, doing.clock, done, same):
                self._note_race(doing.x, at, "writes", conflict)
            flag = self.agents.launch + 1
            times = used.times if used.launch == flag else 0
            used.write(doing.agent, doing.time, value if at == cell else None, doing.readings)
            if packets and at == cell:
                used.launch, used.times = flag, times + 1

    # --- faults ----------------------------------------------------------------------------------

    def _note_race(self, x: RunningBlock, cell: int, does: str, conflict: Conflict) -> None:
        agents = self.agents
        if agents.has_enough("race"):
            return
        did = "writes" if conflict.writes else "reads"
        doing = agents.doing(conflict.agent, conflict.time)
        why = f", which {doing} {did}; neither waits for the other"
        if agents.is_host(conflict.agent):
            why = ", and has not waited for the launch of that rank"
        if conflict.agent == x.index:
            why = f", which {doing} {did}; its threads need a nop between"
        elif any(clock[conflict.agent] >= conflict.time for clock in x.threads.values()):
            why += ": some of its threads have, and need a nop to tell the others"
        name = agents.memory.named(cell, x.step.operation)
        agents.note(x, "race", f"{does} {name}{why}")

    def _fault_of_sum(self, one: Contributions, other: Contributions) -> str | None:
        if {x.chunk // STRIDE for x in (one, other)} != {self.agents.launch}:
            return "adds what an earlier launch has left"
        fault = fault_of_sum(self.chunk(one), self.chunk(other))
        return fault or ("adds unlike parts of a chunk" if one.chunk != other.chunk else None)

    def chunk(self, value: Contributions) -> Contributions:
        """Return the value of a cell as that of its chunk."""
        return Contributions(value.chunk % STRIDE // self.agents.size.cells, value.ranks)


def is_raw(operation: PlanOperation) -> bool:
    """Return whether an operation sends packets as they lie there, without reading their flags."""
    return operation.name == "ppkt" and operation.channel_type == "port"
