"""How well predictions say what is measured. All lists are parallel: a number for each program."""

from collections.abc import Sequence
from itertools import combinations
from statistics import median

TIE = 0.05
"""Measurements that differ by less, relative to the smaller one, are not told apart."""
CLOSE = 0.03
"""A program that takes at most so much more than the fastest one is as good."""


def order(predicted: Sequence[float]) -> list[int]:
    """The programs, the predicted best first; of equal ones the first that is listed."""
    return sorted(range(len(predicted)), key=lambda index: (_rounded(predicted[index]), index))


def _rounded(value: float) -> float:
    """Without what is left of sums in another order."""
    return float(f"{value:.9e}")


def among_best(predicted: Sequence[float], measured: Sequence[float], count: int) -> bool:
    """Whether the measured best is among the ``count`` predicted best."""
    best = min(range(len(measured)), key=measured.__getitem__)
    return best in order(predicted)[:count]


def close_among(predicted: Sequence[float], measured: Sequence[float], count: int) -> bool:
    """Whether some of the ``count`` predicted best are as good as the measured best."""
    least = min(measured) * (1 + CLOSE)
    return any(measured[index] <= least for index in order(predicted)[:count])


def regret(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """How much longer the predicted best takes than the measured best, relative to that."""
    return measured[order(predicted)[0]] / min(measured) - 1


def pairs(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, int]:
    """Of the pairs that measure apart: how many are ordered right, and how many there are.

    Those that are predicted to be equal count half.
    """
    right, count = 0.0, 0
    for one, other in combinations(range(len(measured)), 2):
        low, high = sorted((measured[one], measured[other]))
        if high <= low * (1 + TIE):
            continue
        count += 1
        before = _rounded(predicted[one]) - _rounded(predicted[other])
        if before == 0:
            right += 0.5
        else:
            right += (before < 0) == (measured[one] < measured[other])
    return right, count


def kendall(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Kendall's tau-b of the two orders, which counts ties out; None if one is all ties."""
    agree, ties = 0, [0, 0]
    count = 0
    for one, other in combinations(range(len(measured)), 2):
        x = _sign(_rounded(predicted[one]) - _rounded(predicted[other]))
        y = _sign(measured[one] - measured[other])
        agree += x * y
        ties[0] += x == 0
        ties[1] += y == 0
        count += 1
    both = (count - ties[0]) * (count - ties[1])
    return agree / both**0.5 if both else None


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def errors(predicted: Sequence[float], measured: Sequence[float]) -> list[float]:
    """Relative to what was measured."""
    return [one / other - 1 for one, other in zip(predicted, measured, strict=True)]


def middle_and_worst(values: Sequence[float]) -> tuple[float, float]:
    """The median of the sizes, and the value of the largest size."""
    return median(map(abs, values)), max(values, key=abs)
