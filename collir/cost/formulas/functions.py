"""Functions in expressions of costs beside sums, products and powers, with their values in numpy.

sympy simplifies only the terms around them. A function that depends on a device, such as the
slowdown of its products, is a class for each device.
"""

import copyreg
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import sympy

from collir.cost.programs.products import ALIGNED, tiled_slowdowns
from collir.layout.formulas import Formula
from collir.layout.sizes import OpenSize
from collir.machine import Efficiency, Execution

Array = npt.NDArray[np.float64]

Column = float | Array
"""A number, or an array of one for each row of values."""

Expr = sympy.Expr
"""An expression of sympy."""


class Printer(Protocol):
    """A printer of sympy."""

    def doprint(self, expr: Expr) -> str: ...


T = TypeVar("T", bound="Valued")


class FormulaMissingError(Exception):
    """A cost that is no formula."""


class Valued(sympy.Function):
    """A function with values in numpy."""

    @classmethod
    def values(cls, *numbers: Column) -> Column:
        """Return the values for numbers or arrays."""
        raise NotImplementedError


class Larger(Valued):
    """The largest of several numbers."""

    @classmethod
    def eval(cls, *numbers: Expr) -> Expr | None:
        """Return the maximum of numbers; otherwise flatten nested maxima."""
        flat = dict.fromkeys(
            y for x in numbers for y in (x.args if isinstance(x, Larger) else (x,))
        )
        if all(x.is_Number for x in flat):
            return max(flat)
        if any(x.is_nonnegative and not x.is_zero for x in flat):
            flat = {x: None for x in flat if not x.is_zero}
            if len(flat) == 1:
                return next(iter(flat))
        return None if list(flat) == list(numbers) else cls(*flat)

    def _sympystr(self, printer: Printer) -> str:
        return f"max({', '.join(map(printer.doprint, self.args))})"

    def _latex(self, printer: Printer) -> str:
        return rf"\max\left({', '.join(map(printer.doprint, self.args))}\right)"

    @classmethod
    def values(cls, *numbers: Column) -> Column:
        """Return the largest of numbers or arrays."""
        first, *others = numbers
        for other in others:
            first = np.maximum(first, other)
        return first


class Several(Valued):
    """1 where a number is not 1, and 0 where it is."""

    @classmethod
    def eval(cls, *numbers: Expr) -> Expr | None:
        """Return a number for a number."""
        [number] = numbers
        return sympy.Integer(int(number != 1)) if number.is_Number else None

    def _sympystr(self, printer: Printer) -> str:
        return f"[{printer.doprint(self.args[0])} > 1]"

    def _latex(self, printer: Printer) -> str:
        return rf"\left[{printer.doprint(self.args[0])} > 1\right]"

    @classmethod
    def values(cls, *numbers: Column) -> Column:
        """Return 1 or 0 for each number."""
        return np.where(np.rint(numbers[0]) != 1, 1.0, 0.0)


class Slowdown(Valued):
    """The time of products relative to the full rate, by their number, rows, columns and length."""


class Bandwidth(Valued):
    """The bandwidth of a kernel in bytes/second, by its bytes and the bandwidth of the memory."""


@cache
def slowdown_on(efficiency: Efficiency) -> type[Valued]:
    """Return a device's function from the number, rows, columns and length of products to their
    time divided by the time at the full rate."""

    def values(_: type[Valued], *numbers: Column) -> Array:
        sides = np.rint(np.stack(np.broadcast_arrays(*numbers)))
        distinct, which = distinct_rows(np.atleast_2d(sides.T))
        slowdowns = 1 / np.where(
            (distinct[:, 1:] % ALIGNED == 0).all(axis=1), 1, efficiency.unaligned
        )
        if efficiency.tile is not None:
            units, depth = efficiency.units, efficiency.depth
            n, rows, columns, length = distinct.T
            tile = efficiency.tile
            slowdowns = slowdowns * tiled_slowdowns(n, rows, columns, length, tile, units, depth)
        return slowdowns[which].reshape(sides.shape[1:])

    return new_function(Slowdown, (slowdown_on, efficiency), values=values)


@cache
def bandwidth_of(execution: Execution) -> type[Valued]:
    """Return the function from a kernel's bytes and the bandwidth of the memory to the bandwidth of
    the kernel, in bytes/second."""
    streams = np.log(np.array(execution.streams))

    def values(_: type[Valued], size: Column, memory: Column) -> Array:
        with np.errstate(divide="ignore"):
            rates = np.exp(np.interp(np.log(size), streams[:, 0], streams[:, 1]))
        return np.where(np.asarray(size) > 0, rates, memory)

    return new_function(Bandwidth, (bandwidth_of, execution), values=values)


def new_function(
    base: type[T],
    recipe: tuple[Callable[[Any], object], object] | None = None,
    **methods: Callable[..., Any],
) -> type[T]:
    """Return a new class of functions.

    Args:
        recipe: the function that returns this class, and its argument, by which it is pickled.
    """
    name = f"{base.__name__}{len(base.__subclasses__())}"
    own: dict[str, Any] = {key: classmethod(method) for key, method in methods.items()}
    return cast("type[T]", type(name, (base,), own | {"recipe": recipe}))


def _pickled(function: type[object]) -> str | tuple[Any, ...]:
    """Return how a class of functions is pickled: by its name, or its recipe."""
    recipe = vars(function).get("recipe")
    return function.__qualname__ if recipe is None else (recipe[0], recipe[1:])


copyreg.pickle(type(sympy.Function), _pickled)


def distinct_rows(table: Array) -> tuple[Array, npt.NDArray[np.intp]]:
    """Return the distinct rows of a table of some columns, and for each row the index of its
    distinct row."""
    mixed = table[:, : len(_MIXED)] @ _MIXED[: table.shape[1]]
    _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
    if not np.array_equal(table[first][which], table):  # two rows have one number
        distinct, which = np.unique(table, axis=0, return_inverse=True)
        return distinct, which.ravel()
    return table[first], which.ravel()


_MIXED = np.modf(np.sqrt(np.array([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37])))[0]
"""Column by which different rows of integers get different sums."""


# --- symbols ------------------------------------------------------------------------------------


def symbol(name: str) -> sympy.Symbol:
    """Return the symbol of a parameter, a constant, or an axis, whose name begins with ``@``."""
    return sympy.Symbol(name.removeprefix("@"), positive=True)


def as_number(expr: Expr) -> int:
    """Return an expression in the place of a number, for what only adds, multiplies and divides."""
    return cast("int", expr)


def expression(number: float) -> Expr:
    """Return a number, or the formula of an open size, as an expression."""
    if isinstance(number, OpenSize):
        return expression_of(number.formula)
    whole = isinstance(number, int) or float(number).is_integer()
    return sympy.Integer(int(number)) if whole else sympy.Float(number)


@cache
def expression_of(formula: Formula) -> Expr:
    """Return a formula as an expression."""
    terms: list[Expr] = []
    for powers, coefficient in formula.terms:
        factors = [
            (symbol(atom) if isinstance(atom, str) else expression_of(atom)) ** exponent
            for atom, exponent in powers
        ]
        number = sympy.Rational(coefficient.numerator, coefficient.denominator)
        terms.append(sympy.Mul(number, *factors))
    return sympy.Add(*terms)
