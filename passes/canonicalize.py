"""Fold what does nothing, and drop what nothing uses.

What: xDSL's ``canonicalize`` over our operations, with source positions kept. A reshape, cast or
permute to the type a value has already, a transpose in the old order, a pad by nothing and a
scale by 1 fold into their operand; operations whose results are unused go.

Why: passes may then build steps without looking whether they are trivial.

When not: it never drops or merges a collective that some ranks still run. Every rank runs the same
program, so a step whose result is unused is unused on all of them.

    %1 = reshape %x to [4, 8]        // %x is f32[4, 8]
    %2 = all_reduce %1 over data
becomes
    %2 = all_reduce %x over data

Cost: never more than before; no step is added. What a step that folds had written to its place in a
result or a buffer is copied there instead.
"""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import GreedyRewritePatternApplier, PatternRewriteWalker
from xdsl.transforms.canonicalize import CanonicalizationRewritePattern
from xdsl.transforms.dead_code_elimination import region_dce

from collir.passes.locations import keep_locations


class CanonicalizePass(ModulePass):
    """Fold what does nothing, and drop what nothing uses."""

    name = "canonicalize"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        patterns = GreedyRewritePatternApplier(
            [CanonicalizationRewritePattern()], ctx=ctx, folding_enabled=True
        )
        PatternRewriteWalker(
            patterns, post_walk_func=region_dce, listener=keep_locations()
        ).rewrite_module(op)
