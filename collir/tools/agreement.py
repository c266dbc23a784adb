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
from collir.ir.names import result_names
from collir.semantics.reference.buffers import equal
from collir.semantics.reference.collectives import Array, Buffers
from collir.transforms.inlining import function_without_calls

DOUBLE_ROUNDINGS = 2**26
"""Roundings that a comparison in f64 allows: it sees mistakes above a 10^8th of the largest."""

PERTURBATION = 2.0**-28
"""The relative change of inputs that shows how much a result magnifies differences; it is less than
a comparison in f64 allows in any case."""


@dataclass(frozen=True)
class RunDifference:
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
    name = result_names(function)[number]
    return f"result {number}" if name.isdigit() else f"%{name}"


def differences(
    function: FuncOp,
    actual: Sequence[Buffers],
    expected: Sequence[Buffers],
    roundings: Sequence[int],
    nearby: Callable[[float], Sequence[Buffers]],
) -> list[RunDifference]:
    """Return the results of a function that differ more than is allowed.

    Args:
        actual: the buffers of all devices, for each result.
        expected: the buffers that they should be.
        roundings: the number of roundings that are allowed for each result; 0 for a comparison bit
            by bit.
        nearby: a function that returns ``expected`` for inputs that are ``perturbed`` by a relative
            change.
    """
    all_wrong: list[RunDifference] = []
    runs: dict[float, Sequence[Buffers]] = {}

    def near(change: float) -> Sequence[Buffers]:
        if change not in runs:
            runs[change] = nearby(change)
        return runs[change]

    coarsest = _coarsest_epsilon(function) if any(roundings) else 0.0
    for number, value in enumerate(plan_buffers(function).returned):
        pairs = list(zip(actual[number], expected[number], strict=True))
        dtype = dist_type(value).dtype
        error = roundings[number] * (dtype.epsilon or coarsest)
        wrong = [n for n, pair in enumerate(pairs) if not same(*pair, error)]
        moved = 0.0
        if wrong and error and dtype.is_float:
            changed = zip(pairs, near(PERTURBATION)[number], strict=True)
            moved = max(_moved(x, y) for (_, x), y in changed)
            wrong = [n for n in wrong if not _distance(*pairs[n]) <= moved]
        elif wrong and error:
            change = max(PERTURBATION, error)
            others = [near(change)[number], near(-change)[number]]
            wrong = [n for n in wrong if not _jumps(*pairs[n], [x[n] for x in others])]
        if wrong:
            most = max(moved, *(_allowed(x, error) for _, x in pairs if x is not None))
            text = _text([pairs[n] for n in wrong], most)
            all_wrong.append(RunDifference(result_name(function, number), tuple(wrong), text))
    return all_wrong


def _coarsest_epsilon(function: FuncOp) -> float:
    """Return the largest epsilon of the dtypes of a function: an integer may be a rounded float."""
    results = (value for op in function_without_calls(function).walk() for value in op.results)
    return max((dist_type(x).dtype.epsilon for x in (*function.args, *results)), default=0.0)


def perturbed(tensor: Array, change: float) -> Array:
    """Return numbers that differ from others, each by its own share of a relative change."""
    if tensor.dtype.kind != "f":
        return tensor
    shares = np.random.default_rng(1).uniform(-1, 1, tensor.shape)
    return (tensor * (1 + change * shares)).astype(tensor.dtype)


def same(actual: Array | None, expected: Array | None, error: float) -> bool:
    """Return whether two buffers are equal, up to an error relative to the largest element."""
    if actual is None or expected is None:
        return actual is expected
    if actual.shape != expected.shape:
        return False
    if equal(actual, expected):
        return True
    wide, most = expected.astype(np.float64), _allowed(expected, error)
    return bool(np.allclose(actual.astype(np.float64), wide, 0, most, equal_nan=True))


def _allowed(expected: Array, error: float) -> float:
    """Return the largest difference that an error relative to the largest element makes."""
    wide = expected.astype(np.float64)
    return error * max(1.0, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)))


def _jumps(actual: Array | None, expected: Array | None, others: Sequence[Array | None]) -> bool:
    """Return whether all elements in which two arrays of integers differ are others too where the
    inputs are a little different: those of rounded numbers on the edge of a step."""
    if actual is None or expected is None or actual.shape != expected.shape:
        return False
    jumping = [other != expected for other in others if other is not None]
    return bool(np.all(np.any([actual == expected, *jumping], axis=0)))


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
