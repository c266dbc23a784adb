"""Ways to carry out an all_reduce over several levels: the strategies of ``decompose``."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import (
    PatternRewriter,
    PatternRewriterListener,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)
from xdsl.rewriter import InsertPoint

from collir.dialects import coll
from collir.dialects.coll import AxesAttr, SizesAttr, dist_type
from collir.dialects.machine import NumberAttr, mesh_of
from collir.layout import DistType, LayoutError, Mesh
from collir.syntax.diagnostics import DiagnosticError

Axes = tuple[str, ...]
Strategy = Literal["rs-ar-ag", "reduce-ar-bcast", "ar-per-level", "flat"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
"""The names of the strategies."""


def axes_by_level(mesh: Mesh, axes: Axes) -> list[Axes]:
    """Sub-axes grouped by their level, outermost first; the order inside a level is kept."""
    levels = [level.name for level in mesh.machine.levels]
    groups = [tuple(a for a in axes if mesh.by_name[a].level == level) for level in levels]
    return [group for group in groups if group]


@dataclass
class Steps:
    """A chain of operations on one value, typed as it grows."""

    mesh: Mesh
    value: SSAValue
    ops: list[Operation]

    def then(self, op: type[coll.CollOp], **properties: Attribute) -> None:
        """One more step on the value."""
        step = op.make(self.mesh, self.value, **properties)
        self.ops.append(step)
        self.value = step.result

    @property
    def type(self) -> DistType:
        """The type of the value now."""
        return dist_type(self.value)


def _int(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def _all_reduce_each(steps: Steps, levels: list[Axes]) -> None:
    for axes in reversed(levels):
        steps.then(coll.AllReduceOp, axes=AxesAttr(axes))


def _reduce_and_broadcast(steps: Steps, levels: list[Axes]) -> None:
    outermost, *inner = levels
    for axes in reversed(inner):
        steps.then(coll.ReduceOp, axes=AxesAttr(axes))
    steps.then(coll.AllReduceOp, axes=AxesAttr(outermost))
    for axes in inner:
        steps.then(coll.BroadcastOp, axes=AxesAttr(axes))


def _scatter_and_gather(steps: Steps, levels: list[Axes]) -> None:
    outermost, *inner = levels
    group = math.prod(steps.mesh.group_size(axes) for axes in inner)
    local = steps.type.local_shape(steps.mesh)
    dim = next((d for d, size in enumerate(local) if size % group == 0), None)
    if dim is not None:
        _scatter_and_gather_dim(steps, outermost, inner, dim)
        return
    original = steps.type
    flat_dim = _flatten_local(steps)
    missing = -steps.type.dims[flat_dim].size % group
    _pad(steps, flat_dim, missing)
    _scatter_and_gather_dim(steps, outermost, inner, flat_dim)
    _pad(steps, flat_dim, -missing)
    _unflatten_local(steps, original)


def _scatter_and_gather_dim(steps: Steps, outermost: Axes, inner: list[Axes], dim: int) -> None:
    for axes in reversed(inner):
        steps.then(coll.ReduceScatterOp, axes=AxesAttr(axes), dim=_int(dim))
    steps.then(coll.AllReduceOp, axes=AxesAttr(outermost))
    for axes in inner:
        steps.then(coll.AllGatherOp, axes=AxesAttr(axes), dim=_int(dim))


def _pad(steps: Steps, dim: int, high: int) -> None:
    if high:
        steps.then(coll.PadOp, dim=_int(dim), low=_int(0), high=_int(high), value=NumberAttr(0.0))


def _flatten_local(steps: Steps) -> int:
    """Views a value as [shards..., everything local]; returns the index of the local dimension.

    Every sharded dimension is split into its shards and its local part, the shards are moved to
    the front, and the local parts merged into one dimension.
    """
    sharded = [d for d, dim in enumerate(steps.type.dims) if dim.axes]
    for done, d in enumerate(sharded):
        dim = steps.type.dims[d + done]
        shards = steps.mesh.group_size(dim.axes)
        sizes = SizesAttr((shards, dim.size // shards))
        steps.then(coll.SplitOp, dim=_int(d + done), sizes=sizes)
    if (order := _shards_first(sharded, len(steps.type.dims))) != sorted(order):
        steps.then(coll.TransposeOp, order=SizesAttr(tuple(order)))
    shards = steps.type.shape[: len(sharded)]
    local = math.prod(steps.type.shape[len(sharded) :])
    if steps.type.shape != (*shards, local):
        steps.then(coll.ReshapeOp, shape=SizesAttr((*shards, local)))
    return len(sharded)


def _unflatten_local(steps: Steps, original: DistType) -> None:
    """Undoes ``_flatten_local``: back to the shape of ``original``."""
    sharded = [d for d, dim in enumerate(original.dims) if dim.axes]
    local = original.local_shape(steps.mesh)
    shape = (*steps.type.shape[: len(sharded)], *local)
    if steps.type.shape != shape:
        steps.then(coll.ReshapeOp, shape=SizesAttr(shape))
    order = _shards_first(sharded, len(shape))
    if order != sorted(order):
        back = tuple(order.index(i) for i in range(len(order)))
        steps.then(coll.TransposeOp, order=SizesAttr(back))
    for d in sharded:
        steps.then(coll.MergeOp, dim=_int(d))


def _shards_first(sharded: list[int], rank: int) -> list[int]:
    """The order that moves the shards of split dimensions to the front.

    ``sharded`` counts dimensions before the split; the i-th of them has its shards at i more.
    """
    fronts = [d + i for i, d in enumerate(sharded)]
    return fronts + [i for i in range(rank) if i not in fronts]


_BUILDERS = {
    "rs-ar-ag": _scatter_and_gather,
    "reduce-ar-bcast": _reduce_and_broadcast,
    "ar-per-level": _all_reduce_each,
}


@dataclass
class DecomposeAllReducePattern(RewritePattern):
    """An all_reduce over several levels as steps over one level each."""

    strategy: str

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: coll.AllReduceOp, rewriter: PatternRewriter) -> None:
        mesh = mesh_of(op)
        if not mesh.placed:
            return  # without levels there is no hierarchy
        levels = axes_by_level(mesh, op.axes.data)
        if len(levels) < 2:
            return
        steps = Steps(mesh, op.input, [])
        try:
            _BUILDERS[self.strategy](steps, levels)
        except LayoutError as error:  # a tensor so large that no padding fits into 2^63 bytes
            message = f"this all_reduce cannot be decomposed: {error.text(op.operand_names())}"
            raise DiagnosticError.at(op, message) from error
        rewriter.insert(steps.ops, InsertPoint.before(op))
        rewriter.replace(op, [], [steps.value])


def decompose(
    module: ModuleOp, strategy: str, listener: PatternRewriterListener | None = None
) -> None:
    """Rewrites every all_reduce over several levels by a strategy, in place.

    Raises:
        DiagnosticError: a tensor so large that no padding fits.
    """
    if strategy != "flat":
        walker = PatternRewriteWalker(
            DecomposeAllReducePattern(strategy), listener=listener or PatternRewriterListener()
        )
        walker.rewrite_module(module)
