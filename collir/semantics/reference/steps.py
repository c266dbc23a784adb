"""The effect of every step on the buffers of all devices, and on the logical tensor.

The effects are written from the definitions of the operations, without the typing rules and the
table of steps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, SSAValue

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr, mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, SizesAttr, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Dim, DistType, DType, Reduction
from collir.layout.operation_table import OperationTable
from collir.semantics.reference import collectives, nn, selections
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array, Buffers, ExecutionError
from collir.semantics.reference.devices import block_shape, coordinates_of, interval, slices_of

Args = tuple[Any, ...]
"""The operands, each a list with one array (or None) per rank."""


class Effect(Enum):
    """The effect of a step on the tensor that all devices together stand for."""

    NOTHING = auto()
    """The tensor is unchanged; only its distribution changes."""
    ORDER = auto()
    """The elements are the same, at other positions."""
    VALUES = auto()
    """Elements are computed or added."""


@dataclass(frozen=True)
class Meaning:
    """The effect of a step on the buffers of all devices (``run``) and on the tensor.

    Attributes:
        alone: a function from a step and whole tensors to the operations on one device with the
            same effect; by default, the step itself.
    """

    run: Callable[[DistOp, Args], Buffers]
    effect: Effect = Effect.NOTHING
    alone: Callable[[DistOp, Sequence[SSAValue]], list[DistOp]] | None = None


def _reduction(value: SSAValue) -> Reduction:
    reduction = dist_type(value).reduction
    if reduction is None:
        raise ExecutionError("there is nothing partial to reduce")
    return reduction


def _root(op: DistOp) -> int:
    """Return the number in a group over the sub-axes of the device that holds the operand."""
    mesh, at = mesh_of(op), dict(dist_type(op.input).place)
    index = 0
    for axis in op.over:
        index = index * mesh.by_name[axis].size + at[axis]
    return index


def _held(op: DistOp, dim: int) -> tuple[str, ...]:
    """Return the sub-axes that a dimension of the operand is sharded over."""
    return dist_type(op.input).dims[dim].axes


def _local(xs: Buffers, function: Callable[[Array], Array]) -> Buffers:
    """Return the buffers with a function applied on every device that holds an array."""
    return [None if x is None else function(x) for x in xs]


def _together(operands: Args, function: Callable[[list[Array]], Array]) -> Buffers:
    """Return a function of the operands' arrays on every device that holds all of them."""
    return _by_rank(operands, lambda rank, parts: function(parts))


def _by_rank(operands: Args, function: Callable[[int, list[Array]], Array]) -> Buffers:
    """Return a function of the rank and the arrays of every device that holds all operands."""
    out: Buffers = []
    for rank, parts in enumerate(zip(*operands, strict=True)):
        held = [part for part in parts if part is not None]
        if held and len(held) < len(parts):
            raise ExecutionError(f"rank {rank} holds only some of the operands")
        out.append(function(rank, held) if held else None)
    return out


def _as_shape(op: DistOp, args: Args) -> Buffers:
    """Return the same memory under the local shape of the result."""
    mesh, dims = mesh_of(op), dist_type(op.result).dims
    return [
        None if x is None else x.reshape(block_shape(mesh, rank, dims))
        for rank, x in enumerate(args[0])
    ]


def _padded(x: Array, dim: int, low: int, high: int, value: float) -> Array:
    widths = [(0, 0)] * x.ndim
    widths[dim] = (max(low, 0), max(high, 0))
    grown = np.pad(x, widths, constant_values=x.dtype.type(value))
    cut = [slice(None)] * x.ndim
    cut[dim] = slice(max(-low, 0), grown.shape[dim] - max(-high, 0))
    return grown[tuple(cut)]


# ---------------------------------------------------------------------------------------------
# Collectives
# ---------------------------------------------------------------------------------------------


def _all_reduce(op: DistOp, args: Args) -> Buffers:
    return collectives.all_reduce(mesh_of(op), args[0], op.over, _reduction(op.input))


def _reduce(op: DistOp, args: Args) -> Buffers:
    return collectives.reduce(mesh_of(op), args[0], op.over, _reduction(op.input))


def _broadcast(op: DistOp, args: Args) -> Buffers:
    return collectives.broadcast(mesh_of(op), args[0], op.over, _root(op))


