"""Packing of collectives of one kind into one collective on a buffer of all their operands.

Every operand is viewed with a dimension for each sub-axis that shards it, one dimension for the
blocks of the collective, and one for the rest of its elements. Operands are concatenated along the
last dimension, and results are cut out of it. If the blocks are those of the first dimension, the
views move no data.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import Mesh
from collir.layout.sizes import same_size
from collir.layout.steps import Argument, ArgumentKind
from collir.synthesis.programs.build import Chain, stand_in


@dataclass(frozen=True)
class _DimPart:
    """A part of a dimension: a sub-axis that shards it before and after, the blocks that are
    exchanged, or the rest."""

    dim: int
    size: int
    axis: str = ""
    blocks: bool = False


def kind_of(op: DistOp, mesh: Mesh) -> Hashable:
    """Return a key that is equal for collectives that can share a buffer.

    None stands for an operation that cannot share one: a permute may send each block elsewhere.
    """
    if not op.kind.sends or op.kind.before is None:
        return None
    if op.properties.keys() & {"algorithm", "async", "ahead"}:
        return None
    x = dist_type(op.operands[0])
    front = tuple((part.axis, part.size) for part in _front(_parts(op, mesh), mesh))
    # An all_to_all from a later to an earlier dimension has its blocks in another order.
    backwards = op.kind.exchanges and op.integer("source") > op.integer("target")
    axes = op.properties["axes"]
    ends = tuple(_coordinates(op).values())
    return op.name, axes, ends, x.dtype, x.partial, x.reduction, x.place, front, backwards


def packed(mesh: Mesh, ops: Sequence[DistOp]) -> tuple[list[DistOp], DistOp, list["Unpacking"]]:
    """Return one collective for several of one kind whose operands are all defined.

    Returns: the operations that fill the buffer, the collective, and the cut of each result.

    Raises:
        LayoutError: the buffer is larger than a tensor may be.
    """
    sources = [stand_in(dist_type(op.operands[0])) for op in ops]
    steps: list[DistOp] = []
    pieces: list[SSAValue] = []
    for op, source in zip(ops, sources, strict=True):
        chain = Chain(mesh, source, steps)
        _flatten(chain, op)
        pieces.append(chain.value)
    last = len(dist_type(pieces[0]).dims) - 1
    buffer = Chain(mesh, pieces[0], steps)
    buffer.then_of(pieces, "concat", dim=last)
    buffer.then(ops[0].mnemonic, **_arguments(ops[0], mesh))
    *packing, collective = steps
    for op, source in zip(ops, sources, strict=True):
        source.replace_all_uses_with(op.operands[0])
    unpackings: list[Unpacking] = []
    start = 0
    for op, piece in zip(ops, pieces, strict=True):
        unpackings.append(Unpacking(op, start))
        start += dist_type(piece).dims[last].size
    return packing, collective, unpackings


@dataclass(frozen=True)
class Unpacking:
    """The cut of a result out of a buffer.

    Attributes:
        op: operation that had the result before packing.
        start: index of its first element along the last dimension of the buffer.
    """

    op: DistOp
    start: int

    def chain(self, mesh: Mesh, value: SSAValue) -> tuple[list[DistOp], SSAValue]:
        """Return the operations that cut the result out of the buffer, and the result."""
        chain = Chain(mesh, value)
        parts = _parts(self.op, mesh)
        rests = [part for part in parts if not part.axis and not part.blocks]
        size = math.prod(part.size for part in rests)
        last = len(chain.type.dims) - 1
        behind = chain.type.dims[last].size - self.start - size
        chain.then("pad", dim=last, low=-self.start, high=-behind, value=0.0)
        order = [*_front(parts, mesh), *rests]
        _reshape(chain, [part.size for part in order])
        _transpose(chain, [order.index(part) for part in parts])
        _reshape(chain, dist_type(self.op.result).shape)
        return chain.steps, chain.value


def _parts(op: DistOp, mesh: Mesh) -> list[_DimPart]:
    """Return the parts of all dimensions in order; blocks stand before the rest of a dimension."""
    x, y = dist_type(op.operands[0]), dist_type(op.result)
    moved = op.over
    count = mesh.group_size(moved)
    parts: list[_DimPart] = []
    for dim, (before, after) in enumerate(zip(x.dims, y.dims, strict=True)):
        unchanged = [axis for axis in before.axes if axis not in moved]
        rest = before.size
        for axis in unchanged:
            rest //= mesh.by_name[axis].size
            parts.append(_DimPart(dim, mesh.by_name[axis].size, axis))
        if before.axes != after.axes:
            rest //= count
            parts.append(_DimPart(dim, count, blocks=True))
        parts.append(_DimPart(dim, rest))
    return parts


def _front(parts: Sequence[_DimPart], mesh: Mesh) -> list[_DimPart]:
    """Return the leading dimensions of a buffer: sub-axes in the order of the mesh, then blocks."""
    places = {axis: index for index, axis in enumerate(mesh.by_name)}
    axes = sorted((part for part in parts if part.axis), key=lambda part: places[part.axis])
    return [*axes, *(part for part in parts if part.blocks)]


def _flatten(chain: Chain, op: DistOp) -> None:
    """Append the views that bring an operand to its shape in a buffer."""
    parts = _parts(op, chain.mesh)
    _reshape(chain, [part.size for part in parts])
    front = _front(parts, chain.mesh)
    rests = [part for part in parts if part not in front]
    _transpose(chain, [parts.index(part) for part in (*front, *rests)])
    size = math.prod(part.size for part in rests)
    _reshape(chain, [*(part.size for part in front), size])


def _arguments(op: DistOp, mesh: Mesh) -> dict[str, Argument]:
    """Return the arguments of a collective on a buffer."""
    arguments: dict[str, Argument] = {"axes": op.over, **_coordinates(op)}
    front = _front(_parts(op, mesh), mesh)
    blocks = [index for index, part in enumerate(front) if part.blocks]
    if op.kind.gathers or op.kind.shards:
        arguments["dim"] = blocks[0]
    elif op.kind.exchanges:
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        dims = [front[index].dim for index in blocks]
        source = next(d for d in dims if len(x.dims[d].axes) > len(y.dims[d].axes))
        arguments["source"] = blocks[dims.index(source)]
        arguments["target"] = blocks[1 - dims.index(source)]
    return arguments


def _coordinates(op: DistOp) -> dict[str, Argument]:
    """Return the arguments of a collective that are coordinates, which packing does not change."""
    names = [p.name for p in op.kind.parameters if p.kind is ArgumentKind.COORDINATE]
    return {name: op.arguments[name] for name in names}


def _reshape(chain: Chain, sizes: Sequence[int]) -> None:
    if not same_size(sizes, chain.type.shape):
        chain.then("reshape", shape=tuple(sizes))


def _transpose(chain: Chain, order: Sequence[int]) -> None:
    if list(order) != sorted(order):
        chain.then("transpose", order=tuple(order))
