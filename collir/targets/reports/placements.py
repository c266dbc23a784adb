"""The placements of a mesh on its machine, best first."""

import json
from dataclasses import dataclass
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.model import CostModel
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Mesh
from collir.synthesis.options import ParallelOptions
from collir.synthesis.placement.meshes import unplaced_meshes
from collir.synthesis.placement.placements import Placements, best_placements
from collir.synthesis.placement.problem import Placement
from collir.synthesis.placement.weights import weights_of
from collir.synthesis.searching import search_workers
from collir.targets.reports.text import ratio_text, seconds_text, table, wrapped

_NOTHING = 5e-4
"""The smallest gap that does not print as 0."""


@dataclass(frozen=True)
class PlacingTarget(ParallelOptions, Target):
    """The options of both targets."""

    top: int = 10
    """The number of placements to show."""
    limit: int = 60
    """Seconds for the search on each mesh, after which the best placements so far are shown; 0: no
    limit."""
    weights: tuple[str, ...] = ()
    """The number of runs of each function, such as `weights="activations:32"`; 1 by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top < 1:
            raise ValueError("top is 1 or more")

    def placements(self, module: ModuleOp) -> list[Placements]:
        """Return the best placements of every unplaced mesh.

        Raises:
            DiagnosticError: there is no such mesh, or a function has no cost.
        """
        meshes = unplaced_meshes(module)
        if not meshes:
            raise DiagnosticError.at(
                module,
                "all meshes are placed: write `mesh @m on @machine { data = 8 }`, without levels, "
                "for placements to choose from",
            )
        model = self.cost_model()
        weights = weights_of(self.weights, module)
        with search_workers(self.workers):
            return [
                best_placements(module, op, model, self.top, self.seconds, weights) for op in meshes
            ]


@dataclass(frozen=True)
class PlacementsTarget(PlacingTarget):
    """The placements of every unplaced mesh, best first.

    Each row has the time that the functions send on a placement, each collective by its cheapest
    program, and its ratio to the lower bound; computations take the same time on every placement. A
    mesh that is smaller than its machine is placed on every part of the machine that has as many
    devices.
    """

    name = "placements"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(
            "\n".join(
                "\n".join(_lines(placements, self.cost_model())) + "\n"
                for placements in self.placements(module)
            )
        )


@dataclass(frozen=True)
class PlacementsJsonTarget(PlacingTarget):
    """The placements as JSON: mesh, matrix, seconds that each function sends, their sum and bound.

    Each entry has the number of all placements of the mesh (`count`), the number of those costed
    (`looked_at`), whether the first is proven to be the best, the reason why the search was cut
    off (`ended`), and the `gap`: the largest share of the first's time by which another
    placement may be faster.
    """

    name = "placements-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        model = self.cost_model()
        rows = [
            _json(placement, placements, model)
            for placements in self.placements(module)
            for placement in placements.best
        ]
        json.dump(rows, output, indent=2)
        output.write("\n")


def _lines(placements: Placements, model: CostModel) -> list[str]:
    first = placements.best[0] if placements.best else None
    remark = ""
    if not placements.proven:
        remark = ", not all of them looked at in the time given"
        if placements.gap is not None and placements.gap < _NOTHING:
            remark += "; none is better than the first"
        elif placements.gap is not None:
            remark += f"; none is better by more than {100 * placements.gap:.1f} %"
    many = f"{placements.count} placement{'s' if placements.count != 1 else ''}"
    title = f"mesh @{placements.name}: {many}{remark}"
    if first is None:
        return wrapped(title)
    title += f", costed {model.how(first.mesh.machine)}"
    head = ["placement", *(f"@{name}" for name in first.functions), "sending", "", "of bound"]
    rows = [
        [
            placement_text(placement.mesh),
            *(seconds_text(time) for time in placement.functions.values()),
            seconds_text(placement.time),
            ratio_text(placement.time, first.time) if first.time else "",
            ratio_text(placement.time, placement.bound),
        ]
        for placement in placements.best
    ]
    return [*wrapped(title), *(f"  {line}" for line in table(head, rows, left=1))]


def placement_text(mesh: Mesh) -> str:
    """Return the levels of every axis of a placed mesh, in the syntax of a mesh."""
    return ", ".join(
        f"{axis.name} = " + " * ".join(f"{f.level}:{f.size}" for f in axis.factors or ())
        for axis in mesh.axes
    )


def _json(placement: Placement, placements: Placements, model: CostModel) -> dict[str, Any]:
    return {
        "mesh": placement.mesh.name,
        "matrix": [list(row) for row in placement.matrix],
        "functions": placement.functions,
        "time_s": placement.time,
        "bound_s": placement.bound,
        "costed": model.how(placement.mesh.machine),
        "count": placements.count,
        "looked_at": placements.costed,
        "proven": not placements.ended,
        "ended": placements.ended or None,
        "gap": placements.gap,
    }
