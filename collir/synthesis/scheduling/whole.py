"""Orders of steps that are undone where a whole function would run out of memory.

The steps between two loops or calls are put in order by themselves. But the memory of a device
depends on the whole function: on what the loop around them and its callers hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import function_of, mesh_of
from collir.dialects.nested import NestedOp
from collir.dialects.operation import is_collective
from collir.dialects.tensor import dist_type
from collir.ir.calls import callees_first, calls_in
from collir.ir.diagnostics import DiagnosticError
from collir.ir.remarks import remark
from collir.layout.steps import ASYNC
from collir.transforms.as_run import functions_as_run


@dataclass(frozen=True)
class StepOrder:
    """The steps of a straight program in an order, and which of them are ``async``."""

    steps: tuple[tuple[Operation, bool], ...]

    @staticmethod
    def of(function: FuncOp) -> "StepOrder":
        """Return the order of the steps of a straight program, without its return."""
        ops = list(function.body.block.ops)[:-1]
        return StepOrder(tuple((op, ASYNC.name in op.properties) for op in ops))

    def write(self) -> None:
        """Put the steps in this order, in place. They follow each other in a block before."""
        ops = {op for op, _ in self.steps}
        first, _ = self.steps[0]
        block, behind = first.parent, first.next_op
        assert block is not None
        while behind is not None and behind in ops:
            behind = behind.next_op
        assert behind is not None  # a block ends with a return or a yield
        for op, is_async in self.steps:
            op.detach()
            block.insert_op_before(op, behind)
            op.properties.pop(ASYNC.name, None)
            if is_async:
                op.properties[ASYNC.name] = UnitAttr()


@dataclass(frozen=True)
class Reordering:
    """A straight program whose steps were put into another order."""

    before: StepOrder
    after: StepOrder


def undo_what_does_not_fit(
    module: ModuleOp, reorderings: Sequence[Reordering], model: CostModel, name: str
) -> None:
    """Undo reorderings, in place, until every function fits into memory that fitted before.

    They are undone by halves: steps between different loops or calls need memory at different
    times.

    Args:
        name: the name of the pass, for remarks.
    """
    names = _names_of_wholes(module, reorderings)
    if not _too_large(module, names, model):
        return
    for reordering in reorderings:
        reordering.before.write()
    as_before = _too_large(module, names, model)
    names = [function for function in names if function not in as_before]
    untried = [reorderings]
    while untried:
        some = untried.pop()
        for reordering in some:
            reordering.after.write()
        if not (too_large := _too_large(module, names, model)):
            continue
        for reordering in reversed(some):
            reordering.before.write()
        if len(some) > 1:
            untried += some[len(some) // 2 :], some[: len(some) // 2]
            continue
        op, _ = some[0].before.steps[0]
        remark(
            op,
            f"{name} keeps the steps from here on in their order: in a faster one, more memory "
            f"than a device has would be needed by {', '.join(f'@{x}' for x in too_large)}",
        )


def _names_of_wholes(module: ModuleOp, reorderings: Sequence[Reordering]) -> list[str]:
    """Return the names of the functions with loops or calls that run reordered steps.

    Functions that fit in no order are left out.
    """
    changed = {function_of(reordering.before.steps[0][0]) for reordering in reorderings}
    names: list[str] = []
    for function in callees_first(module) if changed else ():
        if function in changed or any(call.function() in changed for call in calls_in(function)):
            changed.add(function)
            nested = any(isinstance(op, NestedOp) for op in function.body.block.ops)
            if nested and _has_memory_for_arguments(function):
                names.append(function.sym_name.data)
    return names


def _has_memory_for_arguments(function: FuncOp) -> bool:
    """Return whether the arguments, which are held throughout, may fit into memory."""
    mesh = mesh_of(function)
    types = map(dist_type, function.args)
    held = sum(x.local_bytes(mesh) for x in types if not x.place and x.is_even(mesh))
    device = mesh.machine.slowest
    return device is None or device.memory is None or held <= device.memory


def _too_large(module: ModuleOp, names: Sequence[str], model: CostModel) -> list[str]:
    """Return the names of the functions that need more memory than a device has."""
    too_large: list[str] = []
    for function in functions_as_run(module, names) if names else ():
        if not any(map(is_collective, function.walk())):
            continue
        try:
            peak, memory, _ = simulate_function(function, model).fullest
        except DiagnosticError:  # it has no cost
            continue
        if memory and peak > memory:
            too_large.append(function.sym_name.data)
    return too_large
