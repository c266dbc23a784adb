"""Lower bounds for the bytes of a group that has all links of a level to itself.

They follow from cuts through the links and from how far messages go. ``escape`` is the bandwidth,
in bytes per second, at which the children can reach each other by way of another parent.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from collir.cost.network.cuts import (
    Network,
    Node,
    all_gather_bound,
    all_reduce_bound,
    broadcast_bound,
    gather_bound,
)
from collir.cost.network.wires import distances
from collir.machine import Level, LinkKind

MAX_PARTS = 16
"""Largest number of children for which the bound of an all_reduce tries partitions."""


def level_capacity(level: Level) -> float:
    """Return the bytes per second that a level carries between its children at most."""
    if level.ports:
        return sum(level.ports)
    if not level.links or not level.wires:
        return level.size * level.port / level.taper
    ends = sum(map(sum, level.links))
    return min(ends * level.port / level.wires, level.size * level.port / level.taper)


def exchange_seconds(level: Level, escape: float) -> float:
    """Return a lower bound in seconds for a byte from every child to every other child.

    It divides the sum of all distances by the bandwidth of all links. On a ring or a torus it
    equals the bound by a cut through the middle.
    """
    if not level.wires or level.size == 1:
        return 0.0
    hops, diameter = distances(level)
    link = level.port / level.wires
    links = sum(map(sum, level.links)) if level.links else level.size * level.wires
    return hops / (links * link + diameter * escape)


CutBound = Callable[[Network, Sequence[Node], bool], float]
"""A lower bound in seconds for one byte of a buffer on a network between children.

The last argument is True if devices below another parent may help to reduce."""


def gathered_by_all(network: Network, children: Sequence[Node], helped: bool) -> float:
    """Return the bound of an all_gather or a reduce_scatter: links are full-duplex."""
    return all_gather_bound(network, children, 1.0)


def gathered_by_one(network: Network, children: Sequence[Node], helped: bool) -> float:
    """Return the bound of a gather or a scatter."""
    return gather_bound(network, children, 0, 1.0)


def reduced_to_all(network: Network, children: Sequence[Node], helped: bool) -> float:
    """Return the bound of an all_reduce, or of a broadcast for many children or with help."""
    if helped or len(children) > MAX_PARTS:
        return one_to_all(network, children, helped)
    return all_reduce_bound(network, children, 1.0)


def one_to_all(network: Network, children: Sequence[Node], helped: bool) -> float:
    """Return the bound of a broadcast or a reduce."""
    return broadcast_bound(network, children, 1.0)


@lru_cache(maxsize=1024)
def cut_seconds(level: Level, cut: CutBound, escape: float, helped: bool) -> float:
    """Return a bound for one byte on a level with a matrix of links; 0 on other levels."""
    if not level.links or level.size == 1 or level.kind is not LinkKind.LINKS:
        return 0.0
    return cut(_network(level, escape), range(level.size), helped)


def _network(level: Level, escape: float) -> Network:
    """Return the network of the links, and of a way between all children by another parent."""
    assert level.links
    link = level.port / level.wires
    links: dict[tuple[Node, Node], float] = {
        (a, b): count * link
        for a, row in enumerate(level.links)
        for b, count in enumerate(row)
        if count
    }
    if not escape:
        return Network(links)
    around: dict[tuple[Node, Node], float] = {("up", "down"): escape}
    around |= {(child, "up"): level.port for child in range(level.size)}
    around |= {("down", child): level.port for child in range(level.size)}
    return Network({**links, **around})
