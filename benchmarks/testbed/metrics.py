"""Metrics of predictions against measurements.

All lists are parallel: they have a number for each program.
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import median

TIE = 0.05
"""Measurements that differ by less than this, relative to the smaller one, count as equal."""
CLOSE = 0.03
"""A program counts as the fastest if it takes at most this fraction longer."""


def order(predicted: Sequence[float]) -> list[int]:
    """Return the programs, the predicted best first; ties keep their order."""
    return sorted(range(len(predicted)), key=lambda index: (_rounded(predicted[index]), index))


def _rounded(value: float) -> float:
    """Return the value without rounding errors that depend on the order of sums."""
    return float(f"{value:.9e}")


def among_best(predicted: Sequence[float], measured: Sequence[float], count: int) -> bool:
    """Return whether the measured best is among the ``count`` predicted best."""
    best = min(range(len(measured)), key=measured.__getitem__)
    return best in order(predicted)[:count]


def close_among(predicted: Sequence[float], measured: Sequence[float], count: int) -> bool:
    """Return whether one of the ``count`` predicted best is as good as the measured best."""
    least = min(measured) * (1 + CLOSE)
    return any(measured[index] <= least for index in order(predicted)[:count])


def regret(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return how much longer the predicted best takes, relative to the measured best."""
    return measured[order(predicted)[0]] / min(measured) - 1


def pairs(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, int]:
    """Return how many pairs with different measurements are ordered right, and their number.

    Pairs with equal predictions count half.
    """
    right, count = 0.0, 0
    for first, second in combinations(range(len(measured)), 2):
        low, high = sorted((measured[first], measured[second]))
        if high <= low * (1 + TIE):
            continue
        count += 1
        before = _rounded(predicted[first]) - _rounded(predicted[second])
        if before == 0:
            right += 0.5
        else:
            right += (before < 0) == (measured[first] < measured[second])
    return right, count


def kendall(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of the two orders, which corrects for ties.

    The result is None if all values of one order are equal.
    """
    agree, ties = 0, [0, 0]
    count = 0
    for first, second in combinations(range(len(measured)), 2):
        x = _sign(_rounded(predicted[first]) - _rounded(predicted[second]))
        y = _sign(measured[first] - measured[second])
        agree += x * y
        ties[0] += x == 0
        ties[1] += y == 0
        count += 1
    both = (count - ties[0]) * (count - ties[1])
    return agree / both**0.5 if both else None


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def errors(predicted: Sequence[float], measured: Sequence[float]) -> list[float]:
    """Return the errors relative to the measurements."""
    return [
        prediction / measurement - 1
        for prediction, measurement in zip(predicted, measured, strict=True)
    ]


def middle_and_worst(values: Sequence[float]) -> tuple[float, float]:
    """Return the median of the absolute values, and the value of largest magnitude."""
    return median(map(abs, values)), max(values, key=abs)
