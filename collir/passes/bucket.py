"""Pack collectives of one kind into buffers of the best sizes.

What: collectives of one operation over the same sub-axes, on values of one element type, become one
collective on a buffer of all their operands; the results are cut out of it. The buckets are chosen
so that all collectives are done the earliest, given when the operands of each are ready: a larger
buffer has fewer latencies, but is sent later.

Why: models have hundreds of small gradients. Reduced one by one they cost mostly latency; reduced
all at once they make the network wait for the last gradient.

    %1 = all_reduce %x over data             // f32[64, 32]
    %2 = all_reduce %y over data             // f32[32]
becomes
    %3 = reshape %x to [2048]
    %4 = concat %3, %y dim 0
    %5 = all_reduce %4 over data
    %6 = pad %5 dim 0 high -32               // moves nothing
    %1 = reshape %6 to [64, 32]
    %2 = pad %5 dim 0 low -2048

Rules, to be fixed by an option:

- ``earliest``: the buckets with which all members are done the earliest, found by dynamic
  programming over the members in the order in which they are ready; each bucket is costed with its
  cheapest program.
- ``ddp``: a bucket is closed once it has 25 MiB, the first bucket once it has 1 MiB, as in
  PyTorch's DistributedDataParallel; ``size`` replaces both sizes.
- ``xla``: a bucket has at most 30 MiB, as in XLA's combiner of all_reduces; ``size`` replaces it.

If no rule is given, every rule is tried; each candidate is scheduled as ``overlap`` would, and the
fastest wins. If none is faster as a whole, ``earliest`` packs only the kinds of collectives that
gain.

When not: collectives that name their algorithm (``using``) or are ``async``, and permutes, are not
packed, and no bucket has both a collective and one that needs its result. Functions with a
``redistribute`` stay as they are, because it has no cost before ``decompose``. So do functions
whose buffers need more memory than a device has. Sizes are taken from types, even in functions that
stand for others with larger values (``for``).

Cost: never more time than before under the model, if ``decompose`` and ``overlap`` follow. Without
them, and with a rule that is given, the program may take longer. Operands are copied into the
buffer.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.ir.remarks import remark
from collir.synthesis.options import ParallelOptions
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.propagation.propagate import propagate
from collir.synthesis.scheduling.bucketing import RULES, bucket_collectives, ddp_rule, xla_rule
from collir.synthesis.searching import search_workers


@dataclass(frozen=True)
class BucketPass(ParallelOptions, ModulePass):
    """Pack collectives of one kind into buffers of the best sizes."""

    name = "bucket"

    rule: str = ""
    """`earliest`, `ddp` or `xla`; by default the best of these, or no buckets."""
    size: int = 0
    """Bytes of a bucket, for the rules `ddp` and `xla`; 0: the default of the rule."""

    def __post_init__(self) -> None:
        if self.rule and self.rule not in RULES:
            raise ValueError(f"rule is one of {', '.join(RULES)}, not '{self.rule}'")
        if self.size < 0:
            raise ValueError("size is 0 or more bytes")
        if self.size and self.rule not in ("ddp", "xla"):
            raise ValueError("size is that of rule=ddp or rule=xla")
        super().__post_init__()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        propagate(op)
        sized = {"ddp": ddp_rule, "xla": xla_rule}
        rule = sized[self.rule](self.size) if self.size else RULES.get(self.rule)
        options = SearchOptions(self.cost_model(), seconds=self.seconds)
        with search_workers(self.workers):
            kept = bucket_collectives(op, options, rule)
        for function, reason in kept:
            remark(function, f"{self.name} keeps @{function.sym_name.data}: {reason}")
