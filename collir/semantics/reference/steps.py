"""The effect of every step on the buffers of all devices, and on the logical tensor.

The effects are written from the definitions of the operations, without the typing rules and the
table of steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DType, Reduction
from collir.semantics.reference import collectives
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array, Buffers, ExecutionError

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
    """The effect of a step on the buffers of all devices (``run``) and on the tensor."""

    run: Callable[[DistOp, Args], Buffers]
    effect: Effect = Effect.NOTHING


def _reduction(value: SSAValue) -> Reduction:
    reduction = dist_type(value).reduction
    if reduction is None:
        raise ExecutionError("there is nothing partial to reduce")
    return reduction


def _local(xs: Buffers, function: Callable[[Array], Array]) -> Buffers:
    """Return the buffers with a function applied on every device that holds an array."""
    return [None if x is None else function(x) for x in xs]


def _together(operands: Args, function: Callable[[list[Array]], Array]) -> Buffers:
    """Return a function of the operands' arrays on every device that holds all of them."""
    out: Buffers = []
    for rank, parts in enumerate(zip(*operands, strict=True)):
        held = [part for part in parts if part is not None]
        if held and len(held) < len(parts):
            raise ExecutionError(f"rank {rank} holds only some of the operands")
        out.append(function(held) if held else None)
    return out


def _as_shape(op: DistOp, args: Args) -> Buffers:
    """Return the same memory under the local shape of the result."""
    shape = dist_type(op.result).local_shape(mesh_of(op))
    return _local(args[0], lambda x: x.reshape(shape))


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
    return collectives.broadcast(mesh_of(op), args[0], op.over)


def _reduce_scatter(op: DistOp, args: Args) -> Buffers:
    dim, reduction = op.integer("dim"), _reduction(op.input)
    return collectives.reduce_scatter(mesh_of(op), args[0], op.over, dim, reduction)


def _all_gather(op: DistOp, args: Args) -> Buffers:
    return collectives.all_gather(mesh_of(op), args[0], op.over, op.integer("dim"))


def _scatter(op: DistOp, args: Args) -> Buffers:
    return collectives.scatter(mesh_of(op), args[0], op.over, op.integer("dim"))


def _gather(op: DistOp, args: Args) -> Buffers:
    return collectives.gather(mesh_of(op), args[0], op.over, op.integer("dim"))


def _all_to_all(op: DistOp, args: Args) -> Buffers:
    source, target = op.integer("source"), op.integer("target")
    return collectives.all_to_all(mesh_of(op), args[0], op.over, source, target)


def _permute(op: DistOp, args: Args) -> Buffers:
    return collectives.permute(mesh_of(op), args[0], dist_type(op.input), op.layout("to"))


def _redistribute(op: DistOp, args: Args) -> Buffers:
    return collectives.redistribute(mesh_of(op), args[0], dist_type(op.input), op.layout("to"))


# ---------------------------------------------------------------------------------------------
# Local steps
# ---------------------------------------------------------------------------------------------


def _slice(op: DistOp, args: Args) -> Buffers:
    return collectives.slice_blocks(mesh_of(op), args[0], op.over, op.integer("dim"))


def _keep_root(op: DistOp, args: Args) -> Buffers:
    return collectives.keep_root(mesh_of(op), args[0], op.over)


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


def _compute(op: DistOp, args: Args) -> Buffers:
    return args[0]


def _unchanged(op: DistOp, args: Args) -> Buffers:
    return args[0]


MEANINGS: dict[str, Meaning] = {
    "all_reduce": Meaning(_all_reduce),
    "reduce": Meaning(_reduce),
    "broadcast": Meaning(_broadcast),
    "reduce_scatter": Meaning(_reduce_scatter),
    "all_gather": Meaning(_all_gather),
    "scatter": Meaning(_scatter),
    "gather": Meaning(_gather),
    "all_to_all": Meaning(_all_to_all),
    "permute": Meaning(_permute),
    "redistribute": Meaning(_redistribute),
    "slice": Meaning(_slice),
    "keep_root": Meaning(_keep_root),
    "mask": Meaning(_mask),
    "compute": Meaning(_compute),
    "barrier": Meaning(_unchanged),
    "split": Meaning(_as_shape, Effect.ORDER),
    "merge": Meaning(_as_shape, Effect.ORDER),
    "reshape": Meaning(_as_shape, Effect.ORDER),
    "transpose": Meaning(_transpose, Effect.ORDER),
    "pad": Meaning(_pad, Effect.VALUES),
    "scale": Meaning(_scale, Effect.VALUES),
    "cast": Meaning(_cast, Effect.VALUES),
    "add": Meaning(_add, Effect.VALUES),
    "concat": Meaning(_concat, Effect.VALUES),
}
"""The meaning of every step, by its name."""
