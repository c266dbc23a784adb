"""Let collectives run beside computations, and beside each other.

What: the steps of a function are put in another order, and collectives become ``async``. A
collective is issued once its operands are ready, and waited for where its result is first used. Of
the steps that are ready, the step with the longest path to the end of the function goes first.

Why: a network idles while it waits for computations, and devices idle while they wait for the
network. Gradients can be reduced while earlier layers are differentiated, weights can be gathered
during the layer before, and a collective between nodes can run beside one inside them.

    %a = compute %x flops 1e9
    %b = all_reduce %a over data
    %c = compute %y flops 1e9
    %d = all_reduce %c over data
becomes
    %a = compute %x flops 1e9
    %b = all_reduce %a over data async
    %c = compute %y flops 1e9
    %d = all_reduce %c over data

Only the order and ``async`` change. For an ``async`` collective ``-t mpi`` prints a nonblocking
call and a wait before the first use, and ``-t nccl`` prints streams and events. Run
``decompose{chunks=N}`` first to cut large collectives into chunks that run beside each other.

When not: a ``permute`` cannot be ``async``. Functions without collectives, and functions that no
order makes faster, stay as they are.

Cost: never more time than before, simulated under the model. The program may need more memory, for
collectives under way, but never more than a device has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isinf

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from collir.cost.model import CostModel
from collir.cost.programs.simulation import Simulation, simulate_function
from collir.dialects.machine import meshes_remembered
from collir.dialects.operation import DistOp
from collir.ir.functions import functions_of, scratch_copy
from collir.ir.remarks import remark
from collir.syntax.units import seconds_text
from collir.synthesis.programs.choices import TIE
from collir.synthesis.scheduling.memory import (
    checked_simulation,
    fits_memory,
    has_collectives,
    memory_of,
)
from collir.synthesis.scheduling.ordering import Work, work_of, write_in_order


@dataclass(frozen=True)
class OverlapPass(ModulePass):
    """Let collectives run beside computations, and beside each other.

    Attributes:
        model, algorithm, order: options of the cost model, as of the target cost.
    """

    name = "overlap"

    model: str = "auto"
    algorithm: str = "auto"
    order: str = "auto"

    def __post_init__(self) -> None:
        CostModel(self.model, self.algorithm, self.order)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        model = CostModel(self.model, self.algorithm, self.order)
        with meshes_remembered():
            functions = [function for function in functions_of(op) if has_collectives(function)]
            # All functions are checked before the first one is changed.
            simulations = [checked_simulation(function, model) for function in functions]
            for function, simulation in zip(functions, simulations, strict=True):
                self._overlap(function, simulation)

    def _overlap(self, function: FuncOp, before: Simulation) -> None:
        """Reorder a function if that is faster; remark if it would then need too much memory."""
        work = work_of(function, before.model)
        time, order = work.best()
        if time >= before.time_before_copies * (1 - TIE):
            return
        if _fits_memory_reordered(function, work, order, before):
            _reorder(function, work, order)
            return
        remark(
            function,
            f"{self.name} keeps @{function.sym_name.data}: the order that takes "
            f"{seconds_text(time)} instead of {seconds_text(before.time)} needs more memory than a "
            "device has",
        )


def _fits_memory_reordered(
    function: FuncOp, work: Work, order: Sequence[int], before: Simulation
) -> bool:
    """Return whether a device has the memory that a function needs in another order."""
    if isinf(memory_of(before)):
        return True
    with scratch_copy(function) as copy:
        copies = dict(zip(function.body.ops, copy.body.ops, strict=True))
        _reorder(copy, replace(work, ops=tuple(copies[op] for op in work.ops)), order)
        return fits_memory(simulate_function(copy, before.model))


def _reorder(function: FuncOp, work: Work, order: Sequence[int]) -> None:
    """Write the steps of a function in an order, and make those ``async`` that overlap the next."""
    rank: dict[Operation, float] = {
        work.ops[number]: float(index) for index, number in enumerate(order)
    }
    write_in_order(function, rank)
    for number, following in zip(order, [*order[1:], None], strict=True):
        op = work.ops[number]
        if not isinstance(op, DistOp) or not op.kind.may_be_async:
            continue
        if following is None or number in work.tasks[following].after:  # waited for at once
            op.properties.pop("async", None)
        else:
            op.properties["async"] = UnitAttr()
