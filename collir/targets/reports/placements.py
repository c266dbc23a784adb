"""Where the axes of a mesh should live: its placements, best first."""

import json
from dataclasses import dataclass
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.layout import Mesh
from collir.syntax.diagnostics import DiagnosticError
from collir.synthesis.meshes import unplaced
from collir.synthesis.placements import Placement, Placements, best_placements
from collir.synthesis.weights import weights_of
from collir.targets.reports.cost import CostingTarget
from collir.targets.reports.text import ratio_text, seconds_text, table

_NOTHING = 5e-4
"""A gap that would be printed as 0."""


@dataclass(frozen=True)
class PlacingTarget(CostingTarget):
    """The options of both targets."""

    top: int = 10
    limit: int = 60
    weights: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top < 1 or self.limit < 0:
            raise ValueError("top is 1 or more, limit 0 (none) or more seconds")

    def found(self, module: ModuleOp) -> list[Placements]:
        """The best placements of every mesh that has none.

        Raises:
            DiagnosticError: there is no such mesh, or a function has no cost.
        """
        meshes = unplaced(module)
        if not meshes:
            raise DiagnosticError.at(
                module,
                "all meshes are placed: write `mesh @m on @machine { data = 8 }`, without levels, "
                "for placements to choose from",
            )
        model = self.cost_model()
        weights = weights_of(self.weights, module)
        return [
            best_placements(module, op, model, self.top, float(self.limit) or None, weights)
            for op in meshes
        ]


@dataclass(frozen=True)
class PlacementsTarget(PlacingTarget):
    """The placements of every mesh that has none, best first, with what its functions take, and
    how many times as long as any programs take there at least.

    Every collective is costed under the cheapest program for it on that placement. A mesh that is
    smaller than its machine is placed on every part of it that has as many devices.
    top: how many to show.
    limit: seconds for each mesh, after which the best so far are shown; 0: none.
    weights: how often functions run, such as `weights="grads:1,activations:32"`; once, if not said.
    model, algorithm, order: as of the target cost.
    """

    name = "placements"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write("\n".join("\n".join(_lines(one)) + "\n" for one in self.found(module)))


@dataclass(frozen=True)
class PlacementsJsonTarget(PlacingTarget):
    """The placements as JSON: mesh, matrix, seconds of every function, their sum, and
    a bound of it; best first."""

    name = "placements-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        rows = [_json(one) for placements in self.found(module) for one in placements.found]
        json.dump(rows, output, indent=2)
        output.write("\n")


def _lines(placements: Placements) -> list[str]:
    first = placements.found[0] if placements.found else None
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
    head = ["placement", *(f"@{name}" for name in first.functions), "time", "", "of bound"]
    rows = [
        [
            placement_text(one.mesh),
            *(seconds_text(time) for time in one.functions.values()),
            seconds_text(one.time),
            ratio_text(one.time, first.time) if first.time else "",
            ratio_text(one.time, one.bound),
        ]
        for one in placements.found
    ]
    return [title, *(f"  {line}" for line in table(head, rows, left=1))]


def placement_text(mesh: Mesh) -> str:
    """The levels of every axis of a placed mesh, as one writes them."""
    return ", ".join(
        f"{axis.name} = " + " * ".join(f"{f.level}:{f.size}" for f in axis.factors or ())
        for axis in mesh.axes
    )


def _json(placement: Placement) -> dict[str, Any]:
    return {
        "mesh": placement.mesh.name,
        "matrix": [list(row) for row in placement.matrix],
        "functions": placement.functions,
        "time_s": placement.time,
        "bound_s": placement.bound,
    }
