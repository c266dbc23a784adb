"""The best placements of a mesh: each axis on levels of its machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.cost.programs.kinds import has_kinds
from collir.dialects.machine import MeshOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_no_weights, check_programs
from collir.layout import Mesh
from collir.search import Optimum
from collir.search.core.plan import Order
from collir.synthesis.placement.matrices import count
from collir.synthesis.placement.meshes import functions_on
from collir.synthesis.placement.problem import PartialMatrix, Placement, PlacementProblem
from collir.synthesis.searching import TIME, best_of, gap_of, interrupted, remark_cut_off, workers

_DIVE = 0.05
"""Fraction of the time limit for a first search that goes depth first."""

_FINISH = 0.15
"""Fraction of the remaining time for costing the most promising placements if the search has not
ended; the search goes on with the time that is left of it."""


@dataclass(frozen=True)
class Placements:
    """The best placements of a mesh.

    Attributes:
        name: name of the mesh.
        best: the best placements, cheapest first.
        count: number of placements of the mesh.
        costed: number of placements that were costed with their cheapest programs; if proven, the
            others are excluded by their bounds.
        ended: the reason why the search was cut off, so that better placements may exist; or "".
        gap: upper bound on the relative saving of the optimum over the best; None if not known.
    """

    name: str
    best: tuple[Placement, ...]
    count: int
    costed: int
    ended: str
    gap: float | None

    @property
    def proven(self) -> bool:
        """Return whether no other placement is better."""
        return not self.ended


def best_placements(
    module: ModuleOp,
    op: MeshOp,
    model: CostModel,
    top: int = 10,
    seconds: float | None = None,
    weights: Mapping[str, float] | None = None,
) -> Placements:
    """Return the cheapest placements of a mesh for the functions on it, cheapest first.

    Args:
        seconds: limit after which the best placements so far are returned; None: no limit.
        weights: how often each function runs, by name; the default is 1.

    Raises:
        DiagnosticError: a function has no cost on any placement (see ``cost``), or no part of the
            machine has as many devices as the mesh; or devices differ in kind, and placements in
            what they compute.
    """
    functions = functions_on(module, op.sym_name.data)
    check_programs(functions, "has no cost", redistributions=True, nested=True)
    check_no_weights(functions, "has no placements to choose from")
    mesh = op.value()
    _check_kinds(functions, op)
    problem = PlacementProblem(functions, mesh, model, weights or {})
    if not problem.parts:
        raise DiagnosticError.at(op, _no_part(mesh))
    sizes = [axis.size for axis in mesh.axes]
    number = sum(count(part, sizes) for part in problem.parts)
    if workers() > 1:  # a process cannot tell another one which programs it did not find
        problem.program_limit = inf
    ended, bound = _search(problem, top, seconds)
    if not ended and problem.unproven < inf:
        ended = TIME
    if problem.refused and not any(problem.costed.values()):
        raise problem.refused
    costed = sorted(filter(None, problem.costed.values()), key=lambda placement: placement.time)
    gap = gap_of(costed[0].time if costed else None, bound) if ended else 0.0
    if ended:
        remark_cut_off(op, f"placements of mesh @{mesh.name}", ended, seconds, gap)
    best = tuple(replace(p, bound=problem.lower_bound(p.mesh)) for p in costed[:top])
    return Placements(mesh.name, best, number, len(problem.costed), ended, gap)


def _check_kinds(functions: Sequence[FuncOp], op: MeshOp) -> None:
    """Check that placements differ in their collectives only, as nothing else is compared.

    Raises:
        DiagnosticError: a placement also decides what devices of each kind compute.
    """
    mesh = op.value()
    if not has_kinds(mesh):
        return
    kinds = " and ".join(kind.name for kind in mesh.machine.kinds)
    if mesh.devices < mesh.machine.devices:
        raise DiagnosticError.at(
            op,
            f"mesh @{mesh.name} is a part of @{mesh.machine.name}, which has {kinds}, and no "
            "search chooses among them: use all of the machine, or give the axes levels",
        )
    for step in (step for function in functions for step in function.body.ops):
        if isinstance(step, DistOp) and step.kind.computes and _is_at_place(step):
            raise DiagnosticError.at(
                step,
                f"a placement decides whether {kinds} of @{mesh.machine.name} run this, and "
                "placements are compared by their collectives alone: give the axes levels",
            )


def _is_at_place(op: DistOp) -> bool:
    return bool(dist_type(op.result).place)


def _search(problem: PlacementProblem, top: int, seconds: float | None) -> tuple[str, float]:
    """Search all placements within a limit.

    Returns: the reason why the search was cut off, or "", and a lower bound in seconds for all
    placements; 0 if it is not known.
    """
    if seconds is None:
        outcome = _run(problem, top, None, order="best-first")
        if outcome.statistics.reason:
            problem.deadline = monotonic()
            problem.finish()
        return outcome.statistics.reason, _lower_bound(problem, outcome)
    problem.deadline = monotonic() + seconds
    # Depth first soon finds some placements, best first finds the bound of all.
    outcome = _run(problem, top, seconds * _DIVE)
    bound = 0.0
    for share in (1 - _FINISH, 1.0):
        left = problem.deadline - monotonic()
        if not outcome.statistics.reason or (bound and left <= 0):
            break
        limit = max(0.0, left * share)
        outcome = _run(problem, top, limit, order="best-first")
        bound = max(bound, _lower_bound(problem, outcome))
        if interrupted():
            problem.deadline = monotonic()
        if outcome.statistics.reason:
            problem.finish()
    return outcome.statistics.reason, min(bound, problem.unproven)


def _run(
    problem: PlacementProblem, top: int, seconds: float | None, order: Order = "depth-first"
) -> Optimum[PartialMatrix]:
    """Run one search, and cost in this process the solutions that its workers have costed.

    If the workers have found no solution, complete matrices are costed here.
    """
    outcome = best_of(problem, top, seconds, order=order)
    for solution in outcome.solutions:
        problem.take_over(solution.node)
    if workers() > 1 and not outcome.solutions:
        problem.finish()
    return outcome


def _lower_bound(problem: PlacementProblem, outcome: Optimum[PartialMatrix]) -> float:
    """Return a lower bound in seconds for all placements, by a search; 0 if it is not known."""
    bound = outcome.bound if isinstance(outcome.bound, float) else 0.0
    return max(0.0, min(bound, problem.unproven))


def _no_part(mesh: Mesh) -> str:
    levels = " x ".join(str(level.size) for level in mesh.machine.levels)
    return (
        f"no part of machine @{mesh.machine.name} ({levels}) has the {mesh.devices} devices of "
        f"mesh @{mesh.name}, as many below one child of a level as below another: the nearest "
        f"sizes that fill the machine are {mesh.nearest_sizes()}"
    )
