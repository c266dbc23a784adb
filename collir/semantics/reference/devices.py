"""Devices of a mesh: coordinates, groups and blocks, one device at a time.

A loop over devices is right in an oracle.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, product

from collir.layout import Dim, Mesh


def coordinate(mesh: Mesh, rank: int, axis: str) -> int:
    """Return the coordinate of a device on a sub-axis."""
    sub = mesh.by_name[axis]
    return rank // sub.stride % sub.size


def index_in(mesh: Mesh, rank: int, axes: Iterable[str]) -> int:
    """Return the mixed-radix index of a device over sub-axes, the first most significant."""
    index = 0
    for axis in axes:
        index = index * mesh.by_name[axis].size + coordinate(mesh, rank, axis)
    return index


def coordinates_of(mesh: Mesh, axes: Sequence[str], index: int) -> list[tuple[str, int]]:
    """Return the sub-axes with the coordinates that have this mixed-radix index over them."""
    coordinates: list[tuple[str, int]] = []
    for axis in reversed(axes):
        index, digit = divmod(index, mesh.by_name[axis].size)
        coordinates.append((axis, digit))
    return coordinates[::-1]


def groups(mesh: Mesh, axes: Sequence[str]) -> list[list[int]]:
    """Return the groups of ranks that differ on ``axes`` only, each in the order of ``axes``."""
    by_base: dict[int, list[int]] = {}
    for rank in range(mesh.devices):
        base = rank - sum(coordinate(mesh, rank, a) * mesh.by_name[a].stride for a in axes)
        by_base.setdefault(base, []).append(rank)
    return [sorted(group, key=lambda r: index_in(mesh, r, axes)) for group in by_base.values()]


def block_of(mesh: Mesh, rank: int, dims: Iterable[Dim]) -> tuple[int, ...]:
    """Return the index of the block that a device holds, in every dimension."""
    return tuple(index_in(mesh, rank, dim.axes) for dim in dims)


def interval(mesh: Mesh, rank: int, dim: Dim) -> tuple[int, int]:
    """Return where the block of a device begins and ends in a dimension.

    Sub-axes cut in turn: into equal parts, or by the weights of all coordinates of the whole axis
    that agree with the device's on the sub-axes so far.
    """
    if not any(axis.weights for axis in mesh.axes):
        part = int(dim.size) // math.prod(mesh.by_name[axis].size for axis in dim.axes)
        index = index_in(mesh, rank, dim.axes)
        return index * part, (index + 1) * part
    begin, part = Fraction(0), Fraction(dim.size)
    agreed: list[str] = []
    for axis in dim.axes:
        agreed.append(axis)
        bounds = bounds_over(mesh, rank, agreed)
        at = coordinate(mesh, rank, axis)
        begin += part * bounds[at] / bounds[-1]
        part = part * (bounds[at + 1] - bounds[at]) / bounds[-1]
    end = begin + part
    if begin.denominator > 1 or end.denominator > 1:
        raise ValueError(f"rank {rank} holds {begin} to {end} of a dimension of {dim.size}")
    return int(begin), int(end)


def holder_of(mesh: Mesh, dim: Dim, position: int) -> list[tuple[str, int]]:
    """Return the sub-axes of a dimension with the coordinates at which a position is held."""
    for index in range(math.prod(mesh.by_name[axis].size for axis in dim.axes)):
        coordinates = coordinates_of(mesh, dim.axes, index)
        rank = sum(mesh.by_name[axis].stride * at for axis, at in coordinates)
        if position < interval(mesh, rank, dim)[1]:
            return coordinates
    raise ValueError(f"a dimension of {dim.size} has no position {position}")


def bounds_over(mesh: Mesh, rank: int, axes: Sequence[str]) -> list[int]:
    """Return where the shares of the coordinates on the last of some sub-axes begin, and where the
    last one ends, where the coordinates on the others are those of a device."""
    sub = mesh.by_name[axes[-1]]
    weights = next(axis.weights for axis in mesh.axes if axis.name == sub.axis)
    if weights is None:
        return list(range(sub.size + 1))
    parts = tuple((name, mesh.by_name[name].size) for name in mesh.of_axis[sub.axis])
    own = tuple(axis for axis in axes if mesh.by_name[axis].axis == sub.axis)
    others = tuple(coordinate(mesh, rank, axis) for axis in own[:-1])
    return _bounds(weights, parts, own)[others]


@lru_cache(maxsize=2**6)
def _bounds(
    weights: tuple[int, ...], parts: tuple[tuple[str, int], ...], axes: tuple[str, ...]
) -> dict[tuple[int, ...], list[int]]:
    """Return the bounds of shares on the last of some sub-axes, by coordinates on the others.

    Args:
        weights: the weights of an axis.
        parts: all its sub-axes with their sizes.
    """
    digits = [range(size) for _, size in parts]
    shares: dict[tuple[int, ...], list[int]] = {}
    for weight, coordinates in zip(weights, product(*digits), strict=True):
        at = {name: digit for (name, _), digit in zip(parts, coordinates, strict=True)}
        others = tuple(at[axis] for axis in axes[:-1])
        shares.setdefault(others, [0] * dict(parts)[axes[-1]])[at[axes[-1]]] += weight
    return {others: [0, *accumulate(row)] for others, row in shares.items()}


def slices_of(mesh: Mesh, rank: int, dims: Iterable[Dim]) -> tuple[slice, ...]:
    """Return the slices of a tensor that are the block of a device."""
    return tuple(slice(*interval(mesh, rank, dim)) for dim in dims)


def block_shape(mesh: Mesh, rank: int, dims: Iterable[Dim]) -> tuple[int, ...]:
    """Return the shape of the block of a device."""
    return tuple(part.stop - part.start for part in slices_of(mesh, rank, dims))
