"""Checks of functions to schedule: whether they have collectives, and fit into memory."""

from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.operation import DistOp, is_collective
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs
from collir.synthesis.programs.choices import placed_mesh


def has_collectives(function: FuncOp) -> bool:
    """Return whether a function has a collective."""
    return any(map(is_collective, function.body.ops))


def checked_simulation(function: FuncOp, model: CostModel, is_whole: bool = True) -> Simulation:
    """Return the simulation of a function that has collectives.

    Args:
        is_whole: whether it is no part of a function. A part may need less memory than its
            simulation, as its arguments are freed when nothing needs them.

    Raises:
        DiagnosticError: the mesh is not on levels, a step has no cost, or the function needs more
            memory than a device has.
    """
    check_programs([function], "has no cost")
    placed_mesh(next(op for op in function.body.ops if isinstance(op, DistOp)))
    simulation = simulate_function(function, model)
    if is_whole and not fits_memory(simulation):
        peak, memory, kind = simulation.fullest
        raise DiagnosticError.at(
            function,
            f"@{simulation.name} needs {peak / 1e6:.4g} MB on a {kind or 'device'} of "
            f"@{simulation.mesh.machine.name}, which has {(memory or 0) / 1e6:.4g} MB: "
            "shard what it holds over more sub-axes, or leave out passes before this one",
        )
    return simulation


def fits_memory(simulation: Simulation) -> bool:
    """Return whether each device has the memory for a simulated function."""
    peak, memory, _ = simulation.fullest
    return not memory or peak <= memory
