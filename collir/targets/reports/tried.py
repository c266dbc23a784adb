"""The passes that would make the functions of a module faster, each tried by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from xdsl.dialects.builtin import ModuleOp

from collir.cost.options import CostOptions
from collir.cost.programs.kinds import has_kinds
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.cost.programs.whatif import Improvement
from collir.ir.functions import meshes_of
from collir.ir.progress import activity
from collir.layout import Mesh
from collir.synthesis.options import TimedOptions
from collir.synthesis.placement.meshes import functions_on, place
from collir.synthesis.placement.placements import best_placements
from collir.synthesis.placement.unplacing import unplaced_copy
from collir.synthesis.programs.decomposing import decompose_by_search
from collir.synthesis.programs.fusion import fuse
from collir.synthesis.programs.search_options import TIE, SearchOptions
from collir.targets.reports.placements import placement_text

CHUNKS = 16
"""The largest number of chunks of the programs that are simulated."""

LEAST = 1.005
"""The smallest ratio of times that is worth a line."""


def changes_by_passes(
    module: ModuleOp, simulations: Sequence[Simulation], options: TimedOptions
) -> Mapping[str, list[Improvement]]:
    """Return the changes of each function that passes make, with the times behind them.

    Those are the cheapest programs for its collectives, also in chunks, fewer steps for several in
    a row, and another placement of its mesh. None is left out because it gains nothing.
    """
    activity.set("looks for cheaper programs")
    programs, in_chunks = (_programs(module.clone(), options, n) for n in (1, CHUNKS))
    activity.set("looks for fewer steps")
    fused = _fused(module.clone(), options)
    activity.set("looks for placements")
    placed = {
        op.sym_name.data: _elsewhere(module, op.value(), programs, options)
        for op in meshes_of(module)
        if op.value().placed
    }
    decompose = pass_text("decompose", options)
    by_name: dict[str, list[Improvement]] = {}
    for simulation in simulations:
        name = simulation.name
        changes = [Improvement("its cheapest program", programs[name], decompose)]
        if fused[name] < programs[name] * (1 - TIE):
            passes = pass_text("fuse", options)
            changes.append(Improvement("its steps in a row as fewer", fused[name], passes))
        if in_chunks[name] * LEAST < programs[name]:
            passes = pass_text("decompose", options, f"chunks={CHUNKS}")
            changes.append(Improvement("its cheapest in chunks", in_chunks[name], passes))
        if (moved := placed.get(simulation.mesh.name)) is not None:
            passes = f"{pass_text('place', options, 'again=true')},{decompose}"
            changes.append(Improvement(placement_text(moved[0]), moved[1][name], passes))
        by_name[name] = changes
    return by_name


def pass_text(name: str, options: CostOptions, *more: str) -> str:
    """Return a pass or target as it is written, with cost options and others."""
    settings = [
        f"{option.name}={getattr(options, option.name)}"
        for option in fields(CostOptions)
        if getattr(options, option.name) != option.default
    ]
    braces = " ".join((*settings, *more))
    return f"{name}{{{braces}}}" if braces else name


def _programs(module: ModuleOp, options: TimedOptions, chunks: int) -> dict[str, float]:
    """Insert the cheapest programs for the collectives; return the seconds of every function."""
    search = SearchOptions(options.cost_model(), seconds=options.seconds, chunks=chunks)
    decompose_by_search(module, search)
    return _times(module, options)


def _fused(module: ModuleOp, options: TimedOptions) -> dict[str, float]:
    """Fuse steps in a row, and return the seconds of every function."""
    fuse(module, SearchOptions(options.cost_model(), seconds=options.seconds))
    return _times(module, options)


def _times(module: ModuleOp, options: CostOptions) -> dict[str, float]:
    return {x.name: x.time for x in simulate(module, options.cost_model())}


def _elsewhere(
    module: ModuleOp, mesh: Mesh, times: Mapping[str, float], options: TimedOptions
) -> tuple[Mesh, Mapping[str, float]] | None:
    """Return the best placement of a mesh and the seconds of all functions there.

    Returns None if it is no better than ``times``, those of the present placement with the
    cheapest programs.
    """
    if mesh.uneven or has_kinds(mesh):  # not what placements are compared by
        return None
    copied = unplaced_copy(module, mesh)
    if copied is None:
        return None
    copy, op = copied
    placements = best_placements(copy, op, options.cost_model(), 1, options.seconds).best
    if not placements or placements[0].mesh.sub_axes == mesh.sub_axes:
        return None
    place(op, placements[0].mesh)
    placed_times = _programs(copy, options, 1)
    names = [function.sym_name.data for function in functions_on(module, mesh.name)]
    before, after = (sum(x[name] for name in names) for x in (times, placed_times))
    return (placements[0].mesh, placed_times) if before > LEAST * after else None
