"""Functions in expressions of costs beside sums, products and powers, with their values in numpy.

They are left as they are: sympy simplifies what stands around them.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import sympy

from collir.cost.programs.products import ALIGNED, tiled_slowdowns
from collir.layout.formulas import Formula
from collir.layout.sizes import OpenSize
from collir.machine import Efficiency, Execution

Array = npt.NDArray[np.float64]
Expr = sympy.Expr


class Larger(sympy.Function):
    """The largest one of several numbers."""

    @classmethod
    def eval(cls, *numbers: Expr) -> Expr | None:
        """Return a number for numbers."""
        return max(numbers) if all(x.is_Number for x in numbers) else None


class Smaller(sympy.Function):
    """The smallest one of several numbers."""


class Pieces(sympy.Function):
    """A function of the first argument that is linear in pieces.

    The others are triples: up to which value (the last one is infinite), the value of the piece at
    0, and its slope.
    """


class Slowdown(sympy.Function):
    """The time of products of matrices divided by that at the full rate: of their number, rows,
    columns and length on a device with the efficiency of a number, in ``EFFICIENCIES``."""


class Bandwidth(sympy.Function):
    """The bytes/second of a kernel that moves bytes, by the software of a number, in ``SOFTWARE``,
    on a memory of a bandwidth."""


EFFICIENCIES: list[Efficiency] = []
SOFTWARE: list[Execution] = []


def number_in(known: list[Any], item: object) -> int:
    """Return the place of an item in a list, to which it is added if it is new."""
    if item not in known:
        known.append(item)
    return known.index(item)


@cache
def symbol(name: str) -> sympy.Symbol:
    """Return the symbol of a parameter, or of an axis, whose name begins with ``@``."""
    return sympy.Symbol(name.removeprefix("@"), positive=True)


def expression(number: float) -> Expr:
    """Return a number, or the formula of an open size, as an expression."""
    if not isinstance(number, OpenSize):
        return sympy.Integer(number) if isinstance(number, int) else sympy.Float(number)
    return _expression(number.formula)


@cache
def _expression(formula: Formula) -> Expr:
    terms = []
    for powers, coefficient in formula.terms:
        factors = [
            (symbol(atom) if isinstance(atom, str) else _expression(atom)) ** exponent
            for atom, exponent in powers
        ]
        number = sympy.Rational(coefficient.numerator, coefficient.denominator)
        terms.append(sympy.Mul(number, *factors))
    return sympy.Add(*terms)


# --- values -------------------------------------------------------------------------------------


def larger(*numbers: Any) -> Any:
    """Return the largest of numbers or arrays."""
    first, *others = numbers
    for other in others:
        first = np.maximum(first, other)
    return first


def smaller(*numbers: Any) -> Any:
    """Return the smallest of numbers or arrays."""
    first, *others = numbers
    for other in others:
        first = np.minimum(first, other)
    return first


def pieces(size: Any, *numbers: float) -> Any:
    """Return the values of a function that is linear in pieces."""
    limits, starts, slopes = numbers[::3], numbers[1::3], numbers[2::3]
    result = starts[-1] + slopes[-1] * size
    for limit, start, slope in reversed([*zip(limits, starts, slopes, strict=True)][:-1]):
        result = np.where(size <= limit, start + slope * size, result)
    return result


def slowdowns(count: Any, rows: Any, columns: Any, length: Any, number: float) -> Any:
    """Return the slowdowns of products, of which equal ones are computed once."""
    on = EFFICIENCIES[int(number)]
    sides = np.rint(np.stack(np.broadcast_arrays(count, rows, columns, length)))
    table = np.atleast_2d(sides.T)
    _, first, which = np.unique(table @ _MIXED, return_index=True, return_inverse=True)
    distinct = table[first]
    if not np.array_equal(distinct[which], table):  # two products have one number
        distinct, which = np.unique(table, axis=0, return_inverse=True)
    found = 1 / np.where((distinct[:, 1:] % ALIGNED == 0).all(axis=1), 1.0, on.unaligned)
    if on.tile is not None:
        found = found * tiled_slowdowns(*distinct.T, on.tile, on.units, on.depth)
    return found[which.ravel()].reshape(sides.shape[1:])


_MIXED = np.array([0.7548776662466927, 0.5698402909980532, 0.4301597090019468, 0.3247179572447461])
"""Numbers by which different products get different sums."""


def bandwidths(size: Any, memory: Any, number: float) -> Any:
    """Return the bytes/second of kernels that move bytes."""
    streams = np.log(np.array(SOFTWARE[int(number)].streams))
    with np.errstate(divide="ignore"):
        rates = np.exp(np.interp(np.log(size), streams[:, 0], streams[:, 1]))
    return np.where(np.asarray(size) > 0, rates, memory)


VALUES: Mapping[type, Callable[..., Any]] = {
    Larger: larger,
    Smaller: smaller,
    Pieces: pieces,
    Slowdown: slowdowns,
    Bandwidth: bandwidths,
}
"""The functions that return values in numpy."""
