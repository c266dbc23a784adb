"""The weights of an axis, summed over some of its sub-axes.

A dimension that is sharded over all sub-axes of an axis is cut by the weights. Over only some of
them it is cut by sums: the block of a coordinate has all blocks that the devices with this
coordinate hold if the other sub-axes shard the dimension as well.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, combinations

SubAxes = tuple[str, ...]


class AxisWeights:
    """The weights of one axis, in time linear in their number.

    Attributes:
        axis: the name of the axis.
        weights: the weight of each coordinate of the whole axis, major to minor.
        sizes: the sizes of its sub-axes, major to minor.
    """

    def __init__(self, axis: str, weights: Sequence[int], sizes: dict[str, int]):
        self.axis, self.weights, self.sizes = axis, tuple(weights), sizes
        self._totals: dict[SubAxes, tuple[int, ...]] = {}
        self._bounds: dict[SubAxes, tuple[int, ...]] = {}
        self._shares: dict[SubAxes, tuple[int, ...]] = {}

    def totals(self, over: SubAxes) -> tuple[int, ...]:
        """Return the sum of weights for each coordinate over some sub-axes of this axis.

        The first sub-axis of ``over`` is the most significant; the sums are over the others.
        """
        if (known := self._totals.get(over)) is not None:
            return known
        strides: list[tuple[int, int, int]] = []  # stride in the axis, size, stride in the result
        inner = 1
        for name, size in reversed(self.sizes.items()):
            if name in over:
                after = over[over.index(name) + 1 :]
                strides.append((inner, size, math.prod(self.sizes[minor] for minor in after)))
            inner *= size
        totals = [0] * math.prod(self.sizes[name] for name in over)
        for index, weight in enumerate(self.weights):
            totals[sum(index // inner % size * stride for inner, size, stride in strides)] += weight
        self._totals[over] = tuple(totals)
        return self._totals[over]

    def bounds(self, over: SubAxes) -> tuple[int, ...]:
        """Return the sums of ``totals`` in front of each coordinate, and of all at the end."""
        if (known := self._bounds.get(over)) is None:
            known = self._bounds[over] = (0, *accumulate(self.totals(over)))
        return known

    def shares(self, over: SubAxes) -> tuple[int, ...]:
        """Return ``totals`` without their common divisor: the units of each coordinate's block."""
        if (known := self._shares.get(over)) is not None:
            return known
        totals = self.totals(over)
        divisor = math.gcd(*totals)
        self._shares[over] = tuple(total // divisor for total in totals)
        return self._shares[over]

    @cached_property
    def groups(self) -> tuple[SubAxes, ...]:
        """The finest groups of sub-axes such that the weights are a product of weights of each.

        Within a group the cut by a sub-axis depends on the coordinates of those before it.
        """
        left: SubAxes = tuple(self.sizes)
        groups: list[SubAxes] = []
        while left:
            group = next(part for part in _parts_with_first(left) if self._factors_out(part, left))
            groups.append(group)
            left = tuple(name for name in left if name not in group)
        return tuple(groups)

    def _factors_out(self, part: SubAxes, among: SubAxes) -> bool:
        """Return whether the sums over ``among`` are a product of those of a part and the rest."""
        rest = tuple(name for name in among if name not in part)
        whole, own, others = self.totals((*part, *rest)), self.totals(part), self.totals(rest)
        total, count = sum(self.weights), len(others)
        return all(
            weight * total == own[index // count] * others[index % count]
            for index, weight in enumerate(whole)
        )

    def undefined(self, over: SubAxes) -> tuple[str, SubAxes] | None:
        """Return the first sub-axis of a list whose cut depends on sub-axes not before it, and the
        group that must be listed in order; None if the list says how to cut."""
        for group in self.groups:
            listed = [name for name in over if name in group]
            for name, wanted in zip(listed, group, strict=False):
                if name != wanted:
                    return name, group
        return None


def _parts_with_first(names: SubAxes) -> Iterator[SubAxes]:
    """Yield the parts of some names that have the first one, the smallest parts first."""
    first, *others = names
    for count in range(len(names)):
        for rest in combinations(others, count):
            yield (first, *rest)
