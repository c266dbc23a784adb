"""Replace composite operations of models by steps that do the same.

What: ``softmax``, ``log_softmax``, ``cross_entropy``, ``layer_norm``, ``rms_norm``, ``silu`` and
``gelu`` become maps and reductions over dimensions.

Why: the composites need the whole of some dimensions on every device, and their steps do not. Where
a dimension was gathered for an operation whose result lacks it, or is cut again, the steps take the
blocks that were gathered. They send a maximum and a sum for each row, which is how a vocabulary is
sharded to the end (as in Megatron-LM, arXiv 1909.08053).

    %whole = all_gather %logits over model dim 1
    %losses = cross_entropy %whole, %labels dim 1
becomes, with ``%logits: f32[64@data, 512@model]``,
    %0 = max %logits dims [1] keepdims
    %1 = all_reduce %0 over model
    %2 = sub %logits, %1
    %3 = exp %2
    %4 = sum %3 dims [1]
    %5 = all_reduce %4 over model
    %6 = one_hot %labels to f32[64@data, 512@model]
and so on, to ``%losses``. The all_gather is left without a use, for ``dce``.

When not: norms over an axis with weights, whose operands are gathered, because averages of unequal
blocks do not add up to an average. Values of 16 bits are computed in f32, as in the composites.

Cost: each step of an expansion reads and writes memory, so expand only operations on sharded
dimensions; otherwise one kernel is faster.
"""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from collir.dialects.operation import DistOp
from collir.passes.locations import keep_locations
from collir.transforms.expansion import expand_operation, is_composite


class ExpandComposite(RewritePattern):
    """Replace a composite operation by steps that do the same."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, DistOp) and is_composite(op):
            expand_operation(op, rewriter)


class ExpandPass(ModulePass):
    """Replace composite operations of models by steps that do the same."""

    name = "expand"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        PatternRewriteWalker(
            ExpandComposite(), apply_recursively=False, listener=keep_locations()
        ).rewrite_module(op)
