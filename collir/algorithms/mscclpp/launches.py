"""The programs of ranks around a launch: they fill the inputs, and read the outputs.

Each rank launches by itself, once it has read the outputs of the launch before. So what others do
to its buffers after its own launch has ended is a race.
"""

from collections.abc import Iterator

import numpy as np

from collir.algorithms.collectives import Contributions, expected_outputs, has_one_input, sizes_of
from collir.algorithms.contributions import fault_of_result
from collir.algorithms.mscclpp.clocks import Conflict, conflict_of_reading, conflict_of_writing
from collir.algorithms.mscclpp.data import STRIDE, Data
from collir.algorithms.mscclpp.running import Agents
from collir.algorithms.program import ChunkBuffer


class Launches:
    """The hosts of a run."""

    def __init__(self, agents: Agents, data: Data):
        self.agents, self.data = agents, data
        self.time = 0

    def begin(self) -> None:
        """Let the hosts fill inputs and launch."""
        self.time += 1
        agents = self.agents
        for rank, host in enumerate(agents.hosts):
            agent = agents.first_host + rank
            for cell, value in self._filled(rank).items():
                used = self.data.cell(cell)
                if conflict := conflict_of_writing(used, cell, host, [agents.readings[rank]]):
                    self._note_late(rank, cell, conflict)
                used.write(agent, self.time, value)
            host[agent] = self.time
            agents.launched[rank] = host.copy()
        for x in agents.blocks:
            np.maximum(x.clock, agents.hosts[x.rank], out=x.clock)
            x.readings = set(agents.readings[x.rank])
            x.at = 0

    def _filled(self, rank: int) -> dict[int, Contributions | None]:
        """Return what lies in the buffers of a rank before a launch."""
        agents, outline = self.agents, self.agents.plan.outline
        taken, given = sizes_of(outline.collective, len(agents.plan.ranks), outline.chunks)
        cells, first = agents.size.cells, agents.launch * STRIDE
        filled: dict[int, Contributions | None] = {
            agents.memory.cell(rank, ChunkBuffer.OUTPUT, n): None for n in range(given * cells)
        }
        has_input = not has_one_input(outline.collective) or rank == outline.root
        for n in range(taken * cells):
            value = Contributions(n + first, 1 << rank) if has_input else None
            filled[agents.memory.cell(rank, ChunkBuffer.INPUT, n)] = value
        return filled

    def end(self) -> None:
        """Let the hosts wait for the blocks, and read the outputs."""
        self.time += 1
        agents = self.agents
        for x in agents.blocks:
            x.synchronise(x.time)
            np.maximum(agents.hosts[x.rank], x.clock, out=agents.hosts[x.rank])
            agents.readings[x.rank] |= x.readings
        right = agents.found.is_right
        for rank, cell, expected in self._expected():
            used = self.data.cell(cell)
            if conflict := conflict_of_reading(used, agents.hosts[rank]):
                self._note_late(rank, cell, conflict)
            used.readers[agents.first_host + rank, self.time] = None
            if used.value != expected and right:
                self._note_result(rank, cell, used.value, expected)
        for rank, host in enumerate(agents.hosts):
            host[agents.first_host + rank] = self.time

    def _expected(self) -> Iterator[tuple[int, int, Contributions]]:
        """Yield each cell of an output, and what it should hold."""
        agents, outline = self.agents, self.agents.plan.outline
        cells, ranks = agents.size.cells, len(agents.plan.ranks)
        for rank, number, value in expected_outputs(
            outline.collective, ranks, outline.chunks, outline.root
        ):
            for part in range(cells):
                cell = agents.memory.cell(rank, ChunkBuffer.OUTPUT, number * cells + part)
                own = value.chunk * cells + part + agents.launch * STRIDE
                yield rank, cell, Contributions(own, value.ranks)

    def _note_late(self, rank: int, cell: int, conflict: Conflict) -> None:
        """Note that something is used after the launch of a rank has ended."""
        agents = self.agents
        if agents.has_enough("race"):
            return
        did = "writes" if conflict.writes else "reads"
        doing = agents.doing(conflict.agent, conflict.time)
        operation = agents.operation(conflict.agent, conflict.time)
        name = agents.memory.named(cell, operation)
        message = f"{doing} {did} {name}, and rank {rank} does not wait for that before it ends"
        agents.found.add("race", message, operation.line if operation else 0)

    def _note_result(
        self, rank: int, cell: int, value: Contributions | None, expected: Contributions
    ) -> None:
        agents, data = self.agents, self.data
        if agents.has_enough("result"):
            return
        wrong = fault_of_result(None if value is None else data.chunk(value), data.chunk(expected))
        if value is not None and value.chunk // STRIDE != agents.launch:
            wrong = f"is what launch {value.chunk // STRIDE + 1} has left"
        elif not wrong:
            wrong = "has its parts in another order"
        message = f"{agents.memory.named(cell)} {wrong}{agents.again()}"
        agents.found.add("result", message, agents.plan.ranks[rank].line)
