"""Start steps that are ``ahead`` in the iteration before.

What: in a ``repeat``, steps that are ``ahead``, and the steps that feed them, leave their
iteration. The ahead steps of the first iteration stand in front of the loop. Each iteration begins
with the ahead steps of the next one, which are ``async``, and takes the results of its own from new
carries. The last iteration stands behind the loop.

Why: costs and targets see loops in this form, so that weights of the next layer are gathered while
this layer computes. The pass shows it, and lets other passes rewrite it: ``overlap`` finds an order
for steps of two iterations.

    %y = repeat 24 carry(%h = %x) slice(%w = %ws) {     // %ws is f32[24, 8@data]
      %v = all_gather %w over data dim 0 ahead
      %s = add %h, %v
      yield %s
    }
becomes
    %0 = pad %ws dim 0 high -23
    %1 = reshape %0 to [8]
    %v = all_gather %1 over data dim 0
    %2 = pad %ws dim 0 low -1
    %y, %v_1 = repeat 23 carry(%h = %x, %v = %v) slice(%w = %2) {
      %v_2 = all_gather %w over data dim 0 async
      %s = add %h, %v
      yield %s, %v_2
    }
    %y_1 = add %y, %v_1

When not: loops without such steps stay as they are. A loop of one iteration becomes its steps. The
size parameters that the number of iterations depends on get the values that they have, so where a
call gives values to them, the steps of the function come in the place of the call. A function of
which there is such a ``gradient`` stays as it is: put ``differentiate`` first.

Cost: costs see the rotated loop before as after, so they stay the same.
"""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.transforms.loops.rotation import rotate_all


class RotatePass(ModulePass):
    """Start steps that are ``ahead`` in the iteration before."""

    name = "rotate"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rotate_all(op)
