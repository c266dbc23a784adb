"""The ranks that take part in a collective of a program, and who sends to whom."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from collir.algorithms.patterns import Shift
from collir.cost.collectives.collective import Collective
from collir.cost.collectives.permutation import pattern_of
from collir.cost.network.traffic import ListedMessages
from collir.layout import Mesh, Place

Peers = Mapping[int, Sequence[int]]
"""The numbers of the members that a member of a group sends to, or receives from."""


def coordinate(mesh: Mesh, rank: int, axis: str) -> int:
    """Return the coordinate of a rank on a sub-axis."""
    sub = mesh.by_name[axis]
    return rank // sub.stride % sub.size


def is_at(mesh: Mesh, rank: int, place: Place) -> bool:
    """Return whether a rank is at the coordinates of a place."""
    return all(coordinate(mesh, rank, axis) == at for axis, at in place)


def place_of(collective: Collective) -> Place:
    """Return the coordinates of the ranks that take part in a collective, outside of its axes."""
    mesh, base = collective.mesh, collective.base
    return tuple((axis, coordinate(mesh, base, axis)) for axis in sorted(collective.at_root))


def members(collective: Collective, rank: int) -> tuple[int, ...]:
    """Return the ranks of the group of a rank, in the order in which its axes are written."""
    mesh = collective.mesh
    own = sum(coordinate(mesh, rank, x) * mesh.by_name[x].stride for x in collective.axes)
    return tuple(rank - own + offset for offset in _offsets(mesh, collective.axes))


@lru_cache(maxsize=256)
def _offsets(mesh: Mesh, axes: tuple[str, ...]) -> tuple[int, ...]:
    offsets = [0]
    for axis in axes:
        sub = mesh.by_name[axis]
        offsets = [x + sub.stride * n for x in offsets for n in range(sub.size)]
    return tuple(offsets)


@lru_cache(maxsize=256)
def peers(collective: Collective) -> tuple[Peers, Peers]:
    """Return the members that each member of a group sends to, and the members it receives from, in
    a collective with listed messages.

    Raises:
        CostError: too many devices to list.
    """
    pattern = pattern_of(collective)
    if isinstance(pattern, Shift):
        count = collective.ranks
        pairs = [(n, (n + pattern.distance) % count) for n in range(count)]
    else:
        assert isinstance(pattern, ListedMessages)
        pairs = [(int(a), int(b)) for a, b in zip(pattern.sources, pattern.targets, strict=True)]
    targets: dict[int, list[int]] = {}
    sources: dict[int, list[int]] = {}
    for sender, receiver in pairs:
        if sender != receiver:
            targets.setdefault(sender, []).append(receiver)
            sources.setdefault(receiver, []).append(sender)
    return targets, sources
