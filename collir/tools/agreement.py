"""Comparisons of the results of two runs of a function, up to rounding.

Results that differ more than their roundings allow may still be right: what is nearly zero is
noise, and a division by it magnifies that. So results may differ as much as they do if the inputs
are a little different.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.func import FuncOp

from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.layout import DType
from collir.semantics.reference.buffers import equal
from collir.semantics.reference.collectives import Array, Buffers

DOUBLE_ROUNDINGS = 2**26
"""Roundings that a comparison in f64 allows: it sees mistakes above a 10^8th of the largest."""

PERTURBATION = 2.0**-28
"""The relative change of inputs by which it is seen how much a result magnifies differences; it is
less than what a comparison in f64 allows in any case."""


@dataclass(frozen=True)
class Difference:
    """A result that differs between two runs.

    Attributes:
        result: its name, such as ``%loss`` or ``result 1``.
        ranks: the devices that it differs on.
        text: by how much, and how much is allowed.
    """

    result: str
    ranks: tuple[int, ...]
    text: str


def result_name(function: FuncOp, number: int) -> str:
    """Return the name of a result of a function in reports."""
    name = plan_buffers(function).returned[number].name_hint
    return f"%{name}" if name else f"result {number}"


def differences(
    function: FuncOp,
    actual: Sequence[Buffers],
    expected: Sequence[Buffers],
    roundings: int,
    nearby: Callable[[], Sequence[Buffers]],
) -> list[Difference]:
    """Return the results of a function that differ more than is allowed.

    Args:
        actual: the buffers of all devices, for each result.
        expected: the buffers that they should be.
        roundings: the number of roundings that are allowed; 0 for a comparison bit by bit.
        nearby: a function that returns ``expected`` for inputs that are ``perturbed``.
    """
    found: list[Difference] = []
    others: Sequence[Buffers] = ()
    for number, value in enumerate(plan_buffers(function).returned):
        pairs = list(zip(actual[number], expected[number], strict=True))
        dtype = dist_type(value).dtype
        wrong = [n for n, pair in enumerate(pairs) if not _same(*pair, roundings, dtype)]
        moved = 0.0
        if wrong and roundings:
            others = others or nearby()
            near = others[number]
            moved = max(_moved(x, y) for (_, x), y in zip(pairs, near, strict=True))
            wrong = [n for n in wrong if not _distance(*pairs[n]) <= moved]
        if wrong:
            most = max(moved, *(_allowed(x, roundings, dtype) for _, x in pairs if x is not None))
            text = _text([pairs[n] for n in wrong], most)
            found.append(Difference(result_name(function, number), tuple(wrong), text))
    return found


def perturbed(tensor: Array) -> Array:
    """Return numbers that differ a little from others, each by its own share."""
    if tensor.dtype.kind != "f":
        return tensor
    shares = np.random.default_rng(1).uniform(-1, 1, tensor.shape)
    return (tensor * (1 + PERTURBATION * shares)).astype(tensor.dtype)


def same(actual: Array, expected: Array, roundings: int, dtype: DType) -> bool:
    """Return whether two arrays are equal, up to some roundings of their largest element."""
    if actual.shape != expected.shape:
        return False
    if equal(actual, expected):
        return True
    wide, most = expected.astype(np.float64), _allowed(expected, roundings, dtype)
    return bool(np.allclose(actual.astype(np.float64), wide, 0, most, equal_nan=True))


def _same(actual: Array | None, expected: Array | None, roundings: int, dtype: DType) -> bool:
    if actual is None or expected is None:
        return actual is expected
    return same(actual, expected, roundings, dtype)


def _allowed(expected: Array, roundings: int, dtype: DType) -> float:
    """Return the largest difference that some roundings of the largest element make."""
    epsilon = dtype.epsilon or DType.BF16.epsilon  # an integer may be a rounded float
    wide = expected.astype(np.float64)
    return roundings * epsilon * max(1.0, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)))


def _distance(a: Array | None, b: Array | None) -> float:
    """Return the largest difference of two arrays of numbers that are finite in the same places;
    NaN if they are not."""
    if a is None or b is None or a.dtype.kind != "f":
        return np.nan
    a, b = a.astype(np.float64), b.astype(np.float64)
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.nan
    return _moved(a, b)


def _moved(a: Array | None, b: Array | None) -> float:
    """Return the largest difference of the elements that are finite in both of two arrays."""
    if a is None or b is None:
        return 0.0
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))


def _text(pairs: Sequence[tuple[Array | None, Array | None]], most: float) -> str:
    """Return by how much buffers differ, and how much is allowed."""
    numbers = [
        (a.astype(np.float64), b.astype(np.float64))
        for a, b in pairs
        if a is not None and b is not None and a.shape == b.shape
    ]
    if len(numbers) < len(pairs):
        return "has other shapes"
    if any(not np.array_equal(np.isfinite(a), np.isfinite(b)) for a, b in numbers):
        return "is NaN or infinite at other places"
    largest = max(_moved(a, b) for a, b in numbers)
    return f"differs by {largest:.3g}, and {f'{most:.3g} is' if most else 'nothing is'} allowed"
