"""Plots of which function costs least in the plane of two parameters."""

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from collir.cost.formulas.alike import alike_functions
from collir.cost.formulas.costs import CostFormulas, formulas_of
from collir.cost.formulas.crossovers import COSTS, compared
from collir.cost.formulas.fastest import ParameterSpan, Plane, plane, same_values
from collir.cost.formulas.function import CostFunction
from collir.cost.formulas.functions import FormulaMissingError
from collir.cost.formulas.opening import opened_functions
from collir.cost.formulas.terms import text_of
from collir.cost.model import CostModel
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.targets.reports.compared import Ranges, at_same_values
from collir.targets.reports.cost import mesh_title
from collir.targets.reports.cost_symbolic import check_names

_SUPERLATIVES = {
    "time": "The fastest",
    "memory": "The least memory",
    "flops": "The fewest operations",
    "moved": "The fewest bytes read and written",
    "sent": "The fewest bytes sent",
    "messages": "The fewest messages",
}


def strategies_plot(
    module: ModuleOp, model: CostModel, ranges: Ranges, cost: str = "time", points: int = 60
) -> str:
    """Return which of the strategies of a module costs least in the plane of two ranges as SVG.

    Args:
        ranges: two ranges, the first from left to right, and values of parameters and axes.
        cost, points: see ``plane_plot``.

    Raises:
        DiagnosticError: the module has not one set of strategies with formulas, a name is no
            parameter and no axis, or matplotlib is not installed.
        ValueError: no function can have any of the values.
        CostError: the machine cannot have the sizes of axes.
    """
    listed = at_same_values(_strategies(module, model), ranges)
    check_names("where", ranges, listed[0].values)
    x, y = (
        ParameterSpan(n, int(low), int(high)) for n, (low, high) in ranges.items() if low < high
    )
    return plane_plot({f.name: CostFunction(f) for f in listed}, x, y, cost, points)


def _strategies(module: ModuleOp, model: CostModel) -> list[CostFormulas]:
    groups = alike_functions(module)
    if not groups:
        message = (
            "a plane compares strategies: functions on one mesh with the same parameters, arguments"
            " and results, but for layouts, weights and states; there are no two"
        )
        raise DiagnosticError(Diagnostic(message))
    if len(groups) > 1:
        titles = " and ".join(", ".join(f"@{name}" for name in names) for names in groups)
        message = f"a plane has the strategies of one program, not {titles}"
        raise DiagnosticError(Diagnostic(f"{message}: choose some with --function"))
    opened = {o.simulation.name: o for o in opened_functions(module, model)}
    strategies: list[CostFormulas] = []
    for name in groups[0]:
        try:
            strategies.append(formulas_of(opened[name]))
        except FormulaMissingError as error:
            message = f"@{name} has no formulas: {error}; choose others with --function"
            raise DiagnosticError(Diagnostic(message)) from error
    return strategies


def plane_plot(
    functions: Mapping[str, CostFunction],
    x: ParameterSpan,
    y: ParameterSpan,
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
    drawn = plane(functions, x, y, cost, points, **values)
    first = next(iter(functions.values()))
    fixed = same_values(functions, values)
    return regions(
        f"{_SUPERLATIVES[cost]} on {mesh_title(first.formulas.mesh)}{_others(first, drawn, fixed)}",
        (x.name, y.name),
        (drawn.xs.tolist(), drawn.ys.tolist()),
        [*functions],
        drawn.best,
        _gains(drawn),
        _equations(functions, drawn),
    )


def _equations(functions: Mapping[str, CostFunction], plane: Plane) -> dict[tuple[int, int], str]:
    """Return the equation on which two neighbouring best functions cost the same, by their numbers.

    Pairs that need several equations are left out.
    """
    if plane.cost not in COSTS:
        return {}
    best, listed = plane.best, [f.formulas for f in functions.values()]
    beside = [(best[:, 1:], best[:, :-1]), (best[1:], best[:-1])]
    pairs = {(min(x), max(x)) for a, b in beside for x in zip(a.flat, b.flat, strict=True)}
    equations: dict[tuple[int, int], str] = {}
    for a, b in sorted((int(a), int(b)) for a, b in pairs if 0 <= a < b):
        with suppress(FormulaMissingError):
            conditions = compared(listed[a], listed[b], plane.cost).conditions
            if [len(some) for some in conditions] == [1]:
                [[inequality]] = conditions
                sides = (inequality.less, inequality.more)
                names = [{str(x) for x in side.free_symbols} for side in sides]
                left = 0 if {plane.x, plane.y} & names[0] else 1
                equations[a, b] = f"{text_of(sides[left])} = {text_of(sides[1 - left])}"
    return equations


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
