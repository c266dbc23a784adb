"""Runs functions on the numpy buffers of every device, on xDSL's interpreter."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, impl, register_impls
from xdsl.interpreters.func import FuncFunctions
from xdsl.ir import SSAValue

from collir.dialects import coll
from collir.dialects.coll import dist_type
from collir.dialects.machine import mesh_of
from collir.layout import DType, Reduction
from collir.semantics import collectives
from collir.semantics.buffers import NUMPY
from collir.semantics.collectives import Array, Buffers, ExecutionError

Args = tuple[Any, ...]


def execute(module: ModuleOp, function: FuncOp, arguments: Sequence[Buffers]) -> list[Buffers]:
    """The results of a function on the buffers of all devices.

    Args:
        arguments: for every argument, one array (or None) per rank, of the local shape and dtype.

    Raises:
        ExecutionError: a step that cannot be carried out; does not happen to well-typed programs.
    """
    interpreter = Interpreter(module)
    interpreter.register_implementations(CollFunctions())
    interpreter.register_implementations(FuncFunctions())
    with np.errstate(all="ignore"):
        return list(interpreter.call_op(function, tuple(arguments)))


_ARRAY = 200
"""Bytes of an array beside its elements."""


def memory_needed(function: FuncOp) -> int:
    """An upper bound of the bytes that ``execute`` holds at once, over all devices.

    The interpreter keeps every value until the function returns; making the inputs takes as much
    as the arguments once more.
    """
    mesh = mesh_of(function)
    values = [*function.args, *function.args, *(r for op in function.body.ops for r in op.results)]
    return sum((dist_type(value).local_bytes(mesh) + _ARRAY) * mesh.devices for value in values)


def _reduction(value: SSAValue) -> Reduction:
    reduction = dist_type(value).reduction
    if reduction is None:
        raise ExecutionError("there is nothing partial to reduce")
    return reduction


def _local(xs: Buffers, function: Callable[[Array], Array]) -> tuple[Buffers]:
    """A function of one array on every device that holds one."""
    return ([None if x is None else function(x) for x in xs],)


def _together(operands: Args, function: Callable[[list[Array]], Array]) -> Buffers:
    """A function of the arrays of several operands, on every device that holds all of them."""
    out: Buffers = []
    for rank, parts in enumerate(zip(*operands, strict=True)):
        held = [part for part in parts if part is not None]
        if held and len(held) < len(parts):
            raise ExecutionError(f"rank {rank} holds only some of the operands")
        out.append(function(held) if held else None)
    return out


def _as_shape(op: coll.UnaryOp, xs: Buffers) -> tuple[Buffers]:
    """The same memory under the local shape of the result."""
    shape = dist_type(op.result).local_shape(mesh_of(op))
    return _local(xs, lambda x: x.reshape(shape))


def _padded(x: Array, dim: int, low: int, high: int, value: float) -> Array:
    widths = [(0, 0)] * x.ndim
    widths[dim] = (max(low, 0), max(high, 0))
    grown = np.pad(x, widths, constant_values=x.dtype.type(value))
    cut = [slice(None)] * x.ndim
    cut[dim] = slice(max(-low, 0), grown.shape[dim] - max(-high, 0))
    return grown[tuple(cut)]


@register_impls
class CollFunctions(InterpreterFunctions):
    """The coll dialect on numpy: a value is a list with one array (or None) per rank."""

    @impl(coll.AllReduceOp)
    def all_reduce(self, _: Interpreter, op: coll.AllReduceOp, args: Args) -> Args:
        return (collectives.all_reduce(mesh_of(op), args[0], op.axes.data, _reduction(op.input)),)

    @impl(coll.ReduceOp)
    def reduce(self, _: Interpreter, op: coll.ReduceOp, args: Args) -> Args:
        return (collectives.reduce(mesh_of(op), args[0], op.axes.data, _reduction(op.input)),)

    @impl(coll.BroadcastOp)
    def broadcast(self, _: Interpreter, op: coll.BroadcastOp, args: Args) -> Args:
        return (collectives.broadcast(mesh_of(op), args[0], op.axes.data),)

    @impl(coll.ReduceScatterOp)
    def reduce_scatter(self, _: Interpreter, op: coll.ReduceScatterOp, args: Args) -> Args:
        return (
            collectives.reduce_scatter(
                mesh_of(op), args[0], op.axes.data, op.dim.value.data, _reduction(op.input)
            ),
        )

    @impl(coll.AllGatherOp)
    def all_gather(self, _: Interpreter, op: coll.AllGatherOp, args: Args) -> Args:
        return (collectives.all_gather(mesh_of(op), args[0], op.axes.data, op.dim.value.data),)

    @impl(coll.ScatterOp)
    def scatter(self, _: Interpreter, op: coll.ScatterOp, args: Args) -> Args:
        return (collectives.scatter(mesh_of(op), args[0], op.axes.data, op.dim.value.data),)

    @impl(coll.GatherOp)
    def gather(self, _: Interpreter, op: coll.GatherOp, args: Args) -> Args:
        return (collectives.gather(mesh_of(op), args[0], op.axes.data, op.dim.value.data),)

    @impl(coll.AllToAllOp)
    def all_to_all(self, _: Interpreter, op: coll.AllToAllOp, args: Args) -> Args:
        source, target = op.source.value.data, op.target.value.data
        return (collectives.all_to_all(mesh_of(op), args[0], op.axes.data, source, target),)

    @impl(coll.PermuteOp)
    def permute(self, _: Interpreter, op: coll.PermuteOp, args: Args) -> Args:
        return (collectives.permute(mesh_of(op), args[0], dist_type(op.input), op.to.data),)

    @impl(coll.RedistributeOp)
    def redistribute(self, _: Interpreter, op: coll.RedistributeOp, args: Args) -> Args:
        return (collectives.redistribute(mesh_of(op), args[0], dist_type(op.input), op.to.data),)

    @impl(coll.SliceOp)
    def slice(self, _: Interpreter, op: coll.SliceOp, args: Args) -> Args:
        return (collectives.slice_blocks(mesh_of(op), args[0], op.axes.data, op.dim.value.data),)

    @impl(coll.KeepRootOp)
    def keep_root(self, _: Interpreter, op: coll.KeepRootOp, args: Args) -> Args:
        return (collectives.keep_root(mesh_of(op), args[0], op.axes.data),)

    @impl(coll.MaskOp)
    def mask(self, _: Interpreter, op: coll.MaskOp, args: Args) -> Args:
        reduction = Reduction(op.reduction.data)
        return (collectives.mask(mesh_of(op), args[0], op.axes.data, reduction),)

    @impl(coll.SplitOp)
    def split(self, _: Interpreter, op: coll.SplitOp, args: Args) -> Args:
        return _as_shape(op, args[0])

    @impl(coll.MergeOp)
    def merge(self, _: Interpreter, op: coll.MergeOp, args: Args) -> Args:
        return _as_shape(op, args[0])

    @impl(coll.ReshapeOp)
    def reshape(self, _: Interpreter, op: coll.ReshapeOp, args: Args) -> Args:
        return _as_shape(op, args[0])

    @impl(coll.TransposeOp)
    def transpose(self, _: Interpreter, op: coll.TransposeOp, args: Args) -> Args:
        return _local(args[0], lambda x: np.transpose(x, op.order.data))

    @impl(coll.PadOp)
    def pad(self, _: Interpreter, op: coll.PadOp, args: Args) -> Args:
        dim, low, high = (a.value.data for a in (op.dim, op.low, op.high))
        return _local(args[0], lambda x: _padded(x, dim, low, high, op.value.data))

    @impl(coll.ScaleOp)
    def scale(self, _: Interpreter, op: coll.ScaleOp, args: Args) -> Args:
        return _local(args[0], lambda x: x * x.dtype.type(op.factor.data))

    @impl(coll.CastOp)
    def cast(self, _: Interpreter, op: coll.CastOp, args: Args) -> Args:
        return _local(args[0], lambda x: x.astype(NUMPY[DType(op.dtype.data)]))

    @impl(coll.AddOp)
    def add(self, _: Interpreter, op: coll.AddOp, args: Args) -> Args:
        return (_together(args, lambda parts: parts[0] + parts[1]),)

    @impl(coll.ComputeOp)
    def compute(self, _: Interpreter, op: coll.ComputeOp, args: Args) -> Args:
        return (args[0],)

    @impl(coll.ConcatOp)
    def concat(self, _: Interpreter, op: coll.ConcatOp, args: Args) -> Args:
        dim = op.dim.value.data
        return (_together(args, lambda parts: np.concatenate(parts, axis=dim)),)
