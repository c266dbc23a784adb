"""A pass as an extension: a reduce and the broadcast of its result become one reduce_broadcast.

In collir itself a pass is a file of passes/, with a line in passes/table.py.
"""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.layout.coll import BROADCAST, REDUCE
from collir.passes.locations import keep_locations
from collir.passes.table import PASSES


class JoinReduceAndBroadcast(RewritePattern):
    """Join a broadcast with the reduce over the same sub-axes whose result only it uses."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, DistOp) or op.kind is not BROADCAST:
            return
        reduction = op.input.owner
        if not isinstance(reduction, DistOp) or reduction.kind is not REDUCE:
            return
        if reduction.over != op.over or not op.input.has_one_use():
            return
        joined = OPERATIONS["reduce_broadcast"].make(
            mesh_of(op), reduction.input, axes=op.properties["axes"]
        )
        rewriter.replace(op, joined)
        rewriter.erase(reduction)


class JoinReductionsPass(ModulePass):
    """Join a reduce and the broadcast of its result into one step."""

    name = "join-reductions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        patterns = PatternRewriteWalker(JoinReduceAndBroadcast(), listener=keep_locations())
        patterns.rewrite_module(op)


PASSES["join-reductions"] = lambda: JoinReductionsPass
