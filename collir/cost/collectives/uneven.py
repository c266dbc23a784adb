"""Sizes of collectives on blocks that differ in size, by the weights of an axis.

They are linear in the number of weights. All groups run at the same time, so the largest counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collir.layout import Dim, DistType, Mesh
from collir.layout.cuts import Extent, group_shares
from collir.layout.weights import SubAxes


@dataclass(frozen=True)
class UnevenSizes:
    """The bytes of a collective whose blocks differ in size, as sizes of full buffers.

    Attributes:
        size: the full buffer (see ``Collective``), of the group with the largest.
        padded: the full buffer if every block were as large as the largest. No algorithm sends more
            over any link than for such blocks.
        ring: the full buffer of equal blocks that loads the links of a ring as much as these do. A
            link of a ring carries every block but one.
        least: the full buffer if every block were as small as the smallest: an algorithm for these
            blocks is also one for parts of them, so bounds for the parts are bounds.
    """

    size: float
    padded: float
    ring: float
    least: float

    def scaled(self, factor: float) -> "UnevenSizes":
        """Return the sizes of buffers that are ``factor`` times as large."""
        sizes = (self.size, self.padded, self.ring, self.least)
        return UnevenSizes(*(size * factor for size in sizes))


def uneven_sizes(mesh: Mesh, x: DistType, y: DistType, over: SubAxes | None) -> UnevenSizes | None:
    """Return the sizes of a collective from one layout to another; None if its blocks are equal.

    Args:
        over: its sub-axes; None if it sends whole blocks from one device to another.
    """
    if not mesh.uneven or (x.is_even(mesh) and y.is_even(mesh)):
        return None
    pairs = list(zip(x.dims, y.dims, strict=True))
    finest = tuple(max(pair, key=lambda dim: len(dim.axes)) for pair in pairs)
    cut = replace(x, dims=finest)
    elements = math.prod(cut.local_shape(mesh))
    if not isinstance(elements, Extent):
        return None
    changed = [pair for pair in pairs if pair[0].axes != pair[1].axes] if over else []
    rows = [_shares(mesh, pair, over or ()) for pair in changed]
    touched = {names for _, cuts in rows for names in cuts}
    unit = elements.units * x.dtype.bytes
    alike = [names for names in elements.cuts if names not in touched]
    most = unit * math.prod(max(mesh.uneven[names[0]].shares(names)) for names in alike)
    least = unit * math.prod(min(mesh.uneven[names[0]].shares(names)) for names in alike)
    return _sizes([shares for shares, _ in rows], most, least, mesh.group_size(over or ()))


def _shares(
    mesh: Mesh, pair: tuple[Dim, Dim], over: SubAxes
) -> tuple[Sequence[Sequence[int]], Sequence[SubAxes]]:
    """Return the shares of the ranks of each group in a dimension that is cut on one side only, and
    the cuts whose product they are."""
    held = min((dim.axes for dim in pair), key=len)
    shares = group_shares(mesh, held, over)
    if shares is None:
        return [[1] * mesh.group_size(over)], ()
    return shares.rows, shares.cuts


def _sizes(
    dims: Sequence[Sequence[Sequence[int]]], most: float, least: float, ranks: int
) -> UnevenSizes:
    """Return the sizes of a collective that cuts no dimension, one, or one in place of another.

    Args:
        dims: the shares of the ranks of each group, by dimension.
        most, least: the bytes of a unit, where other cuts are the largest and the smallest.
    """
    if not dims:
        return UnevenSizes(most, most, most, least)
    largest = math.prod(max(map(max, rows)) for rows in dims)
    smallest = math.prod(min(map(min, rows)) for rows in dims)
    padded, bound = most * ranks * largest, least * ranks * smallest
    if len(dims) > 1:
        sent = max(map(max, dims[0])) * max(map(sum, dims[1]))
        return UnevenSizes(most * sent, padded, padded, bound)
    (rows,) = dims
    around = max(sum(row) - min(row) for row in rows) * ranks / (ranks - 1)
    return UnevenSizes(most * max(map(sum, rows)), padded, most * around, bound)
