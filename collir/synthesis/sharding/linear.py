"""Linear programs, by HiGHS."""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class LinearOptimum(NamedTuple):
    """The optimum of a linear program.

    Attributes:
        value: the least cost.
        x: the variables.
        prices: how much less it would cost if each upper limit were larger by one.
    """

    value: float
    x: Vector
    prices: Vector


def minimum(
    costs: Vector, rows: Vector, limits: Vector, equal_rows: Vector, equal: Vector
) -> LinearOptimum:
    """Return the least cost of variables that are 0 or more.

    Args:
        costs: the cost of each variable.
        rows: a matrix; its product with the variables is at most ``limits``.
        equal_rows: a matrix; its product with the variables is ``equal``.

    Raises:
        ValueError: there is no optimum.
    """
    linprog: Any = import_module("scipy.optimize").linprog  # imported here as it is slow
    optimum: Any = linprog(costs, A_ub=rows, b_ub=limits, A_eq=equal_rows, b_eq=equal)
    if optimum.x is None:
        raise ValueError(f"a linear program has no optimum: {optimum.message}")
    return LinearOptimum(
        float(optimum.fun),
        np.asarray(optimum.x),
        np.maximum(0.0, -np.asarray(optimum.ineqlin.marginals)),
    )
