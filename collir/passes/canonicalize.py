"""Fold operations that do nothing, and drop operations whose results nothing uses.

What: xDSL's ``canonicalize`` over our operations, with source positions kept. A reshape, cast or
permute to the type that its operand has already, a transpose in the order of its operand, a pad by
nothing and a scale by 1 fold into their operand. Operations whose results are unused are dropped.

Why: other passes may build steps without checking whether they are trivial.

When not: a collective is never dropped or merged on some ranks only. Every rank runs the same
program, so a step whose result is unused is unused on all of them.

    %1 = reshape %x to [4, 8]        // %x is f32[4, 8]
    %2 = all_reduce %1 over data
becomes
    %2 = all_reduce %x over data

Cost: never more than before, as no step is added. If a folded step wrote to its place in a result
or a buffer, its operand is copied there instead.
"""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import GreedyRewritePatternApplier, PatternRewriteWalker
from xdsl.transforms.canonicalize import CanonicalizationRewritePattern
from xdsl.transforms.dead_code_elimination import region_dce

from collir.passes.locations import keep_locations


class CanonicalizePass(ModulePass):
    """Fold operations that do nothing, and drop operations whose results nothing uses."""

    name = "canonicalize"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        patterns = GreedyRewritePatternApplier(
            [CanonicalizationRewritePattern()], ctx=ctx, folding_enabled=True
        )
        PatternRewriteWalker(
            patterns, post_walk_func=region_dce, listener=keep_locations()
        ).rewrite_module(op)
