"""The messages of a permute, listed rank by rank: blocks may move between any ranks."""

from functools import lru_cache
from typing import cast

import numpy as np

from collir.cost.collectives.collective import Collective
from collir.cost.network.group import CostError, Group
from collir.cost.network.loads import Array
from collir.cost.network.traffic import MAX_LISTED, Listed
from collir.layout import DistType, Mesh


def _indices(mesh: Mesh, axes: tuple[str, ...], coordinates: dict[str, Array], count: int) -> Array:
    """Return the mixed-radix index over some sub-axes for every rank."""
    index = np.zeros(count, dtype=np.int64)
    for axis in axes:
        index = index * mesh.by_name[axis].size + coordinates[axis]
    return index


def _listed(collective: Collective) -> tuple[dict[str, Array], int]:
    """Return the coordinates of all ranks of a group by sub-axis, and the number of ranks."""
    mesh, count = collective.mesh, collective.ranks
    if count > MAX_LISTED:
        raise CostError(
            f"a permute over {count} devices is too large to list: at most {MAX_LISTED} devices"
        )
    coordinates: dict[str, Array] = {}
    rest = cast(Array, np.arange(count))
    for axis in reversed(collective.axes):
        size = mesh.by_name[axis].size
        rest, coordinates[axis] = rest // size, rest % size
    return coordinates, count


def _blocks(mesh: Mesh, x: DistType, coordinates: dict[str, Array], count: int) -> Array:
    """Return the number of the block of a tensor that every rank holds."""
    block = np.zeros(count, dtype=np.int64)
    for dim in x.dims:
        shards = mesh.group_size(dim.axes)
        block = block * shards + _indices(mesh, dim.axes, coordinates, count)
    return block


@lru_cache(maxsize=64)
def permute_pattern(collective: Collective) -> Listed:
    """Return the messages of a permute: the r-th rank that holds a block sends it to the r-th rank
    that needs it.

    Raises:
        CostError: too many devices to list.
    """
    assert collective.moves is not None
    mesh = collective.mesh
    coordinates, count = _listed(collective)
    orders: list[Array] = []
    for x in collective.moves:
        copies = tuple(axis for axis in collective.axes if x.dim_of(axis) is None)
        copy = _indices(mesh, copies, coordinates, count)
        block = _blocks(mesh, x, coordinates, count)
        orders.append(cast(Array, np.lexsort((copy, block))))
    sources, targets = orders
    moving = sources != targets
    return Listed(sources[moving], targets[moving])


@lru_cache(maxsize=64)
def missing_blocks(collective: Collective, group: Group) -> tuple[int, ...]:
    """Return, for each level, the most blocks that one child needs and does not hold."""
    assert collective.moves is not None
    mesh = collective.mesh
    coordinates, count = _listed(collective)
    held, needed = (_blocks(mesh, x, coordinates, count) for x in collective.moves)
    blocks = int(max(held.max(), needed.max())) + 1
    children = np.zeros(count, dtype=np.int64)
    missing: list[int] = []
    for level in range(len(group.levels)):
        for axis, digit in zip(collective.axes, group.digits, strict=True):
            if digit.level == level:
                children = children * digit.size + coordinates[axis]
        pairs_held, pairs_needed = (children * blocks + numbers for numbers in (held, needed))
        lacking = np.setdiff1d(pairs_needed, pairs_held) // blocks
        missing.append(int(np.bincount(lacking).max()) if len(lacking) else 0)
    return tuple(missing)
