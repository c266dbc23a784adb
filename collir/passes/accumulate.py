"""Add in a wide element type what is sent in a narrow one.

What: an ``all_reduce`` or ``reduce_scatter`` of bf16 or f16 sums or averages becomes steps that
send the terms as they are, and add them in f32. ``terms`` views the terms of the partial value as
rows, an ``all_to_all`` brings the rows of a block to one device, and ``sum`` or ``mean`` adds them.

Why: a sum of n terms in bf16 rounds n - 1 times to 8 bits; in f16 it may overflow as well. The same
terms added in f32 are rounded once, at the end, and the same bytes are sent. It is what
``reduce_dtype`` of FSDP and ``accumulate_allreduce_grads_in_fp32`` of Megatron-LM get by sending
f32.

    %r = all_reduce %g over data             // %g is bf16[4096, 1024]
becomes
    %1 = terms %g over data dim 0            // bf16[8@data, 4096, 1024]: a view
    %2 = all_to_all %1 over data dim 0 to 1  // bf16[8, 4096@data, 1024]
    %3 = cast %2 to f32
    %4 = sum %3 dims [0]
    %5 = cast %4 to bf16
    %r = all_gather %5 over data dim 0

A cast of a scattered result to f32 takes the sum before it is rounded. Over several levels, the
all_to_all may go over the inner ones only, with a ``reduce_scatter`` in f32 over the others: the
cheaper program is taken. ``over`` names the axes of the reductions to rewrite: ``data``, for
example, rewrites reductions of gradients, and none of activations.

When not: reductions that name their algorithm (``using``), are ``async`` or ``ahead``, or leave the
result at a root; a ``redistribute``, which becomes reductions in ``decompose`` only; and values
without a dimension that the group divides.

Cost: on one level, the same bytes as the reduction in the narrow type, and the time to add the
terms, which NCCL's kernels hide. The terms in f32 take twice the memory of the operand, unless a
compiler fuses the cast with the sum.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.cost.options import CostOptions
from collir.ir.remarks import remark
from collir.layout import DType
from collir.passes.locations import keep_locations
from collir.synthesis.programs.accumulation import accumulate, check_axes
from collir.synthesis.propagation.propagate import propagate

WIDE = tuple(dtype for dtype in DType if dtype.is_float and dtype.holds(DType.F32))


@dataclass(frozen=True)
class AccumulatePass(CostOptions, ModulePass):
    """Add in a wide element type what is sent in a narrow one."""

    name = "accumulate"

    dtype: str = "f32"
    """The element type to add in."""
    over: tuple[str, ...] = ()
    """The axes of the reductions to rewrite; by default any."""

    def __post_init__(self) -> None:
        if self.dtype not in WIDE:
            raise ValueError(f"dtype is one of {', '.join(WIDE)}, not '{self.dtype}'")
        super().__post_init__()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_axes(op, self.over)
        propagate(op)
        model = self.cost_model()
        for kept in accumulate(op, DType(self.dtype), self.over, model, keep_locations()):
            remark(kept.op, f"{self.name} keeps {kept.what}: {kept.why}")
