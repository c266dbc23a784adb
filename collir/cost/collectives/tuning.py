"""The sizes between which one algorithm and protocol of NCCL is the fastest.

Every change is found to the byte. Between two sizes without a bend between them (``nccl.bends``)
the estimates are straight lines, except the estimates of trees, which stay close to a straight
line. A choice that is best at both ends is best in between, unless a tree comes closer to another
estimate than it may stray from its straight line; then both halves are looked at, down to single
bytes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

from collir.cost.collectives import nccl
from collir.cost.collectives.table import COSTS, NcclKind
from collir.cost.network.group import Group

Prices = Mapping[str, float]
"""Seconds by algorithm and protocol."""

KINDS = tuple(kind for kind, entry in COSTS.items() if isinstance(entry.nccl, NcclKind))
"""The collectives for which NCCL chooses an algorithm."""


@dataclass(frozen=True)
class SizeRange:
    """The sizes in bytes, the first and the last included, of one ``algorithm/protocol``."""

    first: int
    last: int
    choice: str


def own_prices(kind: str, group: Group, size: int) -> dict[str, float]:
    """Return the seconds of each algorithm and protocol on the machine."""
    return {x.algorithm: x.time for _, x in nccl.estimates(kind, group, size)}


def expected_prices(kind: str, group: Group, size: int) -> dict[str, float]:
    """Return the seconds that NCCL expects each algorithm and protocol to take."""
    return {x.algorithm: expected for expected, x in nccl.estimates(kind, group, size)}


def fastest_ranges(kind: str, group: Group, first: int, last: int) -> list[SizeRange]:
    """Return the fastest algorithm and protocol for all sizes from ``first`` to ``last``."""
    prices, bends = cache(partial(own_prices, kind, group)), nccl.bends(kind, group)
    starts = [first, *(size for size in bends if first < size <= last), last + 1]
    changes: list[tuple[int, str]] = []
    for start, after in pairwise(starts):
        curved = 0 < start < bends[-1]
        for size, choice in _changes(prices, start, after - 1, curved):
            if not changes or changes[-1][1] != choice:
                changes.append((size, choice))
    ends = [*(size for size, _ in changes[1:]), last + 1]
    return [SizeRange(size, end - 1, x) for (size, x), end in zip(changes, ends, strict=True)]


def saved(kind: str, group: Group, size: int) -> float:
    """Return the part of the time of NCCL's choice that the fastest algorithm saves."""
    own = own_prices(kind, group, size)
    chosen = own[_best(expected_prices(kind, group, size))]
    return 1 - min(own.values()) / chosen if chosen else 0.0


def _changes(
    prices: Callable[[int], Prices], low: int, high: int, curved: bool
) -> Iterator[tuple[int, str]]:
    """Yield sizes from ``low`` to ``high``, and the best choice from each of them on.

    Args:
        curved: estimates of trees are no straight lines.
    """
    at_low, at_high = prices(low), prices(high)
    best = _best(at_low)
    if best == _best(at_high) and (
        high - low <= 1 or _stays_best(best, at_low, at_high, high / low - 1 if curved else 0.0)
    ):
        yield low, best
    elif high - low <= 1:
        yield low, best
        yield high, _best(at_high)
    else:
        middle = (low + high) // 2
        yield from _changes(prices, low, middle, curved)
        yield from _changes(prices, middle, high, curved)


def _best(prices: Prices) -> str:
    return min(prices, key=lambda choice: prices[choice])


def _stays_best(best: str, low: Prices, high: Prices, growth: float) -> bool:
    """Return whether a choice that is best at two sizes is proven best between them.

    A tree's time is bytes / (a + b log2 bytes), whose second derivative is less than the time
    divided by bytes squared: the parts of the bandwidth are at least 0.4, and change by at most
    0.2 from one power of two to the next. So it strays from its straight line by less than
    growth^2 / 8 of the larger time.

    Args:
        growth: the larger size divided by the smaller one, less 1; 0 if all lines are straight.
    """
    stray = {x: high[x] * growth**2 / 8 if x.startswith(nccl.TREE) else 0.0 for x in high}
    return all(
        min(low[x] - low[best], high[x] - high[best]) >= stray[x] + stray[best]
        for x in high
        if x != best
    )
