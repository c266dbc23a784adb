"""Which of several programs is the fastest for which size, and where that changes."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar


class Timed(Protocol):
    """What takes a time that depends on a size."""

    def time(self, size: float) -> float:
        """Seconds."""
        ...


Candidate = TypeVar("Candidate", bound=Timed)

_EQUAL = 1 + 1e-6
"""Times this much apart count as equal."""


def fastest(
    candidates: Sequence[Candidate], size: float, known: Candidate | None = None
) -> Candidate:
    """The fastest for a size; of equals the one that is ``known``, else the first."""
    times = [one.time(size) for one in candidates]
    limit = min(times) * _EQUAL
    if known is not None and known.time(size) <= limit:
        return known
    return next(one for one, time in zip(candidates, times, strict=True) if time <= limit)


def crossings(
    candidates: Sequence[Candidate], sizes: Sequence[float]
) -> list[tuple[float, Candidate]]:
    """The fastest from each size on: first from the smallest size, then where it changes.

    What is the fastest nowhere at ``sizes``, which ascend, may be missed.
    """
    found = [(sizes[0], fastest(candidates, sizes[0]))]
    for low, high in pairwise(sizes):
        while (known := found[-1][1]) is not fastest(candidates, high, known):
            at = _first(lambda size, known=known: _beaten(candidates, size, known), low, high)
            found.append((at, fastest(candidates, at, known)))
            low = at
    return found


def _beaten(candidates: Sequence[Candidate], size: float, known: Candidate) -> bool:
    return fastest(candidates, size, known) is not known


def _first(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where between two sizes something holds first, to a thousandth; it does at the second."""
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
