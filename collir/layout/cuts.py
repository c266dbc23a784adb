"""Cuts: where the block of a device begins and ends in a dimension that is sharded.

A dimension is cut by its sub-axes in turn, major to minor. An axis without weights cuts into equal
blocks. An axis with weights gives coordinate i ``w_i`` of W equal units, where W is the sum of the
weights. Every boundary is an integer: other types are refused.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from collir.layout.mesh import Mesh, index_over
from collir.layout.sizes import ShardedSize
from collir.layout.weights import AxisWeights, SubAxes

Coordinates = Mapping[str, int]
"""A coordinate for each sub-axis."""


def share_token(over: SubAxes) -> str:
    """Return the text that stands for a device's share of the cut by some sub-axes, until it is
    known how a program names it (``with_shares``)."""
    return f"⟨{','.join(over)}⟩"


def with_shares(text: str, share: Callable[[SubAxes], str]) -> str:
    """Return a text with the names of shares in place of tokens."""
    if "⟨" not in text:
        return text
    return re.sub("⟨(.*?)⟩", lambda token: share(tuple(token[1].split(","))), text)


class Extent(int):
    """A number of elements or bytes that differs between devices.

    As an integer it is the largest number that any device has. It remembers its formula: a number
    of units, multiplied by the device's share of the cut by each list of sub-axes in ``cuts``. It
    is equal to an extent of the same formula only, and so to no plain integer.
    """

    units: int
    cuts: tuple[SubAxes, ...]

    @staticmethod
    def of(units: int, cuts: Mapping[SubAxes, int]) -> "Extent":
        """Return an extent of cuts that are given with their largest share."""
        extent = Extent(units * math.prod(cuts.values()))
        extent.units, extent.cuts = units, tuple(cuts)
        return extent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and (int(self), self.units, self.cuts) == (
            int(other), other.units, other.cuts
        )  # fmt: skip

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.units, self.cuts))

    def _with(self, units: int, largest: int, cuts: tuple[SubAxes, ...]) -> "Extent":
        extent = Extent(largest)
        extent.units, extent.cuts = units, cuts
        return extent

    def __mul__(self, other: int) -> "Extent":
        if isinstance(other, Extent):
            largest = int(self) * int(other)
            return self._with(self.units * other.units, largest, (*self.cuts, *other.cuts))
        return self._with(self.units * other, int(self) * other, self.cuts)

    def __rmul__(self, other: int) -> "Extent":
        return self * other

    def __add__(self, other: int) -> "Extent":
        """Return a sum of units of the same cuts.

        Raises:
            ArithmeticError: the sum is no such number.
        """
        if isinstance(other, Extent) and sorted(other.cuts) == sorted(self.cuts):
            return self._with(self.units + other.units, int(self) + int(other), self.cuts)
        if other:
            raise ArithmeticError(f"{self.formula()} + {other} has no formula")
        return self

    def __radd__(self, other: int) -> "Extent":
        return self + other

    def __neg__(self) -> "Extent":
        return self * -1

    def __sub__(self, other: int) -> "Extent":
        return self + -other

    def __rsub__(self, other: int) -> "Extent":
        return -self + other

    def __floordiv__(self, other: int) -> "Extent":
        """Return the extent of one of ``other`` equal parts.

        Raises:
            ArithmeticError: the parts are not whole numbers of units.
        """
        if self.units % other:
            raise ArithmeticError(f"{self.formula()} does not divide by {other}")
        return self._with(self.units // other, int(self) // other, self.cuts)

    def without(self, cuts: Collection[SubAxes], largest: int) -> int:
        """Return the extent divided by the device's shares of some cuts, ``largest`` at most."""
        left = tuple(over for over in self.cuts if over not in cuts)
        return self._with(self.units, int(self) // largest, left) if left else self.units

    def formula(self, share: Callable[[SubAxes], str] = share_token) -> str:
        """Return the formula as text, with a text for the device's share of each cut."""
        units = [str(self.units)] if self.units != 1 else []
        return " * ".join([*units, *map(share, self.cuts)])

    def __str__(self) -> str:
        return self.formula()

    def __format__(self, spec: str) -> str:
        return self.formula()


def units(mesh: Mesh, axes: Sequence[str]) -> int:
    """Return the number of equal units that a list of sub-axes cuts a dimension into.

    This is the number of blocks where all are equal. A dimension must be divisible by it.
    """
    if not mesh.uneven or mesh.uneven.keys().isdisjoint(axes):
        return mesh.group_size(axes)
    even = mesh.group_size(axis for axis in axes if axis not in mesh.uneven)
    return even * math.prod(sum(weights.shares(over)) for weights, over in cuts_of(mesh, axes))


def cuts_of(mesh: Mesh, axes: Sequence[str]) -> list[tuple[AxisWeights, SubAxes]]:
    """Return the axes with weights that cut a dimension, each with its sub-axes in the list."""
    found: dict[str, tuple[AxisWeights, SubAxes]] = {}
    for name in axes:
        if (weights := mesh.uneven.get(name)) is not None:
            _, over = found.get(weights.axis, (weights, ()))
            found[weights.axis] = weights, (*over, name)
    return list(found.values())


def is_even(mesh: Mesh, axes: Sequence[str]) -> bool:
    """Return whether a list of sub-axes cuts a dimension into equal blocks."""
    return not mesh.uneven or units(mesh, axes) == mesh.group_size(axes)


def same_cut(mesh: Mesh, axes: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two lists of sub-axes cut a dimension into the same blocks, in order."""
    if tuple(axes) == tuple(other) or (is_even(mesh, axes) and is_even(mesh, other)):
        return True
    mine, others = (block_units(mesh, tuple(names)) for names in (axes, other))
    total, of_others = sum(mine), sum(others)
    return len(mine) == len(others) and all(
        size * of_others == of_other * total for size, of_other in zip(mine, others, strict=True)
    )


@lru_cache(maxsize=4096)
def block_units(mesh: Mesh, axes: SubAxes) -> tuple[int, ...]:
    """Return the sizes of all blocks of a dimension in units, in the order of the blocks."""
    total = units(mesh, axes)
    ends = (cuts(mesh, total, axes, at) for at in places(mesh, axes))
    return tuple(end - begin for begin, end in ends)


def undefined_cut(mesh: Mesh, axes: Sequence[str]) -> tuple[str, SubAxes] | None:
    """Return a sub-axis whose cut depends on sub-axes missing in front of it, and the sub-axes that
    must be listed in order; None if the list says how to cut."""
    wrong = (weights.undefined(over) for weights, over in cuts_of(mesh, axes))
    return next(filter(None, wrong), None)


def block_size(mesh: Mesh, size: int, axes: Sequence[str]) -> int:
    """Return the size of a device's block of a dimension: an ``Extent`` if blocks differ."""
    if not axes:
        return size
    if not mesh.uneven or mesh.uneven.keys().isdisjoint(axes):
        if isinstance(size, ShardedSize):
            return size.block({mesh.label(name): mesh.by_name[name].size for name in axes})
        return size // mesh.group_size(axes)
    largest: dict[SubAxes, int] = {}
    for weights, over in cuts_of(mesh, axes):
        shares = weights.shares(over)
        if max(shares) > 1:
            largest[mesh.ordered(over)] = max(shares)
    unit = size // units(mesh, axes)
    return Extent.of(unit, largest) if largest else unit


def share(mesh: Mesh, over: SubAxes, coordinates: Coordinates) -> int:
    """Return the units of a device in the cut by some sub-axes of one axis with weights."""
    return mesh.uneven[over[0]].shares(over)[index_over(mesh, over, coordinates)]


def extent_at(mesh: Mesh, size: int, coordinates: Coordinates) -> int:
    """Return a size on the device at some coordinates."""
    if not isinstance(size, Extent):
        return size
    return size.units * math.prod(share(mesh, over, coordinates) for over in size.cuts)


def cuts(mesh: Mesh, size: int, axes: Sequence[str], coordinates: Coordinates) -> tuple[int, int]:
    """Return where the block of a device begins and ends in a dimension.

    Args:
        size: the size of the dimension, which is divisible by the units of its sub-axes.
        axes: the sub-axes that shard it, major to minor.
        coordinates: the device's coordinates on at least these sub-axes.
    """
    begin, length = 0, size
    before: dict[str, SubAxes] = {}
    for name in axes:
        coordinate, count = coordinates[name], mesh.by_name[name].size
        weights = mesh.uneven.get(name)
        if weights is None:
            length //= count
            begin += coordinate * length
            continue
        over = before.get(weights.axis, ())
        row = 0
        for major in over:
            row = row * mesh.by_name[major].size + coordinates[major]
        bounds, first = weights.bounds((*over, name)), row * count
        unit, whole = length, bounds[first + count] - bounds[first]
        start, end = bounds[first + coordinate], bounds[first + coordinate + 1]
        begin += unit * (start - bounds[first]) // whole
        length = unit * (end - start) // whole
        before[weights.axis] = (*over, name)
    return begin, begin + length


@lru_cache(maxsize=1024)
def group_shares(mesh: Mesh, held: SubAxes, over: SubAxes) -> "GroupShares | None":
    """Return how groups over some sub-axes share the blocks of a dimension; None for equal parts.

    Args:
        held: the sub-axes that shard the dimension already, major to minor.
        over: the sub-axes that shard it further, major to minor.
    """
    touched = {mesh.uneven[name].axis for name in over if name in mesh.uneven}
    if not touched:
        return None
    cut = [(w, names) for w, names in cuts_of(mesh, (*held, *over)) if w.axis in touched]
    rest = tuple(name for name in held if any(name in names for _, names in cut))
    rows = [
        tuple(
            math.prod(share(mesh, names, {**outer, **inner}) for _, names in cut)
            for inner in places(mesh, over)
        )
        for outer in places(mesh, rest)
    ]
    if all(len(set(row)) == 1 for row in rows):
        return None
    return GroupShares(rest, tuple(rows), tuple(mesh.ordered(names) for _, names in cut))


def pieces(mesh: Mesh, held: SubAxes, over: SubAxes) -> tuple[int, ...] | None:
    """Return the shares of the coordinates over sub-axes in a dimension, without a common divisor.

    Args:
        held: the sub-axes in front of these that shard the dimension too.
        over: the sub-axes, major to minor.

    Returns: None if the shares depend on the coordinates over ``held``.
    """
    shares = group_shares(mesh, held, over)
    if shares is None:
        return (1,) * mesh.group_size(over)
    first, *others = ([share // math.gcd(*row) for share in row] for row in shares.rows)
    return tuple(first) if all(row == first for row in others) else None


def places(mesh: Mesh, axes: Sequence[str]) -> list[dict[str, int]]:
    """Return all coordinates over sub-axes, the first most significant."""
    listed: list[dict[str, int]] = [{}]
    for name in axes:
        size = mesh.by_name[name].size
        listed = [{**known, name: at} for known in listed for at in range(size)]
    return listed


@dataclass(frozen=True)
class GroupShares:
    """The shares of the ranks of groups in a dimension that is cut unevenly over their sub-axes.

    Attributes:
        rest: the sub-axes outside the group that the shares depend on.
        rows: the shares of the ranks of a group, in their order, for each index over ``rest``.
        cuts: the cuts that these shares are the product of.
    """

    rest: SubAxes
    rows: tuple[tuple[int, ...], ...]
    cuts: tuple[SubAxes, ...]

    def unit(self, block: int) -> int:
        """Return the elements per share, of the size of a rank's block of the dimension."""
        if isinstance(block, Extent):
            return block.without(self.cuts, max(map(max, self.rows)))
        return block