def _reduce_scatter(op: DistOp, args: Args) -> Buffers:
    dim, reduction = op.integer("dim"), _reduction(op.input)
    held = _held(op, dim)
    return collectives.reduce_scatter(mesh_of(op), args[0], op.over, dim, reduction, held)


def _all_gather(op: DistOp, args: Args) -> Buffers:
    return collectives.all_gather(mesh_of(op), args[0], op.over, op.integer("dim"))


def _scatter(op: DistOp, args: Args) -> Buffers:
    dim = op.integer("dim")
    return collectives.scatter(mesh_of(op), args[0], op.over, dim, _root(op), _held(op, dim))


def _gather(op: DistOp, args: Args) -> Buffers:
    return collectives.gather(mesh_of(op), args[0], op.over, op.integer("dim"))


def _all_to_all(op: DistOp, args: Args) -> Buffers:
    source, target = op.integer("source"), op.integer("target")
    held = _held(op, target)
    return collectives.all_to_all(mesh_of(op), args[0], op.over, source, target, held)


def _send(op: DistOp, args: Args) -> Buffers:
    sender, receiver = op.integer("sender"), op.integer("receiver")
    return collectives.send(mesh_of(op), args[0], op.over, sender, receiver)


def _shift(op: DistOp, args: Args) -> Buffers:
    distance, is_open = op.integer("distance"), "open" in op.properties
    return collectives.shift(mesh_of(op), args[0], op.over, distance, is_open)


def _permute(op: DistOp, args: Args) -> Buffers:
    return collectives.permute(mesh_of(op), args[0], dist_type(op.input), op.layout("to"))


def _redistribute(op: DistOp, args: Args) -> Buffers:
    return collectives.redistribute(mesh_of(op), args[0], dist_type(op.input), op.layout("to"))


# ---------------------------------------------------------------------------------------------
# On one device: what steps do that depend on the layout of their operand
# ---------------------------------------------------------------------------------------------


