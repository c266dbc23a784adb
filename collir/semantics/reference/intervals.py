"""Arrays of intervals, on which the executor's steps run as they do on arrays of numbers.

An interval holds the real number that an element stands for, and what rounding may make of it. It
is one number as long as the element type holds every value exactly; from there on it grows by the
type's precision. A cast to an integer cuts fractions off. An integer that wraps around where it is
added or scaled may be any number, as may a float that is cast to an integer of too few bits.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from collir.layout import DType
from collir.semantics.reference.buffers import NUMPY

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]

FACTORS = 2.0**-21
"""Relative difference of factors that count as equal: 0.3333333 is a third."""

_WHOLE = 2**53
"""Up to here, every integer is a float64."""


class Intervals(NDArrayOperatorsMixin):
    """An array of intervals.

    Attributes:
        low: the lower ends.
        high: the upper ends; the same array where every interval is one number.
        dtype: the element type that the numbers are held in.
    """

    def __init__(self, low: Numbers, high: Numbers, dtype: np.dtype[Any]):
        self.low, self.high, self.dtype = low, high, dtype

    @staticmethod
    def of(numbers: NDArray[Any]) -> "Intervals":
        """The intervals that are numbers."""
        wide = numbers.astype(np.float64)
        return Intervals(wide, wide, numbers.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.low.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.low.ndim

    def _moved(self, function: Callable[[Numbers], Numbers]) -> "Intervals":
        """The intervals that a function puts in another place."""
        low = np.asarray(function(self.low))
        if self.low is self.high:
            return Intervals(low, low, self.dtype)
        return Intervals(low, np.asarray(function(self.high)), self.dtype)

    def reshape(self, *shape: Any) -> "Intervals":
        """The same intervals in another shape."""
        return self._moved(lambda side: side.reshape(*shape))

    def copy(self) -> "Intervals":
        """The same intervals in arrays of their own."""
        return self._moved(np.copy)

    def __getitem__(self, key: Any) -> "Intervals":
        return self._moved(lambda side: side[key])

    def __setitem__(self, key: Any, value: "Intervals") -> None:
        if self.low is self.high and value.low is not value.high:
            self.high = self.low.copy()
        self.low[key] = value.low
        if self.high is not self.low:
            self.high[key] = value.high

    def astype(self, dtype: Any) -> "Intervals":
        """The intervals in another element type."""
        wanted = np.dtype(dtype)
        if np.issubdtype(wanted, np.integer):
            return self._cut(wanted)
        return _held(self.low, self.high, wanted, np.True_)

    def _cut(self, wanted: np.dtype[Any]) -> "Intervals":
        """The intervals in an integer type: without fractions, and wrapped around if known."""
        low, high = np.trunc(self.low), np.trunc(self.high)
        if np.issubdtype(self.dtype, np.integer):
            half = float(2 ** (8 * wanted.itemsize - 1))
            wraps = (low == high) & (np.abs(low) < _WHOLE) & ((low < -half) | (low >= half))
            low, high = (
                np.where(wraps, np.mod(side + half, 2 * half) - half, side) for side in (low, high)
            )
        return _held(low, high, wanted, np.True_)

    # --- numpy's functions ----------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **_: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        pairs = [_pair(operand) for operand in operands]
        with np.errstate(all="ignore"):
            rule = _RULES.get(ufunc)
            low, high, exact = rule(pairs) if rule else _of_numbers(ufunc, pairs)
            return _held(low, high, self.dtype, exact, FACTORS if ufunc in _FACTORED else 0.0)

    def __array_function__(
        self, function: Callable[..., Any], _: Any, given: Any, named: dict[str, Any]
    ) -> Any:
        low, high = (function(*_sides(given, name), **named) for name in ("low", "high"))
        if function not in _MOVES and not _single(given):
            low, high = np.full_like(low, -np.inf), np.full_like(high, np.inf)
        if isinstance(low, list):
            pairs = zip(cast(list[Numbers], low), high, strict=True)
            return [Intervals(*pair, self.dtype) for pair in pairs]
        if isinstance(low, bool):
            return low and high
        return Intervals(low, high, self.dtype)


_MOVES = frozenset(
    [np.concatenate, np.split, np.transpose, np.pad, np.zeros_like, np.ones_like, np.array_equal]
)
"""The functions that put elements in another place, or compare arrays; of what others give of
intervals nothing is known."""

_Pair = tuple[Numbers, Numbers]
_Result = tuple[Numbers, Numbers, "Mask | np.bool_"]
"""The ends of intervals, and where float64 holds them exactly."""


def _pair(operand: Any) -> _Pair:
    if isinstance(operand, Intervals):
        return operand.low, operand.high
    number = np.asarray(operand).astype(np.float64)
    return number, number


def _sides(given: Any, name: str) -> Any:
    """Arguments of a function with one end in the place of intervals."""
    if isinstance(given, Intervals):
        return getattr(given, name)
    if isinstance(given, list | tuple):
        return type(given)(_sides(one, name) for one in given)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return given


def _single(given: Any) -> bool:
    """Whether no argument of a function has intervals that are more than a number."""
    if isinstance(given, list | tuple):
        return all(map(_single, cast(Sequence[object], given)))
    return not isinstance(given, Intervals) or given.low is given.high


def _added(pairs: Sequence[_Pair]) -> _Result:
    one, other = pairs
    low, high = one[0] + other[0], one[1] + other[1]
    exact = _exact_sum(low, one[0], other[0]) & _exact_sum(high, one[1], other[1])
    return low, high, exact


def _exact_sum(total: Numbers, one: Numbers, other: Numbers) -> Mask:
    return (total - one == other) & (total - other == one)


def _subtracted(pairs: Sequence[_Pair]) -> _Result:
    one, (low, high) = pairs
    return _added([one, (-high, -low)])


def _negated(pairs: Sequence[_Pair]) -> _Result:
    ((low, high),) = pairs
    return -high, -low, np.True_


def _multiplied(pairs: Sequence[_Pair]) -> _Result:
    one, other = pairs
    corners = [a * b for a in one for b in other]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    exact = np.True_  # of factors of 24 bits
    for side in (*one, *other):
        exact = exact & (side.astype(np.float32) == side)
    return low, high, exact


def _divided(pairs: Sequence[_Pair]) -> _Result:
    one, (least, most) = pairs
    low, high, _ = _multiplied([one, (1 / most, 1 / least)])
    return low, high, low * least == one[0]


def _largest(pairs: Sequence[_Pair]) -> _Result:
    one, other = pairs
    return np.maximum(one[0], other[0]), np.maximum(one[1], other[1]), np.True_


def _smallest(pairs: Sequence[_Pair]) -> _Result:
    one, other = pairs
    return np.minimum(one[0], other[0]), np.minimum(one[1], other[1]), np.True_


_RULES: dict[np.ufunc, Callable[[Sequence[_Pair]], _Result]] = {
    np.add: _added,
    np.subtract: _subtracted,
    np.negative: _negated,
    np.multiply: _multiplied,
    np.true_divide: _divided,
    np.maximum: _largest,
    np.minimum: _smallest,
}
"""The ends of what functions of numbers give; the others only take single numbers."""


def _of_numbers(ufunc: np.ufunc, pairs: Sequence[_Pair]) -> _Result:
    """What any function gives: known of single numbers, and nothing of wider intervals."""
    value = ufunc(*(low for low, _ in pairs))
    single = np.True_
    for low, high in pairs:
        single = single & (low == high)
    return np.where(single, value, -np.inf), np.where(single, value, np.inf), np.False_


_FACTORED = frozenset([np.multiply, np.true_divide])
"""The functions that bring in factors, which count as equal up to ``FACTORS``."""


def _held(
    low: Numbers, high: Numbers, dtype: np.dtype[Any], exact: Mask | np.bool_, more: float = 0.0
) -> Intervals:
    """Intervals in an element type: wider by its precision, or by ``more``, where it rounds."""
    with np.errstate(all="ignore"):
        if np.issubdtype(dtype, np.integer):
            limit = float(min(2 ** (8 * dtype.itemsize - 1), _WHOLE))
            inside = (low >= -limit) & (high < limit)
            low, high = np.where(inside, low, -np.inf), np.where(inside, high, np.inf)
        else:
            kept = [exact & (side.astype(dtype).astype(np.float64) == side) for side in (low, high)]
            spread = max(_precision(dtype), more)
            low = np.where(kept[0], low, low - spread * np.abs(low))
            high = np.where(kept[1], high, high + spread * np.abs(high))
            low = np.where(np.isnan(low), -np.inf, low)
            high = np.where(np.isnan(high), np.inf, high)
    return Intervals(low, low if np.array_equal(low, high) else high, dtype)


_EPSILON = {NUMPY[dtype]: dtype.epsilon for dtype in DType}


def _precision(dtype: np.dtype[Any]) -> float:
    """The spacing of the numbers above 1; twice that of float64, which computes them."""
    return max(_EPSILON[dtype], 2.0**-51)
