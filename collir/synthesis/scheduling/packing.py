"""Collectives of one kind as one, on a buffer in which their operands lie one behind the other.

What a device holds of a value is a list of numbers, however the value is laid out. So every operand
is viewed with a dimension for each sub-axis that shards it, one for the blocks that the collective
exchanges, and one for all that is left of the dimensions; along the last one operands are put
together, and results are cut apart. Where the blocks are those of the first dimension nothing but
that moves.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue

from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.dialects.tensor import SizesAttr, dist_type
from collir.layout import LayoutError, Mesh
from collir.synthesis.programs.build import Chain


@dataclass(frozen=True)
class _Part:
    """A part of a dimension: a sub-axis that shards it all the time, blocks that are exchanged, or
    the rest."""

    dim: int
    size: int
    axis: str = ""
    blocks: bool = False


def kind_of(op: DistOp, mesh: Mesh) -> Hashable:
    """What collectives have in common that fit into one buffer; None: of none (a permute may send
    each block elsewhere)."""
    if not op.kind.sends or op.kind.before is None or op.properties.keys() & {"algorithm", "async"}:
        return None
    x = dist_type(op.operands[0])
    front = tuple((part.axis, part.size) for part in _front(_parts(op, mesh), mesh))
    # An all_to_all whose blocks change places in the order of the dimensions is another one.
    turned = op.kind.exchanges and op.integer("source") > op.integer("target")
    axes = op.properties["axes"]
    return op.name, axes, x.dtype, x.partial, x.reduction, x.root, front, turned


def packed(mesh: Mesh, ops: Sequence[DistOp]) -> tuple[list[Operation], DistOp, list["Unpacking"]]:
    """One collective for several of one kind, on operands that are all there: the operations up to
    it, itself, and how to get each result from it.

    Raises:
        LayoutError: the buffer is larger than a tensor may be.
    """
    before: list[Operation] = []
    pieces: list[SSAValue] = []
    try:
        for op in ops:
            chain = Chain(mesh, op.operands[0])
            before += _flat(chain, op)
            pieces.append(chain.value)
        last = len(dist_type(pieces[0]).dims) - 1
        whole = Chain(mesh, pieces[0])
        whole.then_of(pieces, "concat", dim=_int(last))
        first = ops[0]
        whole.then(first.mnemonic, **_properties(first, mesh))
    except LayoutError:
        for op in reversed(before):
            op.erase()
        raise
    found: list[Unpacking] = []
    start = 0
    for op, piece in zip(ops, pieces, strict=True):
        found.append(Unpacking(op, start))
        start += dist_type(piece).dims[last].size
    collective = whole.ops[-1]
    assert isinstance(collective, DistOp)
    return [*before, *whole.ops[:-1]], collective, found


@dataclass(frozen=True)
class Unpacking:
    """A result in a buffer: the operation whose result it is, and where it starts."""

    op: DistOp
    start: int

    def of(self, mesh: Mesh, value: SSAValue) -> Chain:
        """The operations that cut the result out of the buffer."""
        chain = Chain(mesh, value)
        parts = _parts(self.op, mesh)
        rests = [part for part in parts if not part.axis and not part.blocks]
        size = math.prod(part.size for part in rests)
        last = len(chain.type.dims) - 1
        behind = chain.type.dims[last].size - self.start - size
        chain.then(
            "pad", dim=_int(last), low=_int(-self.start), high=_int(-behind), value=NumberAttr(0.0)
        )
        order = [*_front(parts, mesh), *rests]
        _reshape(chain, [part.size for part in order])
        _transpose(chain, [order.index(part) for part in parts])
        _reshape(chain, dist_type(self.op.result).shape)
        return chain


def _parts(op: DistOp, mesh: Mesh) -> list[_Part]:
    """The parts of all dimensions, in their order; blocks stand before the rest of theirs."""
    x, y = dist_type(op.operands[0]), dist_type(op.result)
    moved = op.over
    count = mesh.group_size(moved)
    parts: list[_Part] = []
    for dim, (have, want) in enumerate(zip(x.dims, y.dims, strict=True)):
        held = [axis for axis in have.axes if axis not in moved]
        rest = have.size
        for axis in held:
            rest //= mesh.by_name[axis].size
            parts.append(_Part(dim, mesh.by_name[axis].size, axis))
        if have.axes != want.axes:
            rest //= count
            parts.append(_Part(dim, count, blocks=True))
        parts.append(_Part(dim, rest))
    return parts


def _front(parts: Sequence[_Part], mesh: Mesh) -> list[_Part]:
    """The parts that come first in a buffer: sub-axes in the order of the mesh, then blocks."""
    places = {axis: index for index, axis in enumerate(mesh.by_name)}
    held = sorted((part for part in parts if part.axis), key=lambda part: places[part.axis])
    return [*held, *(part for part in parts if part.blocks)]


def _flat(chain: Chain, op: DistOp) -> list[Operation]:
    """Views an operand as it lies in a buffer."""
    parts = _parts(op, chain.mesh)
    _reshape(chain, [part.size for part in parts])
    front = _front(parts, chain.mesh)
    rests = [part for part in parts if part not in front]
    _transpose(chain, [parts.index(part) for part in (*front, *rests)])
    flat = math.prod(part.size for part in rests)
    _reshape(chain, [*(part.size for part in front), flat])
    return chain.ops


def _properties(op: DistOp, mesh: Mesh) -> dict[str, Attribute]:
    """Those of a collective on a buffer."""
    properties: dict[str, Attribute] = {"axes": op.properties["axes"]}
    front = _front(_parts(op, mesh), mesh)
    blocks = [index for index, part in enumerate(front) if part.blocks]
    if op.kind.gathers or op.kind.shards:
        properties["dim"] = _int(blocks[0])
    elif op.kind.exchanges:
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        dims = [front[index].dim for index in blocks]
        source = next(d for d in dims if len(x.dims[d].axes) > len(y.dims[d].axes))
        properties["source"] = _int(blocks[dims.index(source)])
        properties["target"] = _int(blocks[1 - dims.index(source)])
    return properties


def _reshape(chain: Chain, sizes: Sequence[int]) -> None:
    if tuple(sizes) != chain.type.shape:
        chain.then("reshape", shape=SizesAttr(tuple(sizes)))


def _transpose(chain: Chain, order: Sequence[int]) -> None:
    if list(order) != sorted(order):
        chain.then("transpose", order=SizesAttr(tuple(order)))


def _int(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)
