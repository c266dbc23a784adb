"""Take the gradient of a batch as a sum over microbatches.

What: where a step takes the gradient of a function whose result is a sum or a mean over a batch,
the batch is cut into microbatches, and a ``repeat`` adds their gradients up, in f32 if they have 16
bits. All inputs are cut at the same rows, whatever their layouts.

Why: a device keeps the activations of one microbatch only. `pipeline` does the same, and cuts the
layers into stages too.

    %loss, %d_w = gradient @loss(%x, %w) wrt %w
becomes, with `microbatches=4`,
    %loss, %d_w = repeat 4 carry(%l = %zero, %d = %zeros) slice(%x = %batches) with(%w = %w) {
      %own, %own_w = gradient @loss(%x, %w) wrt %w
      ...
    }

The result stays the same. A number that the function reads from the size of the batch still means
the whole batch: microbatches then run a function of their own with one more parameter. A value that
depends on data alone and needs the whole batch, such as a count of tokens, is computed once, in
front of the loop. Of ``iota`` or ``uniform``, a microbatch takes its rows of the whole; random
numbers in a loop over layers are then drawn for the whole batch each time, which a remark says.

    func @loss(batch = 16)(%x: f32[batch, 8], %tokens: i32[batch], %w: f32[8, 8]) ... {
      %o = constant value batch to f32[]
      %n = sum %tokens dims [0]
      ...
becomes
    func @loss_whole(batch = 16)(%tokens: i32[batch]) -> i32[] ... {
      %n = sum %tokens dims [0]
      return %n
    }
    func @loss_microbatch(batch = 16, whole_batch = 16)(%x: f32[batch, 8], ..., %n: i32[]) ... {
      %o = constant value whole_batch to f32[]
      ...

When not: a differentiated value that mixes rows of the batch other than by a sum or a mean, such as
a normalisation over the batch, or rows picked by their position. An error says where.

Cost: each microbatch reads the weights, and runs the collectives of the function.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.ir.calls import calls_in
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.transforms.microbatches.splitting import split_batch


@dataclass(frozen=True)
class MicrobatchPass(ModulePass):
    """Take the gradient of a batch as a sum over microbatches."""

    name = "microbatch"

    microbatches: int
    """The number of microbatches that a batch is cut into."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.microbatches < 1:
            raise DiagnosticError(Diagnostic("microbatches= is a number of at least 1"))
        steps = [f for f in functions_of(op) if any(call.sought for call in calls_in(f))]
        if not steps:
            raise DiagnosticError(Diagnostic("no function takes a gradient"))
        for function in steps:
            split_batch(function, self.microbatches)
