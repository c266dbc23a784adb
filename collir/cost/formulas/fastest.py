"""The function that costs least, along a parameter, an axis or a constant of the machine, or in the
plane of two."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collir.cost.formulas.function import CostFunction, CostValues
from collir.cost.formulas.functions import Array
from collir.cost.network.group import CostError

DENSE = 2**10
"""The number of values that are all computed; of more values, as many on a logarithmic scale."""

MACHINES = 2**6
"""The number of values of a constant of the machine, on a logarithmic scale."""


@dataclass(frozen=True)
class ParameterSpan:
    """The values of a parameter, an axis, or a constant such as ``node.port``, from ``low`` to
    ``high``. Values that some function cannot have, as they do not divide, are left out."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Plane:
    """The costs of functions for the values of two parameters.

    Attributes:
        costs: seconds or bytes by the names of functions, of shape (len(ys), len(xs)); not a number
            where a function cannot have the sizes.
    """

    x: str
    y: str
    xs: Array
    ys: Array
    cost: str
    costs: Mapping[str, Array]

    @property
    def best(self) -> NDArray[np.int64]:
        """The numbers of the functions that cost least; -1 where no function can have the sizes."""
        table = np.stack([*self.costs.values()])
        none = np.isnan(table).all(axis=0)
        return np.where(none, -1, np.argmin(np.where(np.isnan(table), np.inf, table), axis=0))


def changes(
    functions: Mapping[str, CostFunction],
    along: ParameterSpan,
    cost: str = "time",
    margin: float = 0.0,
    **values: float,
) -> list[tuple[float, str]]:
    """Return the function that costs least along a parameter, as (first value, name) pairs.

    At most ``DENSE`` values are tried (of a constant, ``MACHINES``), on a logarithmic scale. Where
    the best function changes, values in between are tried in the same way. A function that is best
    only between two values with the same best function is missed.

    Args:
        functions: functions by name; if costs are equal, the first one is named.
        cost: a field of ``CostValues``.
        margin: the share by which the next function must be cheaper; times of products go up and
            down with the tiles that they fill.
        values: the values of other parameters, axes and constants. Other parameters and axes have
            the values of the first function; other constants keep those of each function.

    Raises:
        ValueError: no function can have any of the values, or there is no such cost.
    """
    names, values = [*functions], same_values(functions, values)
    points, table = _whole(functions, along, values, DENSE, cost)
    best = int(np.argmin(table[:, 0]))
    is_constant = _is_constant(functions, along.name)
    number_of = float if is_constant else int
    ranges: list[tuple[float, str]] = [(number_of(points[0]), names[best])]
    for number in range(1, len(points)):
        if not _is_less(table, best, margin)[number]:
            continue
        before = float(points[number - 1])
        between = ParameterSpan(
            along.name, before if is_constant else before + 1, float(points[number])
        )
        inner, costs = _whole(functions, between, values, DENSE, cost)
        first = int(np.argmax(_is_less(costs, best, margin)))
        best = int(np.argmin(costs[:, first]))
        ranges.append((number_of(inner[first]), names[best]))
    return ranges


def _is_less(table: Array, best: int, margin: float) -> NDArray[np.bool_]:
    """Return the columns in which some row is less than row ``best`` by more than a share."""
    return table.min(axis=0) < table[best] * (1 - margin)


def plane(
    functions: Mapping[str, CostFunction],
    x: ParameterSpan,
    y: ParameterSpan,
    cost: str = "time",
    points: int = 60,
    **values: float,
) -> Plane:
    """Return the costs of functions in the plane of two parameters.

    Args:
        points: the number of values of each, on a logarithmic scale.
        values, cost: see ``changes``.

    Raises:
        ValueError: no function can have any of the values, or there is no such cost.
    """
    values = same_values(functions, values)
    xs, ys = (_whole(functions, span, values, points, cost)[0] for span in (x, y))
    across, up = (grid.ravel() for grid in np.meshgrid(xs, ys))
    costs = {
        name: _costs(function, {**values, x.name: across, y.name: up}, cost)
        for name, function in functions.items()
    }
    if all(np.isnan(c).all() for c in costs.values()):
        ranges = " and ".join(f"{s.name} from {s.low} to {s.high}" for s in (x, y))
        raise ValueError(f"no values of {ranges} fit any function")
    shape = len(ys), len(xs)
    return Plane(x.name, y.name, xs, ys, cost, {n: c.reshape(shape) for n, c in costs.items()})


def same_values(
    functions: Mapping[str, CostFunction], values: Mapping[str, float]
) -> dict[str, float]:
    """Return values that all functions are compared at: those of the first, or the given ones."""
    first, *others = functions.values()
    shared = {n: x for n, x in first.values.items() if all(n in f.values for f in others)}
    return {**shared, **values}


def _whole(
    functions: Mapping[str, CostFunction],
    span: ParameterSpan,
    values: Mapping[str, float],
    most: int,
    cost: str,
) -> tuple[Array, Array]:
    """Return at most ``most`` values that all functions can have, and the costs of functions.

    Raises:
        ValueError: there are none, or there is no such cost.
    """
    if cost not in CostValues._fields:
        raise ValueError(f"costs are {', '.join(CostValues._fields)}, not '{cost}'")
    points = _points(functions, span, values, most)
    table = np.stack([_costs(f, {**values, span.name: points}, cost) for f in functions.values()])
    whole = ~np.isnan(table).any(axis=0)
    if not whole.any():
        listed = ", ".join(f"@{name}" for name in functions)
        raise ValueError(
            f"no value of {span.name} from {span.low:g} to {span.high:g} fits {listed}"
        )
    return points[whole], table[:, whole]


def _points(
    functions: Mapping[str, CostFunction],
    span: ParameterSpan,
    values: Mapping[str, float],
    most: int,
) -> Array:
    """Return at most ``most`` values of a span: all integers if they are few enough, else values on
    a logarithmic scale. An axis has powers of two, and a constant at most ``MACHINES`` values. A
    parameter has multiples of the first value that all functions can have."""
    low, high = span.low, span.high
    if _is_constant(functions, span.name):
        return np.geomspace(low, high, min(most, MACHINES))
    if any(span.name in f.formulas.axes for f in functions.values()):
        return np.array([2.0**k for k in range(64) if low <= 2**k <= high])
    if high - low < most:
        return np.arange(low, high + 1.0)
    firsts = ParameterSpan(span.name, 1, DENSE)
    unit = _whole(functions, firsts, values, DENSE, "memory")[0][0]
    steps = np.geomspace(max(1, np.ceil(low / unit)), max(1, high // unit), most)
    return np.unique(np.rint(steps)) * unit


def _is_constant(functions: Mapping[str, CostFunction], name: str) -> bool:
    return any(name in function.constants for function in functions.values())


def _costs(function: CostFunction, values: Mapping[str, Array | float], cost: str) -> Array:
    """Return costs; not a number where the machine cannot have the sizes of axes."""
    arrays = {name: x for name, x in values.items() if isinstance(x, np.ndarray)}
    axes = [name for name in arrays if name in function.formulas.axes]
    if not axes:
        return getattr(function(**values), cost)
    rows = np.stack([arrays[name] for name in axes], axis=1)
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    costs = np.full(len(rows), np.nan)
    for number, sizes in enumerate(distinct):
        own = np.flatnonzero(which.ravel() == number)
        part = {name: x[own] for name, x in arrays.items()}
        fixed = {name: int(size) for name, size in zip(axes, sizes, strict=True)}
        with suppress(CostError):
            costs[own] = getattr(function(**{**values, **part, **fixed}), cost)
    return costs
