"""Plots of which function costs least in the plane of two parameters."""

from collections.abc import Mapping

import numpy as np

from collir.cost.formulas.fastest import Plane, Span, plane, same_values
from collir.cost.formulas.function import CostFunction
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.targets.reports.cost import mesh_title

_SUPERLATIVES = {
    "time": "The fastest",
    "memory": "The least memory",
    "flops": "The fewest operations",
    "moved": "The fewest bytes read and written",
    "sent": "The fewest bytes sent",
    "messages": "The fewest messages",
}


def plane_plot(
    functions: Mapping[str, CostFunction],
    x: Span,
    y: Span,
    cost: str = "time",
    points: int = 60,
    **values: float,
) -> str:
    """Return which of several functions costs least in the plane of two parameters as SVG.

    Args:
        functions: functions by name, over the same parameters.
        cost: a field of ``CostValues``.
        points: the number of values of each parameter.
        values: the values of other parameters, axes and constants.

    Raises:
        ValueError: no function can have any of the values, or there is no such cost.
        DiagnosticError: matplotlib is not installed.
    """
    try:
        from collir.targets.reports.plots import regions
    except ImportError as error:
        message = "a plot needs matplotlib: install it with `pip install 'collir[plot]'`"
        raise DiagnosticError(Diagnostic(message)) from error
    found = plane(functions, x, y, cost, points, **values)
    first = next(iter(functions.values()))
    fixed = same_values(functions, values)
    return regions(
        f"{_SUPERLATIVES[cost]} on {mesh_title(first.formulas.mesh)}{_others(first, found, fixed)}",
        (x.name, y.name),
        (found.xs.tolist(), found.ys.tolist()),
        [*functions],
        found.best,
        _gains(found),
    )


def _gains(plane: Plane) -> np.ndarray:
    """Return by which factor the second best function is worse than the best."""
    table = np.stack([*plane.costs.values()])
    table = np.sort(np.where(np.isnan(table), np.inf, table), axis=0)
    if len(table) == 1:
        return np.full(table.shape[1:], np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        return table[1] / table[0]


def _others(function: CostFunction, plane: Plane, values: Mapping[str, float]) -> str:
    """Return a line with the values of the other parameters, and of axes of other sizes."""
    sizes = function.formulas.axes
    others = {n: x for n, x in values.items() if n not in (plane.x, plane.y) and sizes.get(n) != x}
    return "\n" + ", ".join(f"{name} = {value:g}" for name, value in others.items())
