"""Let collectives run beside computations, and beside each other.

What: the steps of a function are issued in another order, and collectives become ``async``: each is
issued once its operands are there, and waited for where its result is first used. Of those that may
go next, the one with the longest way to the end of the function goes first.

Why: a network that waits for computations, and devices that wait for the network, are both paid
for. Gradients can be reduced while earlier layers are differentiated, weights can be gathered while
the layer before is computed, and a collective between nodes can run beside one inside them.

    %a = compute %x flops 1e9
    %b = all_reduce %a over data
    %c = compute %y flops 1e9
    %d = all_reduce %c over data
becomes
    %a = compute %x flops 1e9
    %b = all_reduce %a over data async
    %c = compute %y flops 1e9
    %d = all_reduce %c over data

The order, and ``async``, are all there is to it: ``-t mpi`` makes calls that do not block of them,
and waits before the first use; ``-t nccl`` makes streams and events. Large collectives become
chunks, which run beside each other, with ``decompose{chunks=N}`` before this.

When not: a ``permute`` cannot be ``async``. Functions without collectives, and those that are no
faster so, stay as they are.

Cost: never more than before, simulated under the model. It takes more memory, for what is under
way; never more than a device has.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from collir.cost.model import CostModel
from collir.ir.remarks import remark
from collir.synthesis.scheduling.overlapping import overlap


@dataclass(frozen=True)
class OverlapPass(ModulePass):
    """Let collectives run beside computations, and beside each other.

    model, algorithm, order: of the costs, as of the target cost.
    """

    name = "overlap"

    model: str = "auto"
    algorithm: str = "auto"
    order: str = "auto"

    def __post_init__(self) -> None:
        CostModel(self.model, self.algorithm, self.order)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function, why in overlap(op, CostModel(self.model, self.algorithm, self.order)):
            remark(function, f"{self.name} keeps @{function.sym_name.data}: {why}")
