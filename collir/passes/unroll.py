"""Put the iterations of loops one after the other.

What: every ``repeat`` becomes its iterations. A slice is a ``pad`` that cuts the others off, and a
``reshape`` without the leading dimension. The values that a loop stacks get a leading dimension by
a ``reshape``, and become one value by a ``concat``.

Why: steps of different iterations can then run at the same time, and become fewer.

    %y = repeat 2 carry(%h = %x) slice(%w = %ws) {      // %ws is f32[2, 8]
      %s = add %h, %w
      yield %s
    }
becomes
    %0 = pad %ws dim 0 high -1
    %1 = reshape %0 to [8]
    %s = add %x, %1
    %2 = pad %ws dim 0 low -1
    %3 = reshape %2 to [8]
    %y = add %s, %3

When not: loops with more iterations than ``most``, if it is given. A call may not give a value to
a parameter that counts the iterations of such a loop: ``inline`` comes first then.

Cost: the program, and the time to compile it, grow by the number of iterations. Steps of different
iterations may overlap then, where targets otherwise wait at the end of each.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from collir.dialects.nested import RepeatOp
from collir.ir.loops import repeats_in
from collir.passes.locations import keep_locations
from collir.transforms.loops.unrolling import check_fixed_parameters, check_length, unroll


@dataclass
class UnrollLoop(RewritePattern):
    """Put the iterations of a loop one after the other; loops inside of it were unrolled before."""

    most: int

    def is_short(self, loop: RepeatOp) -> bool:
        """Return whether a loop has few enough iterations."""
        return not self.most or loop.times <= self.most

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, RepeatOp) and self.is_short(op):
            unroll(op, rewriter)


@dataclass(frozen=True)
class UnrollPass(ModulePass):
    """Put the iterations of loops one after the other."""

    name = "unroll"

    most: int = 0
    """The largest number of iterations of a loop to unroll; 0: no limit."""

    def __post_init__(self) -> None:
        if self.most < 0:
            raise ValueError("most is 0 (no limit) or more iterations")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        pattern = UnrollLoop(self.most)
        loops = [x for x in repeats_in(op) if pattern.is_short(x)]
        check_fixed_parameters(loops)
        check_length(loops)
        PatternRewriteWalker(
            pattern, apply_recursively=False, walk_reverse=True, listener=keep_locations()
        ).rewrite_module(op)
