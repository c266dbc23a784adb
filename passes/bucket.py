"""Pack collectives of one kind into buffers of the best sizes.

What: collectives that do the same over the same sub-axes, on values of one element type, become
one, on a buffer in which their operands lie one behind the other; results are cut out of it. Which
go together is chosen so that all are done the earliest, given when the operands of each are there:
a collective that waits for more has fewer latencies, and starts later.

Why: models have hundreds of small gradients. One by one, latencies are what they cost; all at once,
the network waits for the last.

    %1 = all_reduce %x over data             // f32[64, 32]
    %2 = all_reduce %y over data             // f32[32]
becomes
    %3 = reshape %x to [2048]
    %4 = concat %3, %y dim 0
    %5 = all_reduce %4 over data
    %6 = pad %5 dim 0 high -32               // moves nothing
    %1 = reshape %6 to [64, 32]
    %2 = pad %5 dim 0 low -2048

Rules, which an option may fix:

- ``earliest``: the buckets with which all members are done the earliest (dynamic programming over
  them in the order in which they are ready; each bucket with the cheapest program for it).
- ``ddp``: closed once a bucket has 25 MiB, the first once it has 1 MiB, as PyTorch's
  DistributedDataParallel has it; with ``size``, that for all.
- ``xla``: at most 30 MiB, as XLA's combiner of all_reduces has it; with ``size``, that.

Without one each is tried, on the schedule that ``overlap`` would make, and the best is taken.

When not: collectives that say how they run (``using``) or that they need not be waited for
(``async``), permutes; collectives of which one needs the result of another; functions with a
``redistribute``, which has no cost before ``decompose``; buffers that a device has no memory for.
Sizes are those of the types, also in functions that stand for others with larger values (``for``).

Cost: never more than before under the model, with everything that can running at the same time: it
goes before ``decompose`` and ``overlap``. Without them, and with a rule that is asked for, it may
take longer. What is put into a buffer is copied once more.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.cost.model import CostModel
from collir.ir.remarks import remark
from collir.synthesis.programs.choices import SearchOptions
from collir.synthesis.scheduling.bucketing import RULES, bucket, by_size, up_to
from collir.synthesis.searching import searching


@dataclass(frozen=True)
class BucketPass(ModulePass):
    """Pack collectives of one kind into buffers of the best sizes.

    rule: earliest, ddp or xla; none: the best of these, or no buckets at all. size: bytes, of the
    rules that have a size. model, algorithm, order: of the costs, as of the target cost. limit:
    seconds for each search of a program; 0: none. workers: processes for one that takes long.
    """

    name = "bucket"

    rule: str = ""
    size: int = 0
    model: str = "auto"
    algorithm: str = "auto"
    order: str = "auto"
    limit: int = 60
    workers: int = 1

    def __post_init__(self) -> None:
        if self.rule and self.rule not in RULES:
            raise ValueError(f"rule is one of {', '.join(RULES)}, not '{self.rule}'")
        if self.size < 0 or self.limit < 0 or self.workers < 1:
            raise ValueError("size and limit are 0 or more, workers is 1 or more")
        if self.size and self.rule not in ("ddp", "xla"):
            raise ValueError("size is that of rule=ddp or rule=xla")
        CostModel(self.model, self.algorithm, self.order)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        sized = {"ddp": by_size, "xla": up_to}
        rule = sized[self.rule](self.size) if self.size else RULES.get(self.rule)
        model = CostModel(self.model, self.algorithm, self.order)
        with searching(self.workers):
            kept = bucket(op, SearchOptions(model, seconds=float(self.limit) or None), rule)
        for function, why in kept:
            remark(function, f"{self.name} keeps @{function.sym_name.data}: {why}")
