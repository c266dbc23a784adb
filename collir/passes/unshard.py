"""Take the layouts and collectives out of functions: what a single device computes.

What: all values are whole, collectives and redistributes go, calls and gradients become steps, and
every function is ``auto``. Functions that others call go with the calls.

Why: ``shard`` and ``propagate`` begin with the program of a single device. A program sharded for
one machine becomes one of a single device again, and can be sharded for another machine: ``-p
unshard,shard``.

    func @f(%x: f32[64@data, 32], %w: f32[32, 128@model], %v: f32[128@model, 32])
        -> f32[64@data, 32] on @m {
      %0 = einsum "b i, i j -> b j" %x, %w
      %1 = einsum "b j, j k -> b k" %0, %v
      %2 = all_reduce %1 over model
      return %2
    }
becomes
    func @f(%x: f32[64, 32], %w: f32[32, 128], %v: f32[128, 32]) -> f32[64, 32] on @m auto {
      %0 = einsum "b i, i j -> b j" %x, %w
      %1 = einsum "b j, j k -> b k" %0, %v
      return %1
    }

When not: layouts that are to be kept go, too.

Cost: that of one device, until layouts are chosen.
"""

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.passes import ModulePass

from collir.ir.auto import set_auto
from collir.ir.calls import calls_in
from collir.ir.functions import functions_of
from collir.semantics.reference.meaning import block_alone
from collir.transforms.inlining import inline_calls


class UnshardPass(ModulePass):
    """Take the layouts and collectives out of functions."""

    name = "unshard"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        functions = functions_of(op)
        callees = {call.function() for function in functions for call in calls_in(function)}
        inline_calls(op)
        for function in functions_of(op):
            if function in callees:
                function.detach()
                function.erase()
        for function in functions_of(op):
            old = function.body.block
            block = block_alone(old)
            function.body.detach_block(old)
            function.body.add_block(block)
            old.drop_all_references()
            outputs = [x.type for x in block.last_op.operands] if block.last_op else []
            inputs = [argument.type for argument in block.args]
            function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
            set_auto(function)
