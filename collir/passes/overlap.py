"""Let collectives run beside computations, and beside each other.

What: the steps of a function are put in another order, and collectives become ``async``. A
collective is issued once its operands are ready, and waited for where its result is first used.
When several steps are ready, the one with the longest path to the end of the function goes first.

Why: a network idles while it waits for computations, and devices idle while they wait for the
network. Gradients can be reduced while earlier layers are differentiated, the weights of a layer
can be gathered while the layer before it is computed, and a collective between nodes can run beside
a collective inside the nodes.

    %a = compute %x flops 1e9
    %b = all_reduce %a over data
    %c = compute %y flops 1e9
    %d = all_reduce %c over data
becomes
    %a = compute %x flops 1e9
    %b = all_reduce %a over data async
    %c = compute %y flops 1e9
    %d = all_reduce %c over data

Only the order and ``async`` change; ``%d`` is not ``async`` because no step follows that could run
beside it. For an ``async`` collective, ``-t mpi`` prints a nonblocking call and a wait before the
first use, and ``-t nccl`` prints streams and events. Run ``decompose{chunks=N}`` first to cut large
collectives into chunks that run beside each other.

Devices that run different steps, such as the stages of a pipeline, issue their steps in one order,
which is taken if it is faster for all together.

When not: no step moves over a loop or a call, or out of the body of a loop. A ``permute`` cannot be
``async``. Steps that run as one kernel stay next to each other. Functions without collectives, and
functions that no order makes faster, stay as they are.

Cost: the time that a simulation under the model predicts never increases. Collectives under way may
need more memory, but never more than a device has: where it is short in a function with loops or
calls, the steps between two of them keep their order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from collir.cost.options import CostOptions
from collir.cost.programs.kinds import has_kinds
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import meshes_remembered
from collir.dialects.operation import DistOp
from collir.ir.functions import functions_of, scratch_copy
from collir.ir.remarks import remark
from collir.syntax.units import seconds_text
from collir.synthesis.programs.search_options import TIE
from collir.synthesis.propagation.propagate import propagate
from collir.synthesis.scheduling.memory import (
    checked_simulation,
    fits_memory,
    has_collectives,
)
from collir.synthesis.scheduling.ordering import TimedSteps, work_of, write_in_order
from collir.synthesis.scheduling.whole import Reordering, StepOrder, undo_what_does_not_fit
from collir.transforms.loops.straight import straight_programs


@dataclass(frozen=True)
class OverlapPass(CostOptions, ModulePass):
    """Let collectives run beside computations, and beside each other."""

    name = "overlap"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        propagate(op)
        model, wholes = self.cost_model(), {*functions_of(op)}
        with straight_programs(op), meshes_remembered():
            functions = [function for function in functions_of(op) if has_collectives(function)]
            # All functions are checked before the first one is changed.
            groups = [(own, not wholes.isdisjoint(own)) for own in _alike(functions)]
            simulations = [checked_simulation(own[0], model, whole) for own, whole in groups]
            reorderings = [
                reordering
                for (group, is_whole), simulation in zip(groups, simulations, strict=True)
                for reordering in self._overlap(group, simulation, is_whole)
            ]
        with meshes_remembered():
            undo_what_does_not_fit(op, reorderings, model, self.name)

    def _overlap(
        self, alike: Sequence[FuncOp], before: Simulation, is_whole: bool
    ) -> Iterator[Reordering]:
        """Reorder functions that do the same if that is faster, or remark why they stay.

        Args:
            is_whole: whether they are no parts of functions, which decide on their memory.
        """
        function = alike[0]
        name = f"{self.name} keeps @{function.sym_name.data}"
        work = work_of(function, before.model)
        best, fastest = before.time_before_copies * (1 - TIE), None
        is_slower, lacks_memory = False, 0.0
        for time, order in work.orders():
            if time >= best:  # it takes no less in simulation
                break
            after = _simulated_reordered(function, work, order, before)
            if after.time_before_copies >= best:
                is_slower = True
            elif not is_whole or fits_memory(after):
                best, fastest = after.time_before_copies, order
            else:
                lacks_memory = lacks_memory or after.time
        if fastest is not None:
            for member in alike:
                written = StepOrder.of(member)
                _reorder(
                    member, work if member is function else work_of(member, before.model), fastest
                )
                yield Reordering(written, StepOrder.of(member))
        elif lacks_memory:
            remark(
                function,
                f"{name}: the order that takes {seconds_text(lacks_memory)} instead of "
                f"{seconds_text(before.time)} needs more memory than a device has",
            )
        elif is_slower and has_kinds(before.mesh):
            remark(function, f"{name}: no order is faster on all kinds of devices together")


def _alike(functions: Iterable[FuncOp]) -> list[list[FuncOp]]:
    """Return groups of functions that do the same, such as the stages of a pipeline."""
    groups: list[list[FuncOp]] = []
    for function in functions:
        for group in groups:
            attributes, body = group[0].attributes, group[0].body
            if attributes == function.attributes and body.is_structurally_equivalent(function.body):
                group.append(function)
                break
        else:
            groups.append([function])
    return groups


def _simulated_reordered(
    function: FuncOp, work: TimedSteps, order: Sequence[int], before: Simulation
) -> Simulation:
    """Return the simulation of a function with its steps in ``order``.

    An order that is faster for steps by themselves need not be faster: maps that it takes apart are
    no longer one kernel, and where devices differ, it is chosen for the slowest at everything.
    """
    with scratch_copy(function) as copy:
        copies = dict(zip(function.body.ops, copy.body.ops, strict=True))
        _reorder(copy, replace(work, ops=tuple(copies[op] for op in work.ops)), order)
        return simulate_function(copy, before.model)


def _reorder(function: FuncOp, work: TimedSteps, order: Sequence[int]) -> None:
    """Write the steps of a function in ``order``, and decide which collectives are ``async``.

    They all are, except the last step and those whose result the next step needs.
    """
    positions: dict[Operation, float] = {
        work.ops[step]: float(position) for position, step in enumerate(order)
    }
    write_in_order(function, positions)
    for step, next_step in zip(order, [*order[1:], None], strict=True):
        op = work.ops[step]
        if not isinstance(op, DistOp) or not op.kind.may_be_async:
            continue
        if next_step is None or step in work.tasks[next_step].after:  # waited for at once
            op.properties.pop("async", None)
        else:
            op.properties["async"] = UnitAttr()
