"""The fastest of several programs for each size, and the sizes at which it changes."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar


class Timed(Protocol):
    """A program whose time depends on a size."""

    def time(self, size: float) -> float:
        """Return the seconds for a size."""
        ...


Candidate = TypeVar("Candidate", bound=Timed)

_EQUAL = 1 + 1e-6
"""The factor within which two times count as equal."""


def fastest(
    candidates: Sequence[Candidate], size: float, known: Candidate | None = None
) -> Candidate:
    """Return the fastest candidate for a size; of equal ones ``known``, else the first."""
    times = [candidate.time(size) for candidate in candidates]
    limit = min(times) * _EQUAL
    if known is not None and known.time(size) <= limit:
        return known
    pairs = zip(candidates, times, strict=True)
    return next(candidate for candidate, time in pairs if time <= limit)


def crossings(
    candidates: Sequence[Candidate], sizes: Sequence[float]
) -> list[tuple[float, Candidate]]:
    """Return the fastest program from each size on: from the smallest size, then at each change.

    A program that is the fastest at none of ``sizes``, which ascend, may be missed.
    """
    changes = [(sizes[0], fastest(candidates, sizes[0]))]
    for low, high in pairwise(sizes):
        while (known := changes[-1][1]) is not fastest(candidates, high, known):
            at = _first(lambda size, known=known: _beaten(candidates, size, known), low, high)
            changes.append((at, fastest(candidates, at, known)))
            low = at
    return changes


def _beaten(candidates: Sequence[Candidate], size: float, known: Candidate) -> bool:
    return fastest(candidates, size, known) is not known


def _first(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the first size between two where a predicate holds, to a thousandth.

    It holds at the second.
    """
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
