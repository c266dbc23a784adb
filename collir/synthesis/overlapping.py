"""Functions whose collectives run beside computations, and beside each other."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.model import CostModel
from collir.cost.simulation import Simulation, simulated
from collir.dialects import coll
from collir.dialects.machine import meshes_remembered
from collir.syntax.diagnostics import DiagnosticError
from collir.syntax.mlir import check_programs, functions_of
from collir.synthesis.ordering import Work, work_of, write_in_order
from collir.synthesis.strategies import placed_mesh
from collir.synthesis.trials import trial

TIE = 1e-9
"""Times that differ by less, as a part of them, are the same."""


def overlapped(module: ModuleOp, model: CostModel) -> None:
    """Lets the collectives of every function run beside what does not need them, in place; where
    that is no faster, or takes more memory than a device has, the function stays as it is.

    Raises:
        DiagnosticError: a mesh that is not on levels, a step without a cost, a function that needs
            more memory than a device has; no function is changed then.
    """
    with meshes_remembered():
        functions = [one for one in functions_of(module) if sends(one)]
        before = [checked(function, model) for function in functions]
        for function, now in zip(functions, before, strict=True):
            work = work_of(function, model)
            time, order = work.best()
            if time < now.time * (1 - TIE) and _fits_then(function, order, model):
                rewrite(function, work, order)


def sends(function: FuncOp) -> bool:
    """Whether there is a collective in a function."""
    return any(isinstance(op, coll.COLLECTIVES) for op in function.body.ops)


def checked(function: FuncOp, model: CostModel) -> Simulation:
    """A function, simulated.

    Raises:
        DiagnosticError: see ``overlapped``.
    """
    check_programs([function], "has no cost")
    placed_mesh(next(op for op in function.body.ops if isinstance(op, coll.CollOp)))
    found = simulated(function, model)
    device = found.mesh.machine.device
    if device and device.memory and not fits(found):
        raise DiagnosticError.at(
            function,
            f"@{found.name} needs {found.peak / 1e6:.4g} MB on a device of "
            f"@{found.mesh.machine.name}, which has {device.memory / 1e6:.4g} MB: shard what it "
            "holds over more sub-axes, or leave out passes before this one",
        )
    return found


def fits(found: Simulation) -> bool:
    """Whether a device has the memory for a function, as far as it is known."""
    device = found.mesh.machine.device
    return device is None or device.memory is None or found.peak <= device.memory


def _fits_then(function: FuncOp, order: Sequence[int], model: CostModel) -> bool:
    """Whether a device has the memory that a function takes in another order."""
    with trial(function) as copy:
        rewrite(copy, work_of(copy, model), order)
        return fits(simulated(copy, model))


def rewrite(function: FuncOp, work: Work, order: Sequence[int]) -> None:
    """Writes the steps of a function in an order; collectives that something else runs beside are
    ``async``."""
    rank: dict[Operation, float] = {
        work.ops[number]: float(index) for index, number in enumerate(order)
    }
    write_in_order(function, rank)
    for number, following in zip(order, [*order[1:], None], strict=True):
        op = work.ops[number]
        if isinstance(op, coll.PermuteOp) or not isinstance(op, coll.COLLECTIVES):
            continue
        if following is None or number in work.tasks[following].after:  # it is waited for anyway
            op.properties.pop("async", None)
        else:
            op.properties["async"] = UnitAttr()
