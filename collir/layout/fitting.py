"""Why axes do not fit a machine, and the nearest sizes that do.

Axes fit exactly if they multiply to the number of devices (see ``matrices``), so what is wrong is
a prime that one axis has too often, or one that a level has and no axis does.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import log, prod

from collir.layout.numbers import divisors

Sizes = tuple[int, ...]
Names = Callable[[int], str]


@dataclass(frozen=True)
class Misfit:
    """Axes without a parallelism matrix.

    ``axis`` is the first one that, with those before it, does not divide the number of devices, and
    ``level`` the outermost that the axes cannot fill beside the levels around it; one may be None.
    ``nearest`` are sizes of the axes that fit, the smallest changes (as factors) first.
    """

    hierarchy: Sizes
    axes: Sizes
    axis: int | None
    level: int | None
    nearest: tuple[Sizes, ...]

    def text(self, axis: Names = "axis {}".format, level: Names = "level {}".format) -> str:
        """The reason in a sentence, by names of axes and levels."""
        have, want = prod(self.hierarchy), prod(self.axes)
        devices = f"{have} device{'s' if have > 1 else ''}"
        parts = [f"the axes multiply to {want}, the machine has {devices}"]
        if self.axis is not None:
            size = self.axes[self.axis]
            others = want // size
            if have % size:
                parts.append(f"{axis(self.axis)} of size {size} does not divide {have}")
            else:
                parts.append(
                    f"{axis(self.axis)} of size {size} does not fit beside the others, "
                    f"which multiply to {others}"
                )
        if self.level is not None:
            size = self.hierarchy[self.level]
            parts.append(f"{level(self.level)} of size {size} is not filled by the axes")
        fitting = " or ".join(" x ".join(map(str, sizes)) for sizes in self.nearest)
        return "; ".join(parts) + (f"; nearest that fit: {fitting}" if fitting else "")


def misfit(hierarchy: Sequence[int], axes: Sequence[int], alternatives: int = 3) -> Misfit | None:
    """Why axes have no parallelism matrix on a hierarchy, or None if they have.

    Args:
        hierarchy: positive sizes of levels.
        axes: positive sizes of axes.
        alternatives: how many of the nearest sizes to name.
    """
    if prod(hierarchy) == prod(axes):
        return None
    return Misfit(
        tuple(hierarchy),
        tuple(axes),
        _first_unfilled(axes, hierarchy),
        _first_unfilled(hierarchy, axes),
        nearest(prod(hierarchy), axes, alternatives),
    )


def _first_unfilled(sizes: Sequence[int], into: Sequence[int]) -> int | None:
    """The first of ``sizes`` that takes a prime more often than ``into`` has it in all."""
    left = prod(into)
    for index, size in enumerate(sizes):
        if left % size:
            return index
        left //= size
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
