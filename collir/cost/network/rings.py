"""The pattern of ring algorithms, with rings along the links of a level as libraries lay them.

A ring in the order of ranks uses only the links between neighbouring ranks and leaves others idle.
NCCL instead lays several rings through all GPUs of a node, so that each link is in one of them, and
divides its data among them. The hybrid cube mesh of a DGX-1 has three such rings.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from collir.algorithms.patterns import BothWays, Pattern, Shift
from collir.cost.network.disjoint_rings import edge_disjoint_rings
from collir.cost.network.group import Group
from collir.cost.network.loads import Load, summed_loads
from collir.cost.network.traffic import Traffic, next_pairs, traffic_of
from collir.machine import Level, LinkKind
from collir.machine.level import Matrix


def loads_of(
    pattern: Pattern | Traffic, group: Group, along_links: bool = True
) -> tuple[Load, ...]:
    """Return the load of every level, in messages.

    Args:
        along_links: whether, in a pattern that goes ``BothWays`` round, a group that extends over
            all children of a torus, a full mesh or a matrix of links, and visits each child once,
            may use all edge-disjoint rings along links in parallel, as libraries lay them. It does
            so if that is faster than the order of its ranks.

    Raises:
        CostError: it has to be listed, and has too many ranks.
    """
    if isinstance(pattern, Traffic):
        return pattern.loads(group)
    if not isinstance(pattern, BothWays):
        return traffic_of(pattern, group).loads(group)
    ways = (traffic_of(Shift(step), group).loads(group) for step in (1, group.size - 1))
    loads = summed_loads([(way, 0.5) for way in ways])
    if not along_links:
        return loads
    return tuple(_along_links(group, index, load) for index, load in enumerate(loads))


def _along_links(group: Group, index: int, load: Load) -> Load:
    """Return the load on a level with the rings laid along its links, if that is faster."""
    level = group.levels[index]
    if load.links is None or level.size < 3 or group.across[index] < level.size:
        return load
    messages = _messages_per_hop(next_pairs(group, index), level.size)
    count = ring_count(level) if messages else 0
    if not count:
        return load
    busiest = messages * group.beside[index] / 2 / count
    return replace(load, links=np.array([busiest])) if busiest < load.busiest_link else load


def _messages_per_hop(hops: Iterable[tuple[int, int, float]], size: int) -> float:
    """Return the messages of each hop if the hops visit each of ``size`` children once, else 0."""
    messages: dict[tuple[int, int], float] = {}
    for source, target, count in hops:
        messages[source, target] = messages.get((source, target), 0.0) + count
    successor = dict(messages.keys())
    if len(successor) < len(messages) or len(set(messages.values())) != 1:
        return 0.0
    starts = set(successor) - set(successor.values()) or {0}
    if len(starts) > 1:
        return 0.0
    child = next(iter(starts))
    seen = {child}
    while (child := successor.get(child, child)) not in seen:
        seen.add(child)
    return next(iter(messages.values())) if len(seen) == size else 0.0


def ring_count(level: Level) -> int:
    """Return the number of edge-disjoint rings through all children of a level.

    In a matrix of links, a bounded search finds them. On a torus there are half as many as a child
    has links: the product of n cycles decomposes into n rings (Aubert and Schneider 1982), where
    two dimensions of size 2 form one cycle of 4. One more dimension of size 2 makes two copies of
    each ring, which two links between the copies join into one. Links between every two of n
    children decompose into (n-1)/2 rings, rounded down (Walecki 1892).
    """
    match level.kind:
        case LinkKind.TORUS:
            return level.wires // 2
        case LinkKind.FULL:
            return (level.size - 1) // 2
        case LinkKind.LINKS if level.links:
            return _matrix_rings(level.links)
        case _:
            return 0


@lru_cache(maxsize=64)
def _matrix_rings(links: Matrix) -> int:
    """Return the number of rings of a matrix; 0 if it has too many children to search."""
    return len(edge_disjoint_rings(links))
