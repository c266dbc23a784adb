"""Devices of a mesh: coordinates, groups and blocks, one device at a time.

A loop over devices is right in an oracle.
"""

from collections.abc import Iterable, Sequence

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


def slices_of_block(block: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the slices of a tensor that are a block, given the block's index and shape."""
    sizes = zip(block, shape, strict=True)
    return tuple(slice(index * size, (index + 1) * size) for index, size in sizes)
