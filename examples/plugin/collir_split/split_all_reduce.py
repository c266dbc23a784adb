"""Split large all_reduces into a reduce_scatter and an all_gather over the same sub-axes.

What: an all_reduce of at least ``least`` bytes on each device becomes two steps, with dimension 0
cut into a block for each device of the group in between.

Why: what stands between the two steps then works on a block, if another pass moves it there.

When not: dimension 0 does not divide; the step says how it runs (``using``, ``async``).

    %r = all_reduce %g over data

becomes

    %0 = reduce_scatter %g over data dim 0
    %r = all_gather %0 over data dim 0

Cost: as many bytes as before, and a step more.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import LayoutError
from collir.layout.coll import ALL_REDUCE
from collir.passes.locations import keep_locations


@dataclass(frozen=True)
class SplitAllReduce(RewritePattern):
    """An all_reduce of at least ``least`` bytes, of which nothing says how it runs."""

    least: int

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, DistOp) or op.kind is not ALL_REDUCE:
            return
        mesh = mesh_of(op)
        if dist_type(op.input).local_bytes(mesh) < self.least:
            return
        if any(one.name in op.properties for one in op.kind.parameters if one.hint):
            return
        where = {"axes": op.properties["axes"], "dim": IntegerAttr(0, i64)}
        try:
            scattered = OPERATIONS["reduce_scatter"].make(mesh, op.input, **where)
        except LayoutError:  # dimension 0 does not divide, or there is none
            return
        gathered = OPERATIONS["all_gather"].make(mesh, scattered.result, **where)
        rewriter.insert(scattered)
        rewriter.replace(op, gathered)


@dataclass(frozen=True)
class SplitAllReducePass(ModulePass):
    """Split large all_reduces into a reduce_scatter and an all_gather."""

    name = "split-all-reduce"

    least: int = 1 << 20
    """The least number of bytes on each device."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        pattern = SplitAllReduce(self.least)
        PatternRewriteWalker(pattern, listener=keep_locations()).rewrite_module(op)
