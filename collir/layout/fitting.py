"""Checks whether the sizes of axes fit a machine, and finds the nearest sizes that do.

Axes fit if their sizes multiply to the number of devices: then a placement exists.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from math import log, prod

from collir.layout.numbers import divisors

Sizes = tuple[int, ...]


def first_misfit(devices: int, axes: Sequence[int]) -> int | None:
    """Return the first axis whose product with the axes before it does not divide ``devices``."""
    for index, size in enumerate(axes):
        if devices % size:
            return index
        devices //= size
    return None


def nearest_sizes(devices: int, axes: Sequence[int], alternatives: int = 3) -> tuple[Sizes, ...]:
    """Return sizes of axes that multiply to a number of devices, the ones nearest to the given
    sizes.

    The distance is the sum over the axes of abs(log(new size / old size)), so 8 is as far from 4
    as 2 is. Ties are broken towards fewer changed axes.
    """
    # This is A* over prefixes of sizes. The heuristic is the change that the product of the
    # remaining axes needs: a lower bound of the sum of their changes.
    products = [prod(axes[place:]) for place in range(len(axes) + 1)]
    queue: list[tuple[float, int, int, float, Sizes]] = [(0.0, 0, 0, 0.0, ())]
    visits: Counter[tuple[int, int]] = Counter()
    nearest: list[Sizes] = []
    while queue and len(nearest) < alternatives:
        _, changed, _, distance, sizes = heappop(queue)
        place, left = len(sizes), devices // prod(sizes)
        visits[place, left] += 1
        if visits[place, left] > alternatives:
            continue
        if place == len(axes):
            nearest.append(sizes)
            continue
        for size in (left,) if place == len(axes) - 1 else divisors(left):
            so_far = distance + abs(log(size / axes[place]))
            rest = abs(log(left // size / products[place + 1]))
            now_changed = changed + (size != axes[place])
            node = (round(so_far + rest, 9), now_changed, -place, so_far, (*sizes, size))
            heappush(queue, node)
    return tuple(sizes for sizes in nearest if sizes)
