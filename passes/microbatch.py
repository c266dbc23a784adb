"""Take the gradient of a batch as a sum over microbatches.

What: where a step takes the gradient of a function whose result is a sum or a mean over a batch,
the batch is cut into microbatches, and a ``repeat`` adds their gradients up. The index of the batch
is followed through the function; gradients of 16 bits are added up in f32.

Why: a device keeps the activations of one microbatch alone. `pipeline` does the same, and cuts the
layers into stages too.

    %loss, %d_w = gradient @loss(%x, %w) wrt %w
becomes, with `microbatches=4`,
    %loss, %d_w = repeat 4 carry(%l = %zero, %d = %zeros) slice(%x = %batches) with(%w = %w) {
      %own, %own_w = gradient @loss(%x, %w) wrt %w
      ...
    }

When not: something else than a sum or a mean over the batch depends on several of its parts, such
as a normalisation over the batch; an error says where.

Cost: weights are read once for each microbatch, and so is what is sent inside the function.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.ir.calls import calls_in
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.microbatches.splitting import split_batch


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
