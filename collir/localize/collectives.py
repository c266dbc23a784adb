"""Collectives: which blocks are packed before they are sent, and unpacked behind."""

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import Attribute, SSAValue

from collir.dialects.local import CopyOp, StartOp, number
from collir.dialects.local_types import buffer_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.layout import DistType, place_at
from collir.layout.mesh import index_over
from collir.layout.types import with_sizes
from collir.localize.blocks import CutBlocks
from collir.localize.places import root_place, taking_part
from collir.localize.writer import Steps, Writer


def start(op: DistOp, source: SSAValue, target: SSAValue, writer: Writer, waits: bool) -> None:
    """Write a collective: its blocks packed, its start, and if it waits at once, its wait."""
    kind, place = op.kind, taking_part(op)
    rooted = place_at({**dict(place), **dict(root_place(op))})
    before: Steps = []
    then: Steps = []
    if kind.exchanges or kind.shards:
        at = rooted if kind.before == "root" else place
        cut = op.integer("target" if kind.exchanges else "dim")
        if (rows := _rows(op, source, cut, writer)) is not None:
            source = writer.alloc(buffer_of(rows).packed, at)
            before = [(at, [CopyOp.of(rows, source)])]
    if kind.exchanges or kind.gathers:
        at = rooted if kind.after == "root" else place
        joined = op.integer("source" if kind.exchanges else "dim")
        if (rows := _rows(op, target, joined, writer)) is not None:
            target = writer.alloc(buffer_of(rows).packed, at)
            then = [(at, [CopyOp.of(target, rows)])]
    begun = StartOp.of(op.mnemonic, op.over, source, target, _properties(op, writer))
    begun.location = op.location
    writer.start(before, place, begun, then, waits)


def _rows(op: DistOp, x: SSAValue, dim: int, writer: Writer) -> SSAValue | None:
    """Return the blocks of a dimension as they lie in a buffer; None if one is behind the other."""
    blocks = CutBlocks.of(buffer_of(x), dim, writer.mesh.group_size(op.over))
    return writer.view(x, blocks.in_place) if blocks.rows > 1 else None


def _properties(op: DistOp, writer: Writer) -> Mapping[str, Attribute]:
    properties: dict[str, Attribute] = {}
    x = dist_type(op.operands[0])
    if op.kind.reduces:
        assert x.reduction is not None
        properties["reduction"] = StringAttr(x.reduction.value)
    if "algorithm" in op.properties:
        properties["algorithm"] = op.properties["algorithm"]
    if op.kind.before == "root" and not op.kind.pairs:
        properties["root"] = number(index_over(writer.mesh, op.over, dict(root_place(op))))
    for name in ("sender", "receiver", "distance"):
        if name in op.properties:
            properties[name] = number(op.integer(name))
    if "open" in op.properties:
        properties["open"] = UnitAttr()
    if not op.over:
        properties["before"] = _plain(x)
        properties["after"] = _plain(dist_type(op.result))
    return properties


def _plain(x: DistType) -> DistTensorType:
    """Return a type whose sizes have no formulas: a rank has no parameters."""
    return DistTensorType(with_sizes(x, map(int, x.shape)))
