"""The memories of all ranks as one row of cells, and the cells that an operation uses.

A chunk is divided into a few cells, so that the parts of thread block groups and the iterations of
pipelines use whole ones. A packet takes two cells of scratch: its data and its flags.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from collir.algorithms.collectives import aliases
from collir.algorithms.mscclpp.operations import PACKET_OPERANDS, Operand, PlanTransfer, transfers
from collir.algorithms.mscclpp.plan import ExecutionPlan, PlanOperation, PlanRange
from collir.algorithms.program import ChunkBuffer

MOST_CELLS_OF_CHUNK = 64


class ChunkSize(NamedTuple):
    """A size of chunks for which a plan is run.

    Attributes:
        cells: the cells of a chunk.
        unit: the bytes of a cell; 0 where every pipeline is done in one iteration.
    """

    cells: int
    unit: int = 0

    def iterations(self, pipeline: PlanOperation) -> int:
        """Return how often a pipeline runs."""
        if not self.unit:
            return 1
        return -(-pipeline.chunks * self.cells // (pipeline.unit // self.unit))


def chunk_sizes(plan: ExecutionPlan) -> list[ChunkSize]:
    """Return the sizes of chunks to run a plan for.

    Groups of thread blocks divide a chunk into equal parts, and into unequal ones. Pipelines run
    in one iteration, and with as many bytes as the largest unit, and twice as many.

    Raises:
        ValueError: the parts of chunks are too many to follow.
    """
    operations = [x for r in plan.ranks for b in r.blocks for x in b.operations]
    parts = math.lcm(*(operation.slices for x in operations for operation in x.flat))
    if parts > MOST_CELLS_OF_CHUNK:
        raise ValueError(f"groups of thread blocks divide a chunk into {parts} parts")
    units = {x.unit for x in operations if x.name == "pipeline"}
    sizes = [ChunkSize(parts), *([ChunkSize(parts + 1)] if parts > 1 else [])]
    if not units:
        return sizes
    common = math.gcd(*units)
    if parts * max(units) // common > MOST_CELLS_OF_CHUNK:
        raise ValueError("the units of pipelines have no common measure")
    cells = max(units) // common
    return [*sizes, ChunkSize(cells, common), ChunkSize(2 * cells, common)]


def _start(count: int, part: int, parts: int) -> int:
    """Return where a part of some cells begins: the first ones are larger, by one."""
    return part * (count // parts) + min(part, count % parts)


class MemoryOfRanks:
    """The places of the buffers of all ranks in a row of cells.

    A launch uses one half of the scratch buffers if there are two. The kernel uses the right one
    for what lies in its own rank and for packets; all else it takes from the first.
    """

    def __init__(self, plan: ExecutionPlan, cells: int):
        self.plan, self.cells = plan, cells
        self.bases: list[dict[ChunkBuffer, int]] = []
        self.scratch_half: list[int] = []
        inner = aliases(plan.outline)
        self.size = 0
        for rank, own in enumerate(plan.ranks):
            within, offset = inner.get(rank, (None, 0))
            bases: dict[ChunkBuffer, int] = {}
            for buffer in (ChunkBuffer.INPUT, ChunkBuffer.OUTPUT):
                if buffer is not within:
                    bases[buffer] = self.size
                    outer = max(own.sizes[ChunkBuffer.INPUT], own.sizes[ChunkBuffer.OUTPUT])
                    self.size += (outer if within else own.sizes[buffer]) * cells
            if within:
                bases[within] = min(bases.values()) + offset * cells
            half = own.sizes[ChunkBuffer.SCRATCH] * cells * (1 + plan.packets)
            bases[ChunkBuffer.SCRATCH] = self.size
            self.size += half * (1 + plan.double_scratch)
            self.bases.append(bases)
            self.scratch_half.append(half if plan.double_scratch else 0)

    def cell(self, rank: int, buffer: ChunkBuffer, number: int) -> int:
        """Return a cell of a buffer."""
        return self.bases[rank][buffer] + number

    def named(self, cell: int, operation: PlanOperation | None = None) -> str:
        """Return a cell as messages name it: its chunk, and its part of that.

        Args:
            operation: which uses it: of two names that a chunk has in place, its own one is taken.
        """
        used = {x.buffer for x in (*operation.sources, *operation.targets)} if operation else ()
        names = {
            buffer: name
            for rank, bases in enumerate(self.bases) for buffer in bases
            if (name := self._name(rank, buffer, cell))
        }  # fmt: skip
        return (
            next((name for buffer, name in names.items() if buffer in used), None)
            or [*names.values()][-1]
        )

    def _name(self, rank: int, buffer: ChunkBuffer, cell: int) -> str | None:
        """Return the name of a cell in a buffer; None if it is not there."""
        scratch = buffer is ChunkBuffer.SCRATCH
        packet = scratch and self.plan.packets
        size = self.plan.ranks[rank].sizes[buffer] * self.cells * (1 + packet)
        at = cell - self.bases[rank][buffer]
        if not 0 <= at < size * (1 + (scratch and self.plan.double_scratch)):
            return None
        chunk, part = divmod(at % size // (1 + packet), self.cells)
        of = f" (part {part} of {self.cells})" if self.cells > 1 else ""
        return f"{buffer}[{chunk}]{of} of rank {rank}"


class CellTransfer(NamedTuple):
    """A transfer of cells: the k-th of all sources are added, and go to the k-th of all targets.

    Attributes:
        sources, targets: cells, and whether they hold packets.
        position: the place of the operands, which is their channel's.
    """

    sources: Sequence[tuple[Sequence[int], bool]]
    targets: Sequence[tuple[Sequence[int], bool]]
    position: int


def cell_transfers(
    memory: MemoryOfRanks, operation: PlanOperation, size: ChunkSize, launch: int,
    iteration: int = 0, pipeline: PlanOperation | None = None,
) -> Iterator[CellTransfer]:  # fmt: skip
    """Yield what an operation moves in a launch, or in an iteration of a pipeline.

    Args:
        launch: counted from 0.
    """

    def cells_of(part: PlanRange, operand: Operand) -> Iterator[tuple[Sequence[int], bool]]:
        begin, count = part.offset * size.cells, part.size * size.cells
        first, last = (
            _start(count, n, operation.slices) for n in (operation.slice, operation.slice + 1)
        )
        begin, count = begin + first, last - first
        if pipeline is not None and size.unit:
            unit = pipeline.unit // size.unit
            begin, count = begin + iteration * unit, min(unit, count - iteration * unit)
        packets = operand in PACKET_OPERANDS or (raw and operand is Operand.LOCAL)
        second = launch % 2 and (packets or (operand is Operand.LOCAL and not by_port))
        for rank in part.ranks:
            base = memory.cell(rank, part.buffer, 0)
            if second and part.buffer is ChunkBuffer.SCRATCH:
                base += memory.scratch_half[rank]
            step = 2 if packets else 1
            yield range(base + step * begin, base + step * (begin + count), step), packets

    # Over a port, packets are sent as they lie there, and nothing waits for them.
    by_port = operation.channel_type == "port"
    raw = operation.name == "ppkt" and by_port
    transfer: PlanTransfer
    for transfer in transfers(operation):
        yield CellTransfer(
            [cells for part in transfer.sources for cells in cells_of(*part)],
            [cells for part in transfer.targets for cells in cells_of(*part)],
            transfer.position,
        )
