"""Collectives, with the packing of blocks before they are sent, and their unpacking after."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue

from collir.algorithms.moves import Algorithm
from collir.algorithms.own import OwnAlgorithmError
from collir.dialects.local import ComputeOp, CopyOp, StartOp, number
from collir.dialects.local_types import RankNumberAttr, buffer_of
from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.remarks import remark
from collir.layout import DistType, DType, Place, place_at
from collir.layout.local import LocalBuffer
from collir.layout.mesh import by_rank, index_over
from collir.layout.types import with_sizes
from collir.localize.blocks import BlockOrder, CutBlocks
from collir.localize.places import root_place, taking_part
from collir.localize.rounds import RoundsOfRanks, algorithm_named, reason_against
from collir.localize.shares import shares_by_dim
from collir.localize.writer import LocalWriter


def start(
    op: DistOp, source: SSAValue, target: SSAValue, writer: LocalWriter, waits: bool, text: str
) -> None:
    """Write a collective: its blocks packed, its start, and its wait if it waits at once.

    Args:
        text: the step as it is written.
    """
    _Collective(op, source, target, writer).write(waits, text)


class _Collective:
    """A collective that is written.

    Attributes:
        ranks: the sub-axes that count the ranks of its groups.
        padded: whether blocks are padded to the largest.
        before, then: the copies in front of it, and behind it.
    """

    def __init__(self, op: DistOp, source: SSAValue, target: SSAValue, writer: LocalWriter):
        self.op, self.source, self.target, self.writer = op, source, target, writer
        mesh, over = writer.mesh, op.over
        ascends = writer.rules.ascending and not op.kind.pairs
        self.ranks = by_rank(mesh, over) if ascends else over
        self.order = BlockOrder.of(mesh, over, self.ranks)
        self.uneven = shares_by_dim(op, mesh) is not None
        self.padded = self.uneven and writer.rules.pads(op, mesh)
        self.before: list[tuple[Place, list[Operation]]] = []
        self.then: list[tuple[Place, list[Operation]]] = []

    def write(self, waits: bool, text: str) -> None:
        """Write it, with its copies."""
        op, kind, place = self.op, self.op.kind, taking_part(self.op)
        rooted = place_at({**dict(place), **dict(root_place(op))})
        properties = self._properties()
        if kind.exchanges or kind.shards:
            at = rooted if kind.before == "root" else place
            properties |= self._blocks(at, place, leave=True)
        if kind.exchanges or kind.gathers:
            at = rooted if kind.after == "root" else place
            properties |= self._blocks(at, place, leave=False)
        begun = StartOp.of(op.mnemonic, self.ranks, self.source, self.target, properties)
        begun.location = op.location
        if algorithm := self._rounds(begun):
            self.writer.run(self.before, text)
            text = "" if self.before else text
            RoundsOfRanks(self.writer, begun, algorithm, place, text).write()
            self.writer.run(self.then)
            return
        self.writer.start(self.before, place, begun, self.then, waits, text)

    def _rounds(self, start: StartOp) -> Algorithm | None:
        """Return the algorithm by which a collective is written as rounds; None if the library
        chooses one."""
        name = start.algorithm.data if start.algorithm else ""
        if not name:
            return None
        if hint := self.writer.rules.algorithms.get((start.called, name)):
            remark(self.op, hint)
            return None
        count = self.writer.mesh.group_size(start.axes.data)
        try:
            algorithm = algorithm_named(start.called, name, count)
        except OwnAlgorithmError as error:
            raise DiagnosticError.at(self.op, f"{name} is no {start.called}: {error}") from None
        reason = "it is not written as rounds"
        if algorithm is not None:
            buffers = (buffer_of(x).elements for x in (self.source, self.target))
            sizes = [*buffers, *(x for side in start.counts for x in side)]
            reason = reason_against(algorithm, start, count, sizes)
        if reason:
            remark(self.op, f"the library chooses the algorithm, not `using {name}`: {reason}")
            return None
        return algorithm

    def _blocks(self, at: Place, place: Place, *, leave: bool) -> dict[str, Attribute]:
        """Pack the blocks that leave, or unpack the blocks that arrive, and return their counts.

        Args:
            at: the place of the ranks that have all blocks.
            place: the place of all ranks that take part.
        """
        op = self.op
        dim = ("target" if leave else "source") if op.kind.exchanges else "dim"
        whole, own = (self.source, self.target) if leave else (self.target, self.source)
        blocks = CutBlocks.of(buffer_of(whole), op.integer(dim), op, self.writer.mesh)
        packed = self._packed(whole, blocks, at)
        self._copy(whole, packed, blocks, at, packs=leave)
        if self.padded:
            own = self._padded(own, blocks, place, comes=leave)
        self.source, self.target = (packed, own) if leave else (own, packed)
        return self._counts("sends" if leave else "receives", blocks)

    def _padded(self, own: SSAValue, blocks: CutBlocks, place: Place, *, comes: bool) -> SSAValue:
        """Return a buffer of the size of the largest block for the rank's own block, and the copy
        between both."""
        x = buffer_of(own)
        slot = self._buffer((blocks.most,), place, x.dtype)
        used = self.writer.view(slot, x, 0, place)
        if comes:
            self.then.append((place, [CopyOp.of(used, own)]))
        else:
            self.before.append((place, [_zeros(slot), CopyOp.of(own, used)]))
        return slot

    def _packed(self, x: SSAValue, blocks: CutBlocks, place: Place) -> SSAValue:
        """Return a buffer for blocks one behind the other: the given one, if they lie so."""
        if self.padded:
            size = self.writer.mesh.group_size(self.op.over) * blocks.most
            return self._buffer((size,), place, blocks.dtype)
        if blocks.rows == 1 and self.order.is_natural:
            return x
        lying = next(blocks.views(self.order))
        if not blocks.is_even:
            return self._buffer((blocks.rows * blocks.row,), place, blocks.dtype)
        _ = self.writer.view(x, lying.rows, lying.begin, place)
        return self._buffer(lying.packed.shape, place, blocks.dtype)

    def _buffer(self, shape: Sequence[int], place: Place, dtype: DType) -> SSAValue:
        return self.writer.alloc(LocalBuffer(dtype, tuple(shape)), place, "packed")

    def _copy(
        self, x: SSAValue, packed: SSAValue, blocks: CutBlocks, place: Place, *, packs: bool
    ) -> None:
        """Copy blocks between their rows and a buffer in which they lie one behind the other."""
        if packed is x:
            return
        ops: list[Operation] = [_zeros(packed)] if self.padded and packs else []
        for copy in blocks.views(self.order, blocks.most if self.padded else None):
            rows = self.writer.view(x, copy.rows, copy.begin, place)
            behind = self.writer.view(packed, copy.packed, copy.start, place)
            ops.append(CopyOp.of(rows, behind) if packs else CopyOp.of(behind, rows))
        (self.before if packs else self.then).append((place, ops))

    def _counts(self, word: str, blocks: CutBlocks) -> dict[str, Attribute]:
        """Return the elements of the blocks, if some blocks of the collective differ in size."""
        if not self.uneven or self.padded:
            return {}
        counts = blocks.counts
        return {word: ArrayAttr(RankNumberAttr(counts[x]) for x in self.order.numbers())}

    def _properties(self) -> dict[str, Attribute]:
        op, mesh = self.op, self.writer.mesh
        properties: dict[str, Attribute] = {}
        x = dist_type(op.operands[0])
        if op.kind.reduces:
            assert x.reduction is not None
            properties["reduction"] = StringAttr(x.reduction.value)
        if "algorithm" in op.properties:
            properties["algorithm"] = op.properties["algorithm"]
        if op.kind.before == "root" and not op.kind.pairs:
            properties["root"] = number(index_over(mesh, self.ranks, dict(root_place(op))))
        for name in ("sender", "receiver", "distance"):
            if name in op.properties:
                properties[name] = number(op.integer(name))
        if "open" in op.properties:
            properties["open"] = UnitAttr()
        if op.is_async:
            properties["async"] = UnitAttr()
        if not op.over:
            properties["before"] = _plain(x)
            properties["after"] = _plain(dist_type(op.result))
        return properties


def _zeros(x: SSAValue) -> Operation:
    return ComputeOp.of("constant", {"value": NumberAttr(0.0)}, [], [x])


def _plain(x: DistType) -> DistTensorType:
    """Return a type whose sizes have no formulas: a rank has no parameters."""
    return DistTensorType(with_sizes(x, map(int, x.shape)))
