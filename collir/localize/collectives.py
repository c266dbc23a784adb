"""Collectives: which blocks are packed before they are sent, and unpacked behind."""

from collections.abc import Mapping
from dataclasses import replace

from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue

from collir.dialects.local import CopyOp, StartOp, number
from collir.dialects.local_types import buffer_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.layout import Dim, DistType, Place, at_root, place_at
from collir.layout.mesh import index_over
from collir.localize.blocks import Blocks
from collir.localize.writer import Steps, Writer


def taking_part(op: DistOp) -> Place:
    """Return the place of the ranks that carry out a collective."""
    return dist_type(op.operands[0]).without_place(op.over).place


def start(op: DistOp, source: SSAValue, target: SSAValue, writer: Writer, waits: bool) -> None:
    """Write a collective: its blocks packed, its start, and if it waits at once, its wait."""
    mesh, kind = writer.mesh, op.kind
    place, count = taking_part(op), mesh.group_size(op.over)
    at_start = place_at({**dict(place), **dict(_root(op))}) if kind.before == "root" else place
    at_end = place_at({**dict(place), **dict(at_root(op.over))}) if kind.after == "root" else place
    before: Steps = []
    then: Steps = []
    cut = _dim(op, "target") if kind.exchanges else _dim(op, "dim") if kind.shards else None
    joined = _dim(op, "source") if kind.exchanges else _dim(op, "dim") if kind.gathers else None
    if cut is not None:
        blocks = Blocks.of(buffer_of(source), cut, count)
        if blocks.rows > 1:
            rows = writer.view(source, blocks.in_place)
            source = writer.alloc(blocks.packed, at_start)
            before = [(at_start, [_copy(rows, source)])]
    if joined is not None:
        blocks = Blocks.of(buffer_of(target), joined, count)
        if blocks.rows > 1:
            rows = writer.view(target, blocks.in_place)
            target = writer.alloc(blocks.packed, at_end)
            then = [(at_end, [_copy(target, rows)])]
    begun = StartOp.of(op.mnemonic, op.over, source, target, _properties(op, writer))
    begun.location = op.location
    writer.start(before, place, begun, then, waits)


def _copy(source: SSAValue, target: SSAValue) -> Operation:
    return CopyOp.create(operands=[source, target])


def _dim(op: DistOp, name: str) -> int:
    return op.integer(name)


def _root(op: DistOp) -> Place:
    """Return the place, in each group, of the rank that holds the operand."""
    return tuple(item for item in dist_type(op.operands[0]).place if item[0] in op.over)


def _properties(op: DistOp, writer: Writer) -> Mapping[str, Attribute]:
    properties: dict[str, Attribute] = {}
    x = dist_type(op.operands[0])
    if op.kind.reduces:
        assert x.reduction is not None
        properties["reduction"] = StringAttr(x.reduction.value)
    if "algorithm" in op.properties:
        properties["algorithm"] = op.properties["algorithm"]
    if op.kind.before == "root" and not op.kind.pairs:
        properties["root"] = number(index_over(writer.mesh, op.over, dict(_root(op))))
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
    dims = (Dim(int(dim.size), dim.axes) for dim in x.dims)
    return DistTensorType(replace(x, dims=tuple(dims)))
