"""Let loops add to their sums in place.

What: where each iteration of a ``repeat`` adds a stack that an inner loop made to a sum, the inner
loop takes the sum in slices and adds to them. Sums that begin with the same zeros get zeros of
their own.

Why: the gradients of a model are summed over microbatches. Without the pass, each microbatch stacks
the gradients of all layers only to add the stack, and sums that share their zeros need a second
buffer. With it, each sum is one buffer, like ``.grad`` in PyTorch and ``main_grad`` in Megatron-LM.

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

When not: a stack that is reduced over devices behind the inner loop is added there. Loops with a
schedule stay as they are: the tasks of ``pipeline`` have their sums in one buffer.

Cost: less memory, by the stack and by the second buffer of a sum. Fewer bytes are read and written,
by one kernel for each layer.
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
