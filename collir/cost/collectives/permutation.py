"""The messages of a permute, a send or a shift, listed rank by rank.

The layouts and arguments of these steps say which rank sends to which.
"""

from functools import lru_cache
from typing import cast

import numpy as np

from collir.algorithms.patterns import Shift
from collir.cost.collectives.collective import Collective, LayoutChange, RingShift, Route
from collir.cost.network.group import CostError, Group
from collir.cost.network.loads import Array
from collir.cost.network.traffic import MAX_LISTED, ListedMessages
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
            f"a {collective.kind} over {count} devices is too large to list: at most {MAX_LISTED} "
            "devices"
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


def _permuted(collective: Collective, layouts: LayoutChange) -> ListedMessages:
    """Return the messages of a permute: the r-th rank that holds a block sends it to the r-th rank
    that needs it.

    Raises:
        CostError: too many devices to list.
    """
    mesh = collective.mesh
    coordinates, count = _listed(collective)
    orders: list[Array] = []
    for x in layouts:
        copies = tuple(axis for axis in collective.axes if x.dim_of(axis) is None)
        copy = _indices(mesh, copies, coordinates, count)
        block = _blocks(mesh, x, coordinates, count)
        orders.append(cast(Array, np.lexsort((copy, block))))
    sources, targets = orders
    moving = sources != targets
    return ListedMessages(sources[moving], targets[moving])


@lru_cache(maxsize=64)
def pattern_of(collective: Collective) -> Shift | ListedMessages:
    """Return the messages of a collective whose layouts or arguments say who sends what.

    Raises:
        CostError: too many devices to list.
    """
    assert collective.sent_by is not None
    match collective.sent_by:
        case LayoutChange() as layouts:
            return _permuted(collective, layouts)
        case Route(sender, receiver):
            return ListedMessages(np.array([sender]), np.array([receiver]))
        case RingShift(distance, is_open=False):
            return Shift(distance % collective.ranks)
        case RingShift() as shift:
            return ListedMessages(*_shifted(shift, _listed(collective)[1]))


def _shifted(shift: RingShift, count: int) -> tuple[Array, Array]:
    """Return the ranks that send in a shift, and the ranks that they send to."""
    sources = cast(Array, np.arange(count))
    targets = sources + shift.distance
    if shift.is_open:
        inside = (targets >= 0) & (targets < count)
        return sources[inside], targets[inside]
    return sources, targets % count


def _ends(
    collective: Collective, coordinates: dict[str, Array], count: int
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the ranks that hold blocks, with their blocks, and the ranks that need blocks."""
    ranks = cast(Array, np.arange(count))
    assert collective.sent_by is not None
    match collective.sent_by:
        case LayoutChange() as layouts:
            held, needed = (_blocks(collective.mesh, x, coordinates, count) for x in layouts)
            return (ranks, held), (ranks, needed)
        case Route(sender, receiver):
            block = np.array([0])
            return (np.array([sender]), block), (np.array([receiver]), block)
        case RingShift() as shift:
            sources, targets = _shifted(shift, count)
            return (ranks, ranks), (targets, sources)


@lru_cache(maxsize=64)
def missing_blocks(collective: Collective, group: Group) -> tuple[int, ...]:
    """Return, for each level, the most blocks that one child needs and does not hold."""
    coordinates, count = _listed(collective)
    (holders, held), (needing, needed) = _ends(collective, coordinates, count)
    blocks = int(max(held.max(), needed.max())) + 1
    children = np.zeros(count, dtype=np.int64)
    missing: list[int] = []
    for level in range(len(group.levels)):
        for axis, digit in zip(collective.axes, group.digits, strict=True):
            if digit.level == level:
                children = children * digit.size + coordinates[axis]
        pairs_held = children[holders] * blocks + held
        pairs_needed = children[needing] * blocks + needed
        lacking = np.setdiff1d(pairs_needed, pairs_held) // blocks
        missing.append(int(np.bincount(lacking).max()) if len(lacking) else 0)
    return tuple(missing)
