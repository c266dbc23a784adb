"""Devices of a mesh: coordinates, groups and blocks, one device at a time.

Looping over devices is right here: this is an oracle.
"""

from collections.abc import Iterable, Sequence

from collir.layout import Dim, Mesh


def coordinate(mesh: Mesh, rank: int, axis: str) -> int:
    """Where a device stands on a sub-axis."""
    sub = mesh.by_name[axis]
    return rank // sub.stride % sub.size


def index_in(mesh: Mesh, rank: int, axes: Iterable[str]) -> int:
    """The mixed-radix index of a device over sub-axes, the first most significant."""
    index = 0
    for axis in axes:
        index = index * mesh.by_name[axis].size + coordinate(mesh, rank, axis)
    return index


def groups(mesh: Mesh, axes: Sequence[str]) -> list[list[int]]:
    """The ranks that differ on ``axes`` only, each group in the order of the sub-axes."""
    found: dict[int, list[int]] = {}
    for rank in range(mesh.devices):
        base = rank - sum(coordinate(mesh, rank, a) * mesh.by_name[a].stride for a in axes)
        found.setdefault(base, []).append(rank)
    return [sorted(group, key=lambda r: index_in(mesh, r, axes)) for group in found.values()]


def block_of(mesh: Mesh, rank: int, dims: Iterable[Dim]) -> tuple[int, ...]:
    """Which block of every dimension a device holds."""
    return tuple(index_in(mesh, rank, dim.axes) for dim in dims)
