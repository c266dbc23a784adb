"""Rings laid along the links of a level: what libraries do where children have links of their own.

A ring in the order of ranks uses the links that lie between neighbours, and other ones lie idle.
NCCL lays several rings through all GPUs of a node, so that each link is in one of them, and divides
its data among them. The hybrid cube mesh of a DGX-1 is three such rings.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from collir.cost.network.disjoint_rings import edge_disjoint_rings
from collir.cost.network.group import Group
from collir.cost.network.loads import Load, summed_loads
from collir.cost.network.traffic import Pattern, Shift
from collir.machine import Level, LinkKind
from collir.machine.model import Matrix


@dataclass(frozen=True)
class Ring(Pattern):
    """Every rank sends half a message to the next rank and half to the one before it.

    Where a group has all children of a level of links or a torus for itself, and comes through them
    one by one, it does so along links, in as many rings as there are, if that is faster than the
    order of its ranks.
    """

    part = 0.5

    def loads(self, group: Group) -> tuple[Load, ...]:
        ways = [(Shift(step).loads(group), 0.5) for step in (1, group.size - 1)]
        return tuple(_laid(group, index, load) for index, load in enumerate(summed_loads(ways)))


def _laid(group: Group, index: int, load: Load) -> Load:
    level = group.levels[index]
    if load.links is None or level.size < 3 or group.across[index] < level.size:
        return load
    messages = _one_by_one(Shift(1).pairs(group, index), level.size)
    count = ring_count(level) if messages else 0
    if not count:
        return load
    busiest = messages * group.beside[index] / 2 / count
    return replace(load, links=np.array([busiest])) if busiest < load.busiest_link else load


def _one_by_one(hops: Iterable[tuple[int, int, float]], size: int) -> float:
    """The messages of each hop, if the hops go through all of so many children once; else 0."""
    found: dict[tuple[int, int], float] = {}
    for source, target, count in hops:
        found[source, target] = found.get((source, target), 0.0) + count
    after = dict(found.keys())
    if len(after) < len(found) or len(set(found.values())) != 1:
        return 0.0
    starts = set(after) - set(after.values()) or {0}
    if len(starts) > 1:
        return 0.0
    at = next(iter(starts))
    seen = {at}
    while (at := after.get(at, at)) not in seen:
        seen.add(at)
    return next(iter(found.values())) if len(seen) == size else 0.0


def ring_count(level: Level) -> int:
    """How many rings there are through all children of a level that share no link; of a matrix, as
    many as a bounded search finds.

    On a torus half as many as a child has links: a product of cycles is made of as many rings as it
    has dimensions (Aubert and Schneider 1982), two dimensions of 2 being a cycle of 4. Beside one
    more dimension of 2, there are two copies of each ring, and two links between the copies join
    them.
    """
    match level.kind:
        case LinkKind.TORUS:
            return level.wires // 2
        case LinkKind.LINKS if level.links:
            return _found(level.links)
        case _:
            return 0


@lru_cache(maxsize=64)
def _found(links: Matrix) -> int:
    """The rings of a small matrix; 0 if there are too many children to look for some."""
    return len(edge_disjoint_rings(links))