@dataclass
class _Alone:
    """Operations on whole tensors on one device; blocks are along dimension 1.

    Attributes:
        ops: the operations so far.
    """

    ops: list[DistOp] = field(default_factory=list[DistOp])

    def then(
        self,
        name: str,
        shape: Sequence[int],
        operands: Sequence[SSAValue],
        properties: dict[str, Attribute],
    ) -> SSAValue:
        """Add an operation whose result has a shape, and return the result."""
        result = DistTensorType(DistType(dist_type(operands[0]).dtype, tuple(map(Dim, shape))))
        op = OPERATIONS[name].create(
            operands=operands, properties=properties, result_types=[result]
        )
        self.ops.append(op)
        return op.result

    def cut(self, x: SSAValue, low: int, high: int) -> SSAValue:
        """Return blocks without some in front and behind; negative numbers add blocks of zeros."""
        if low == high == 0:
            return x
        front, count, rest = dist_type(x).shape
        amounts = {"dim": 1, "low": -low, "high": -high}
        properties: dict[str, Attribute] = {n: IntegerAttr(v, i64) for n, v in amounts.items()}
        properties["value"] = NumberAttr(0.0)
        return self.then("pad", (front, count - low - high, rest), [x], properties)

    def join(self, blocks: Sequence[SSAValue]) -> SSAValue:
        """Return blocks one behind the other."""
        front, _, rest = dist_type(blocks[0]).shape
        shape = front, sum(dist_type(block).shape[1] for block in blocks), rest
        return self.then("concat", shape, blocks, {"dim": IntegerAttr(1, i64)})

    def shaped(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        """Return a tensor under another shape."""
        return self.then("reshape", shape, [x], {"shape": SizesAttr(tuple(shape))})


def _blocks_shape(op: DistOp, x: DistType, dim: int, count: int) -> tuple[int, int, int]:
    """Return the shape with ``count`` blocks of a dimension in the middle.

    In front are all other blocks of the dimension, and the dimensions before it.
    """
    major = tuple(axis for axis in x.dims[dim].axes if axis not in op.over)
    front = math.prod(x.shape[:dim]) * mesh_of(op).group_size(major)
    return front, count, x.elements // front // count


def _shift_alone(op: DistOp, operands: Sequence[SSAValue]) -> list[DistOp]:
    x, by = dist_type(op.input), op.integer("distance")
    count = mesh_of(op).group_size(op.over)
    dim = x.dim_of(op.over[0])
    assert dim is not None
    alone = _Alone()
    blocks = alone.shaped(operands[0], _blocks_shape(op, x, dim, count))
    if "open" in op.properties:
        moved = alone.cut(blocks, -by, by)
    elif by % count:
        last = by % count
        moved = alone.join([alone.cut(blocks, count - last, 0), alone.cut(blocks, 0, last)])
    else:
        moved = blocks
    alone.shaped(moved, x.shape)
    return alone.ops


def _part_alone(op: DistOp, operands: Sequence[SSAValue]) -> list[DistOp]:
    x, at, dim = dist_type(op.input), op.integer("coordinate"), op.integer("dim")
    alone = _Alone()
    if any(axis.weights for axis in mesh_of(op).axes):
        front, size = math.prod(x.shape[:dim]), x.shape[dim]
        rows = alone.shaped(operands[0], (front, size, x.elements // front // size))
        cuts = _piece_cuts(op, at)
        pieces = alone.join([alone.cut(rows, begin, size - end) for begin, end in cuts])
        alone.shaped(pieces, dist_type(op.result).shape)
        return alone.ops
    count = mesh_of(op).group_size(op.over)
    blocks = alone.shaped(operands[0], _blocks_shape(op, x, dim, count))
    alone.shaped(alone.cut(blocks, at, count - 1 - at), dist_type(op.result).shape)
    return alone.ops


def _piece_cuts(op: DistOp, at: int) -> list[tuple[int, int]]:
    """Return where the blocks of a piece begin and end in a dimension, one for each coordinate on
    the other sub-axes that shard it, in order.

    Args:
        at: the coordinate of the piece.
    """
    mesh, piece = mesh_of(op), op.result if op.mnemonic == "part" else op.operands[at]
    sharded = op.operands[0] if op.mnemonic == "part" else op.result
    dim = op.integer("dim")
    major = dist_type(piece).dims[dim].axes
    own = coordinates_of(mesh, op.over, at)
    cuts: list[tuple[int, int]] = []
    for index in range(mesh.group_size(major)):
        coordinates = [*own, *coordinates_of(mesh, major, index)]
        rank = sum(mesh.by_name[axis].stride * n for axis, n in coordinates)
        cuts.append(interval(mesh, rank, dist_type(sharded).dims[dim]))
    return cuts


def _claim_alone(op: DistOp, operands: Sequence[SSAValue]) -> list[DistOp]:
    raise DiagnosticError.at(
        op, "what this gives is a claim: there is no program on one device that computes it"
    )


def _terms_alone(op: DistOp, operands: Sequence[SSAValue]) -> list[DistOp]:
    """Return the terms of a whole: itself and zeros, or of an average, itself everywhere."""
    x, alone = dist_type(op.input), _Alone()
    count = mesh_of(op).group_size(op.over)
    front = math.prod(x.shape[: op.integer("dim")])
    row = alone.shaped(operands[0], (front, 1, x.elements // front))
    if x.reduction is Reduction.AVG:
        rows = alone.join([row] * count)
    else:
        rows = alone.cut(row, 0, 1 - count)
    alone.shaped(rows, dist_type(op.result).shape)
    return alone.ops


def _assemble_alone(op: DistOp, operands: Sequence[SSAValue]) -> list[DistOp]:
    alone, dim, mesh = _Alone(), op.integer("dim"), mesh_of(op)
    if any(axis.weights for axis in mesh.axes):
        return _assembled_blocks(op, operands)
    shape = _blocks_shape(op, dist_type(op.input), dim, 1)
    blocks = alone.join([alone.shaped(piece, shape) for piece in operands])
    alone.shaped(blocks, dist_type(op.result).shape)
    return alone.ops


def _assembled_blocks(op: DistOp, operands: Sequence[SSAValue]) -> list[DistOp]:
    """Return the assembly of pieces from blocks of any sizes."""
    alone, dim = _Alone(), op.integer("dim")
    blocks: dict[int, SSAValue] = {}
    for at, piece in enumerate(operands):
        shape = dist_type(piece).shape
        front, size, done = math.prod(shape[:dim]), shape[dim], 0
        rows = alone.shaped(piece, (front, size, math.prod(shape[dim + 1 :])))
        for begin, end in _piece_cuts(op, at):
            blocks[begin] = alone.cut(rows, done, size - done - (end - begin))
            done += end - begin
    whole = alone.join([blocks[begin] for begin in sorted(blocks)])
    alone.shaped(whole, dist_type(op.result).shape)
    return alone.ops


# ---------------------------------------------------------------------------------------------
# Local steps
# ---------------------------------------------------------------------------------------------


def _slice(op: DistOp, args: Args) -> Buffers:
    dim = op.integer("dim")
    return collectives.slice_blocks(mesh_of(op), args[0], op.over, dim, _held(op, dim))


def _keep_root(op: DistOp, args: Args) -> Buffers:
    return collectives.keep_root(mesh_of(op), args[0], op.over)


def _keep(op: DistOp, args: Args) -> Buffers:
    return collectives.keep(mesh_of(op), args[0], dict(op.place("place")))


def _part(op: DistOp, args: Args) -> Buffers:
    mesh = mesh_of(op)
    at = dict(coordinates_of(mesh, op.over, op.integer("coordinate")))
    return collectives.keep(mesh, args[0], at)


def _assemble(op: DistOp, args: Args) -> Buffers:
    return collectives.assemble(mesh_of(op), args, op.over)


def _mask(op: DistOp, args: Args) -> Buffers:
    return collectives.mask(mesh_of(op), args[0], op.over, Reduction(op.word("reduction")))


def _transpose(op: DistOp, args: Args) -> Buffers:
    return _local(args[0], lambda x: np.transpose(x, op.sizes("order")))


def _pad(op: DistOp, args: Args) -> Buffers:
    dim, low, high = (op.integer(name) for name in ("dim", "low", "high"))
    return _local(args[0], lambda x: _padded(x, dim, low, high, op.number("value")))


def _scale(op: DistOp, args: Args) -> Buffers:
    return _local(args[0], lambda x: x * x.dtype.type(op.number("factor")))


def _cast(op: DistOp, args: Args) -> Buffers:
    return _local(args[0], lambda x: x.astype(NUMPY[DType(op.word("dtype"))]))


def _add(op: DistOp, args: Args) -> Buffers:
    return _together(args, lambda parts: parts[0] + parts[1])


def _concat(op: DistOp, args: Args) -> Buffers:
    return _together(args, lambda parts: np.concatenate(parts, axis=op.integer("dim")))


def _on_arrays(function: nn.Function, op: DistOp, args: Args) -> Buffers:
    return _together(args, lambda parts: function(op, parts))


def _blocks_of(op: DistOp, args: Args) -> Buffers:
    """Return the blocks of a tensor that devices make by themselves, where its type is held."""
    mesh, to = mesh_of(op), op.layout("to")
    whole, at = nn.FUNCTIONS[op.mnemonic](op, []), dict(to.place)
    return _cut_out(op, collectives.keep(mesh, [whole] * mesh.devices, at))


def _uniform(op: DistOp, args: Args) -> Buffers:
    """Return the block of each device, of the tensor that its seed gives."""
    return _cut_out(op, _on_arrays(nn.FUNCTIONS[op.mnemonic], op, args))


def _cut_out(op: DistOp, wholes: Buffers) -> Buffers:
    """Return each device's block of a tensor, by the type that an operation names."""
    mesh, to = mesh_of(op), op.layout("to")
    return [
        None if x is None else x[slices_of(mesh, rank, to.dims)].copy()
        for rank, x in enumerate(wholes)
    ]


def _broadcast_to(op: DistOp, args: Args) -> Buffers:
    mesh, dims = mesh_of(op), op.layout("to").dims
    return [
        None if x is None else nn.broadcast(x, block_shape(mesh, rank, dims))
        for rank, x in enumerate(args[0])
    ]


def _intervals(op: DistOp, cut: Dim) -> list[tuple[int, int]]:
    """Return where the block of each device begins and ends in a dimension."""
    mesh = mesh_of(op)
    return [interval(mesh, rank, cut) for rank in range(mesh.devices)]


def _take(take: Callable[..., Array], op: DistOp, args: Args) -> Buffers:
    dim = op.integer("dim")
    own = _intervals(op, dist_type(op.input).dims[dim])
    return _by_rank(args, lambda rank, xs: take(xs[0], xs[1], dim, own[rank][0]))


def _take_transpose(take: Callable[..., Array], op: DistOp, args: Args) -> Buffers:
    dim = op.integer("dim")
    own = _intervals(op, op.layout("to").dims[dim])
    return _by_rank(args, lambda rank, xs: take(xs[0], xs[1], dim, *own[rank]))


def _grouped_matmul(op: DistOp, args: Args) -> Buffers:
    turned = "transposed" in op.properties
    own = _intervals(op, dist_type(op.operands[1]).dims[0])
    return _by_rank(
        args,
        lambda rank, xs: selections.grouped_matmul(xs[0], xs[1], xs[2], turned, own[rank][0]),
    )


def _grouped_matmul_transpose(op: DistOp, args: Args) -> Buffers:
    own = _intervals(op, op.layout("to").dims[0])
    return _by_rank(
        args, lambda rank, xs: selections.grouped_matmul_transpose(xs[0], xs[1], xs[2], *own[rank])
    )


def _one_hot(op: DistOp, args: Args) -> Buffers:
    to = op.layout("to")
    own = _intervals(op, to.dims[-1])
    return _by_rank(args, lambda rank, xs: selections.one_hot(xs[0], *own[rank], NUMPY[to.dtype]))


def _unchanged(op: DistOp, args: Args) -> Buffers:
    return args[0]


MEANINGS: OperationTable[Meaning] = OperationTable(
    "MEANINGS",
    __name__,
    {
        "all_reduce": Meaning(_all_reduce),
        "reduce": Meaning(_reduce),
        "broadcast": Meaning(_broadcast),
        "reduce_scatter": Meaning(_reduce_scatter),
        "all_gather": Meaning(_all_gather),
        "scatter": Meaning(_scatter),
        "gather": Meaning(_gather),
        "all_to_all": Meaning(_all_to_all),
        "send": Meaning(_send),
        "shift": Meaning(_shift, Effect.ORDER, alone=_shift_alone),
        "permute": Meaning(_permute),
        "redistribute": Meaning(_redistribute),
        "slice": Meaning(_slice),
        "keep_root": Meaning(_keep_root),
        "keep": Meaning(_keep),
        "part": Meaning(_part, Effect.ORDER, alone=_part_alone),
        "assemble": Meaning(_assemble, Effect.VALUES, alone=_assemble_alone),
        "mask": Meaning(_mask),
        "compute": Meaning(_unchanged),
        "barrier": Meaning(_unchanged),
        "reinterpret": Meaning(_unchanged, Effect.VALUES, alone=_claim_alone),
        "terms": Meaning(_as_shape, Effect.ORDER, alone=_terms_alone),
        "split": Meaning(_as_shape, Effect.ORDER),
        "merge": Meaning(_as_shape, Effect.ORDER),
        "reshape": Meaning(_as_shape, Effect.ORDER),
        "transpose": Meaning(_transpose, Effect.ORDER),
        "pad": Meaning(_pad, Effect.VALUES),
        "scale": Meaning(_scale, Effect.VALUES),
        "cast": Meaning(_cast, Effect.VALUES),
        "add": Meaning(_add, Effect.VALUES),
        "concat": Meaning(_concat, Effect.VALUES),
        "take": Meaning(partial(_take, selections.take), Effect.VALUES),
        "take_transpose": Meaning(
            partial(_take_transpose, selections.take_transpose), Effect.VALUES
        ),
        "take_along_dim": Meaning(partial(_take, selections.take_along), Effect.VALUES),
        "take_along_dim_transpose": Meaning(
            partial(_take_transpose, selections.take_along_transpose), Effect.VALUES
        ),
        "grouped_matmul": Meaning(_grouped_matmul, Effect.VALUES),
        "grouped_matmul_transpose": Meaning(_grouped_matmul_transpose, Effect.VALUES),
        "one_hot": Meaning(_one_hot, Effect.VALUES),
        "constant": Meaning(_blocks_of, Effect.VALUES),
        "iota": Meaning(_blocks_of, Effect.VALUES),
        "uniform": Meaning(_uniform, Effect.VALUES),
        "broadcast_to": Meaning(_broadcast_to, Effect.VALUES),
    },
    row="its Meaning: what it does to the buffers of all devices; of a model operation, add the "
    "function of arrays to FUNCTIONS (collir.semantics.reference.nn)",
)
"""The meaning of every step that is not one function of arrays, by its name."""


def meaning_of(name: str) -> Meaning:
    """Return the meaning of a step; that of an operation of a model is its function of arrays.

    Raises:
        MissingRowError: the step has neither.
    """
    if name in nn.FUNCTIONS and name not in MEANINGS:
        return Meaning(partial(_on_arrays, nn.FUNCTIONS[name]), Effect.VALUES)
    return MEANINGS[name]
