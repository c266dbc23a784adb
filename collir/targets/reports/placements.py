"""Where the axes of a mesh should live: its placements, best first."""

import json
from dataclasses import dataclass
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.cost.model import CostModel
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Mesh
from collir.synthesis.placement.meshes import unplaced_meshes
from collir.synthesis.placement.placements import Placements, best_placements
from collir.synthesis.placement.problem import Placement
from collir.synthesis.placement.weights import weights_of
from collir.synthesis.searching import search_workers
from collir.targets.reports.cost import CostingTarget
from collir.targets.reports.text import ratio_text, seconds_text, table

_NOTHING = 5e-4
"""A gap that would be printed as 0."""


@dataclass(frozen=True)
class PlacingTarget(CostingTarget):
    """The options of both targets."""

    top: int = 10
    """How many placements to show."""
    limit: int = 60
    """Seconds for each mesh, after which the best so far are shown; 0: no limit."""
    workers: int = 1
    """Processes for a search that takes long."""
    weights: tuple[str, ...] = ()
    """How often functions run, such as `weights="activations:32"`; once, if not said."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.top, self.workers) < 1 or self.limit < 0:
            raise ValueError("top and workers are 1 or more, limit is 0 (none) or more seconds")

    def found(self, module: ModuleOp) -> list[Placements]:
        """The best placements of every mesh that has none.

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
                best_placements(module, op, model, self.top, float(self.limit) or None, weights)
                for op in meshes
            ]


@dataclass(frozen=True)
class PlacementsTarget(PlacingTarget):
    """Where the axes of a mesh should live: the placements of every mesh that has none, best first.

    Beside each is what the functions take there, and how many times their lower bound that is.
    Every collective is costed under the cheapest program for it on that placement. A mesh that is
    smaller than its machine is placed on every part of it that has as many devices.
    """

    name = "placements"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(
            "\n".join(
                "\n".join(_lines(one, self.cost_model())) + "\n" for one in self.found(module)
            )
        )


@dataclass(frozen=True)
class PlacementsJsonTarget(PlacingTarget):
    """The placements as JSON: mesh, matrix, seconds of every function, their sum and its bound.

    Of all placements of the mesh each entry says how many there are (`count`), how many were
    looked at (`looked_at`), whether the first is proven to be the best, and what may be missing:
    `ended`, why the search was cut off, and `gap`, how much less than the first another may take at
    most, as a part of it.
    """

    name = "placements-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        model = self.cost_model()
        rows = [_json(one, all_, model) for all_ in self.found(module) for one in all_.best]
        json.dump(rows, output, indent=2)
        output.write("\n")


def _lines(placements: Placements, model: CostModel) -> list[str]:
    first = placements.best[0] if placements.best else None
    seen = ""
    if not placements.proven:
        seen = ", not all of them looked at in the time given"
        if placements.gap is not None and placements.gap < _NOTHING:
            seen += "; none is better than the first"
        elif placements.gap is not None:
            seen += f"; none is better by more than {100 * placements.gap:.1f} %"
    many = f"{placements.count} placement{'s' if placements.count != 1 else ''}"
    title = f"mesh @{placements.name}: {many}{seen}"
    if first is None:
        return [title]
    title += f", costed {model.how(first.mesh.machine)}"
    head = ["placement", *(f"@{name}" for name in first.functions), "time", "", "of bound"]
    rows = [
        [
            placement_text(one.mesh),
            *(seconds_text(time) for time in one.functions.values()),
            seconds_text(one.time),
            ratio_text(one.time, first.time) if first.time else "",
            ratio_text(one.time, one.bound),
        ]
        for one in placements.best
    ]
    return [title, *(f"  {line}" for line in table(head, rows, left=1))]


def placement_text(mesh: Mesh) -> str:
    """The levels of every axis of a placed mesh, as one writes them."""
    return ", ".join(
        f"{axis.name} = " + " * ".join(f"{f.level}:{f.size}" for f in axis.factors or ())
        for axis in mesh.axes
    )


def ending(found: Any) -> dict[str, Any]:
    """What a search has not looked at, of what has an end and a gap."""
    return {"proven": not found.ended, "ended": found.ended or None, "gap": found.gap}


def _json(placement: Placement, among: Placements, model: CostModel) -> dict[str, Any]:
    return {
        "mesh": placement.mesh.name,
        "matrix": [list(row) for row in placement.matrix],
        "functions": placement.functions,
        "time_s": placement.time,
        "bound_s": placement.bound,
        "costed": model.how(placement.mesh.machine),
        "count": among.count,
        "looked_at": among.costed,
        **ending(among),
    }
