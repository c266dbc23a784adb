"""Why axes do not fit a machine, and the nearest sizes that do.

Axes fit exactly if they multiply to the number of devices: then there is a placement.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from math import log, prod

from collir.layout.numbers import divisors

Sizes = tuple[int, ...]


def unfit(devices: int, axes: Sequence[int]) -> int | None:
    """The first axis that, with those before it, does not divide the number of devices."""
    for index, size in enumerate(axes):
        if devices % size:
            return index
        devices //= size
    return None


def nearest(devices: int, axes: Sequence[int], alternatives: int = 3) -> tuple[Sizes, ...]:
    """The sizes nearest to those of the axes that multiply to a number of devices.

    The distance is the sum of the axes' changes as factors (8 is as far from 4 as 2 is), and of
    equal ones the number of axes that change.
    """
    # A* over prefixes of sizes: what all axes left must change by in product bounds what they do.
    wanted = [prod(axes[place:]) for place in range(len(axes) + 1)]
    queue: list[tuple[float, int, int, float, Sizes]] = [(0.0, 0, 0, 0.0, ())]
    visits: Counter[tuple[int, int]] = Counter()
    found: list[Sizes] = []
    while queue and len(found) < alternatives:
        _, changed, _, far, sizes = heappop(queue)
        place, left = len(sizes), devices // prod(sizes)
        visits[place, left] += 1
        if visits[place, left] > alternatives:
            continue
        if place == len(axes):
            found.append(sizes)
            continue
        for size in (left,) if place == len(axes) - 1 else divisors(left):
            own = far + abs(log(size / axes[place]))
            rest = abs(log(left // size / wanted[place + 1]))
            more = changed + (size != axes[place])
            node = (round(own + rest, 9), more, -place, own, (*sizes, size))
            heappush(queue, node)
    return tuple(sizes for sizes in found if sizes)
