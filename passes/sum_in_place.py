"""Let loops add to their sums in place.

What: in a ``repeat``, a sum to which each iteration adds what an inner loop stacks is handed to the
inner loop in slices, whose iterations add to it. Sums that begin with the same zeros begin with
zeros of their own.

Why: the gradients of a model are summed over microbatches. The stack of those of all layers is made
for each microbatch, only to be added; and what begins with the memory of another sum is in two
buffers. Then each sum is one buffer, as ``.grad`` is in PyTorch and ``main_grad`` in Megatron-LM.

    %sums = repeat 8 carry(%sum = %zeros) slice(%x = %xs) with(%ws = %ws) {
      %y, %ds = repeat 24 carry(%h = %x) slice(%w = %ws) {
        ...
        yield %h_1, %d
      }
      %wide = cast %ds to f32
      %sum_1 = add %sum, %wide
      yield %sum_1
    }
becomes
    %sums = repeat 8 carry(%sum = %zeros) slice(%x = %xs) with(%ws = %ws) {
      %y, %sum_1 = repeat 24 carry(%h = %x) slice(%w = %ws, %sum_2 = %sum) {
        ...
        %wide = cast %d to f32
        %sum_3 = add %sum_2, %wide
        yield %h_1, %sum_3
      }
      yield %sum_1
    }

When not: what is reduced over devices behind the inner loop is added there. Loops with a schedule
stay as they are: the tasks of ``pipeline`` have their sums in one buffer.

Cost: less memory, by the stack, and by a second buffer of each sum that has to have its own zeros.
What is added is read where it is made, so that less is moved, by as many kernels as there are
layers.
"""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.ir.sums import sum_in_place


class SumInPlacePass(ModulePass):
    """Let loops add to their sums in place."""

    name = "sum-in-place"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        sum_in_place(op)
