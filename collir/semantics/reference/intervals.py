"""Arrays of intervals, which the executor's steps take in place of arrays of numbers.

An interval contains the exact value of an element and every value that rounding may make of it. It
is a single number as long as the element type holds all values exactly. Every rounding widens it by
the type's precision. A cast to an integer truncates. An integer that may overflow in an addition or
a scaling may be any number, and so may a float that is cast to an integer type that is too small.
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
"""The relative difference up to which factors count as equal: 0.3333333 counts as a third."""

_WHOLE = 2**53
"""The largest integer below which float64 holds every integer."""


class Intervals(NDArrayOperatorsMixin):
    """An array of intervals.

    Attributes:
        low: the lower ends.
        high: the upper ends; the same array as ``low`` if every interval is a single number.
        dtype: the element type that holds the numbers.
    """

    def __init__(self, low: Numbers, high: Numbers, dtype: np.dtype[Any]):
        self.low, self.high, self.dtype = low, high, dtype

    @staticmethod
    def of(numbers: NDArray[Any]) -> "Intervals":
        """Return intervals that are single numbers."""
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
        """Return the intervals moved by a function that only moves elements."""
        low = np.asarray(function(self.low))
        if self.low is self.high:
            return Intervals(low, low, self.dtype)
        return Intervals(low, np.asarray(function(self.high)), self.dtype)

    def reshape(self, *shape: Any) -> "Intervals":
        """Return the same intervals in another shape."""
        return self._moved(lambda side: side.reshape(*shape))

    def copy(self) -> "Intervals":
        """Return a copy that shares no memory."""
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
        """Return the intervals in another element type."""
        target = np.dtype(dtype)
        if np.issubdtype(target, np.integer):
            return self._truncated(target)
        if target.kind == "b":
            low = ((self.low > 0) | (self.high < 0)).astype(np.float64)
            high = ((self.low != 0) | (self.high != 0)).astype(np.float64)
            return Intervals(low, low if np.array_equal(low, high) else high, target)
        return _held(self.low, self.high, target, np.True_)

    def _truncated(self, target: np.dtype[Any]) -> "Intervals":
        """Return the intervals in an integer type: truncated; single integers wrap around."""
        low, high = np.trunc(self.low), np.trunc(self.high)
        if np.issubdtype(self.dtype, np.integer):
            half = float(2 ** (8 * target.itemsize - 1))
            wraps = (low == high) & (np.abs(low) < _WHOLE) & ((low < -half) | (low >= half))
            low, high = (
                np.where(wraps, np.mod(side + half, 2 * half) - half, side) for side in (low, high)
            )
        return _held(low, high, target, np.True_)

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
        self, function: Callable[..., Any], _: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        low, high = (function(*_ends(args, name), **kwargs) for name in ("low", "high"))
        if function not in _MOVES and not _all_single(args):
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
"""The functions that only move elements, or compare arrays. The results of other functions of
intervals are unknown."""

_Pair = tuple[Numbers, Numbers]
_Result = tuple[Numbers, Numbers, "Mask | np.bool_"]
"""The lower ends, the upper ends, and a mask of where float64 holds both exactly."""


def _pair(operand: Any) -> _Pair:
    if isinstance(operand, Intervals):
        return operand.low, operand.high
    number = np.asarray(operand).astype(np.float64)
    return number, number


def _ends(args: Any, name: str) -> Any:
    """Return the arguments of a function with intervals replaced by their lower or upper ends."""
    if isinstance(args, Intervals):
        return getattr(args, name)
    if isinstance(args, list | tuple):
        return type(args)(_ends(arg, name) for arg in args)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return args


def _all_single(args: Any) -> bool:
    """Return whether all intervals in the arguments of a function are single numbers."""
    if isinstance(args, list | tuple):
        return all(map(_all_single, cast(Sequence[object], args)))
    return not isinstance(args, Intervals) or args.low is args.high


def _added(pairs: Sequence[_Pair]) -> _Result:
    a, b = pairs
    low, high = a[0] + b[0], a[1] + b[1]
    return low, high, _is_exact_sum(low, a[0], b[0]) & _is_exact_sum(high, a[1], b[1])


def _is_exact_sum(total: Numbers, a: Numbers, b: Numbers) -> Mask:
    return (total - a == b) & (total - b == a)


def _subtracted(pairs: Sequence[_Pair]) -> _Result:
    a, (low, high) = pairs
    return _added([a, (-high, -low)])


def _negated(pairs: Sequence[_Pair]) -> _Result:
    ((low, high),) = pairs
    return -high, -low, np.True_


def _multiplied(pairs: Sequence[_Pair]) -> _Result:
    a, b = pairs
    products = [x * y for x in a for y in b]
    low, high = np.minimum.reduce(products), np.maximum.reduce(products)
    exact = np.True_  # a product of factors of 24 bits is exact in float64
    for side in (*a, *b):
        exact = exact & (side.astype(np.float32) == side)
    return low, high, exact


def _divided(pairs: Sequence[_Pair]) -> _Result:
    a, (least, most) = pairs
    low, high, _ = _multiplied([a, (1 / most, 1 / least)])
    unknown = (least <= 0) & (most >= 0) & (least < most)  # anything, beside 0 on both sides
    low, high = np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high)
    return low, high, (low == high) & (low * least == a[0])


def _largest(pairs: Sequence[_Pair]) -> _Result:
    a, b = pairs
    return np.maximum(a[0], b[0]), np.maximum(a[1], b[1]), np.True_


def _smallest(pairs: Sequence[_Pair]) -> _Result:
    a, b = pairs
    return np.minimum(a[0], b[0]), np.minimum(a[1], b[1]), np.True_


def _same(pairs: Sequence[_Pair]) -> _Result:
    return *pairs[0], np.True_


def _compared(function: np.ufunc) -> Callable[[Sequence[_Pair]], _Result]:
    """Return the rule of a comparison: the smallest and the largest truth value of any ends; two
    intervals may be equal if neither is above the other."""

    def rule(pairs: Sequence[_Pair]) -> _Result:
        a, b = pairs
        truths = [function(x, y) for x in a for y in b]
        apart = (a[0] > b[1]) | (b[0] > a[1]) | ((a[0] == a[1]) & (b[0] == b[1]))
        low = np.logical_and.reduce(truths) & apart
        high = np.logical_or.reduce(truths) | ~apart
        return low.astype(np.float64), high.astype(np.float64), np.True_

    return rule


def _growing(function: np.ufunc) -> Callable[[Sequence[_Pair]], _Result]:
    """Return the rule of a function that grows with its operand; outside its domain, anything."""

    def rule(pairs: Sequence[_Pair]) -> _Result:
        ((low, high),) = pairs
        return function(low), function(high), np.False_

    return rule


def _wave(function: np.ufunc, crest: float) -> Callable[[Sequence[_Pair]], _Result]:
    """Return the rule of a sine whose crests are at ``crest`` and every 2 pi from there."""

    def between(low: Numbers, high: Numbers, at: float) -> Mask:
        """Return whether an interval holds ``at`` plus a multiple of 2 pi, or may do so."""
        spread = 2.0**-40 * (1 + np.maximum(np.abs(low), np.abs(high)))
        first, last = ((side - at) / (2 * np.pi) for side in (low - spread, high + spread))
        return np.floor(last) >= np.ceil(first)

    def rule(pairs: Sequence[_Pair]) -> _Result:
        ((low, high),) = pairs
        ends = function(low), function(high)
        single = low == high
        top = between(low, high, crest) & ~single
        bottom = between(low, high, crest + np.pi) & ~single
        least = np.where(bottom, -1.0, np.minimum(*ends))
        most = np.where(top, 1.0, np.maximum(*ends))
        return least, most, np.False_

    return rule


_RULES: dict[np.ufunc, Callable[[Sequence[_Pair]], _Result]] = {
    np.positive: _same,
    np.add: _added,
    np.subtract: _subtracted,
    np.negative: _negated,
    np.multiply: _multiplied,
    np.true_divide: _divided,
    np.maximum: _largest,
    np.minimum: _smallest,
    **{function: _growing(function) for function in (np.exp, np.log, np.sqrt, np.tanh)},
    **{
        function: _compared(function)
        for function in (
            np.greater,
            np.greater_equal,
            np.less,
            np.less_equal,
            np.equal,
            np.not_equal,
        )
    },
    np.sin: _wave(np.sin, np.pi / 2),
    np.cos: _wave(np.cos, 0.0),
}
"""The interval arithmetic of numpy's functions; other functions take single numbers only."""


def _of_numbers(ufunc: np.ufunc, pairs: Sequence[_Pair]) -> _Result:
    """Return a function of single numbers; where an operand is wider, the result is unknown."""
    value = ufunc(*(low for low, _ in pairs))
    single = np.True_
    for low, high in pairs:
        single = single & (low == high)
    return np.where(single, value, -np.inf), np.where(single, value, np.inf), np.False_


_FACTORED = frozenset([np.multiply, np.true_divide])
"""The functions that introduce factors, which count as equal up to ``FACTORS``."""


def _held(
    low: Numbers, high: Numbers, dtype: np.dtype[Any], exact: Mask | np.bool_, more: float = 0.0
) -> Intervals:
    """Return intervals in an element type, widened by its precision or ``more`` where it rounds."""
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
    """Return the spacing of the numbers above 1, at least twice that of float64."""
    return max(_EPSILON[dtype], 2.0**-51)
