"""Functions whose collectives run beside computations, and beside each other."""

import math
from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.model import CostModel
from collir.cost.programs.simulation import Simulation, simulate_function
from collir.dialects.machine import meshes_remembered
from collir.dialects.operation import DistOp, is_collective
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of, scratch_copy
from collir.syntax.units import seconds_text
from collir.synthesis.programs.choices import TIE, placed_mesh
from collir.synthesis.scheduling.ordering import Work, work_of, write_in_order


def overlap(module: ModuleOp, model: CostModel) -> list[tuple[FuncOp, str]]:
    """Lets the collectives of every function run beside what does not need them, in place; where
    that is no faster, or takes more memory than a device has, the function stays as it is.

    Returns: the functions that would be faster in another order, and why they do not have it.

    Raises:
        DiagnosticError: a mesh that is not on levels, a step without a cost, a function that needs
            more memory than a device has; no function is changed then.
    """
    kept: list[tuple[FuncOp, str]] = []
    with meshes_remembered():
        functions = [one for one in functions_of(module) if sends(one)]
        before = [checked(function, model) for function in functions]
        for function, now in zip(functions, before, strict=True):
            work = work_of(function, model)
            time, order = work.best()
            if time >= now.time_before_copies * (1 - TIE):
                continue
            if _fits_then(function, work, order, now):
                rewrite(function, work, order)
            else:
                text = f"the order that takes {seconds_text(time)} instead of "
                text += f"{seconds_text(now.time)} needs more memory than a device has"
                kept.append((function, text))
    return kept


def sends(function: FuncOp) -> bool:
    """Whether there is a collective in a function."""
    return any(map(is_collective, function.body.ops))


def checked(function: FuncOp, model: CostModel) -> Simulation:
    """A function, simulated.

    Raises:
        DiagnosticError: see ``overlap``.
    """
    check_programs([function], "has no cost")
    placed_mesh(next(op for op in function.body.ops if isinstance(op, DistOp)))
    found = simulate_function(function, model)
    if not fits_memory(found):
        raise DiagnosticError.at(
            function,
            f"@{found.name} needs {found.peak / 1e6:.4g} MB on a device of "
            f"@{found.mesh.machine.name}, which has {_memory(found) / 1e6:.4g} MB: shard what it "
            "holds over more sub-axes, or leave out passes before this one",
        )
    return found


def fits_memory(found: Simulation) -> bool:
    """Whether a device has the memory for a function, as far as it is known."""
    return found.peak <= _memory(found)


def _memory(found: Simulation) -> float:
    """The bytes of memory of a device; infinite, if that is not known."""
    device = found.mesh.machine.device
    return (device and device.memory) or math.inf


def _fits_then(function: FuncOp, work: Work, order: Sequence[int], now: Simulation) -> bool:
    """Whether a device has the memory that a function takes in another order."""
    if math.isinf(_memory(now)):
        return True
    with scratch_copy(function) as copy:
        same = dict(zip(function.body.ops, copy.body.ops, strict=True))
        rewrite(copy, replace(work, ops=tuple(same[op] for op in work.ops)), order)
        return fits_memory(simulate_function(copy, now.model))


def rewrite(function: FuncOp, work: Work, order: Sequence[int]) -> None:
    """Writes the steps of a function in an order; collectives that something else runs beside are
    ``async``."""
    rank: dict[Operation, float] = {
        work.ops[number]: float(index) for index, number in enumerate(order)
    }
    write_in_order(function, rank)
    for number, following in zip(order, [*order[1:], None], strict=True):
        op = work.ops[number]
        if not isinstance(op, DistOp) or not op.kind.may_be_async:
            continue
        if following is None or number in work.tasks[following].after:  # it is waited for anyway
            op.properties.pop("async", None)
        else:
            op.properties["async"] = UnitAttr()
