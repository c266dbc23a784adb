"""What no algorithm beats where children of a level have links of their own, and one group has all
of them: for its bytes, by cuts through the links and by how far messages go.

``escape`` is what the children can send each other beside their links, by way of another parent, in
bytes per second.
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
"""The most children whose choices of parts are looked at for an all_reduce."""


def level_capacity(level: Level) -> float:
    """Bytes per second that a level carries between its children at most."""
    if level.ports:
        return sum(level.ports)
    if not level.links or not level.wires:
        return level.size * level.port / level.taper
    ends = sum(map(sum, level.links))
    return min(ends * level.port / level.wires, level.size * level.port / level.taper)


def exchange_seconds(level: Level, escape: float) -> float:
    """Seconds for a byte from every child to every other: each takes so many links, at least.

    It is what a cut through the middle of a ring or a torus says, and as good on other networks.
    """
    if not level.wires or level.size == 1:
        return 0.0
    hops, most = distances(level)
    link = level.port / level.wires
    links = sum(map(sum, level.links)) if level.links else level.size * level.wires
    return hops / (links * link + most * escape)


CutBound = Callable[[Network, Sequence[Node], bool], float]
"""Seconds for one byte of a buffer over links, whatever the children do with it; where ``helped``
is set, devices under another parent may reduce for these."""


def gathered_by_all(network: Network, children: Sequence[Node], helped: bool) -> float:
    """Return the bound of an all_gather, or of a reduce_scatter: links are the same both ways."""
    return all_gather_bound(network, children, 1.0)


def gathered_by_one(network: Network, children: Sequence[Node], helped: bool) -> float:
    """Return the bound of a gather, or of a scatter."""
    return gather_bound(network, children, 0, 1.0)


def reduced_to_all(network: Network, children: Sequence[Node], helped: bool) -> float:
    """Return the bound of an all_reduce; of many children, or helped ones, that of a broadcast."""
    if helped or len(children) > MAX_PARTS:
        return one_to_all(network, children, helped)
    return all_reduce_bound(network, children, 1.0)


def one_to_all(network: Network, children: Sequence[Node], helped: bool) -> float:
    """Return the bound of a broadcast, or of a reduce."""
    return broadcast_bound(network, children, 1.0)


@lru_cache(maxsize=1024)
def cut_seconds(level: Level, cut: CutBound, escape: float, helped: bool) -> float:
    """Seconds for one byte of a buffer on a level of links; 0 if it has no matrix of them."""
    if not level.links or level.size == 1 or level.kind is not LinkKind.LINKS:
        return 0.0
    return cut(_network(level, escape), range(level.size), helped)


def _network(level: Level, escape: float) -> Network:
    """The links; and outside of them a way from all children to all."""
    assert level.links
    link = level.port / level.wires
    found: dict[tuple[Node, Node], float] = {
        (a, b): count * link
        for a, row in enumerate(level.links)
        for b, count in enumerate(row)
        if count
    }
    if not escape:
        return Network(found)
    around: dict[tuple[Node, Node], float] = {("up", "down"): escape}
    around |= {(child, "up"): level.port for child in range(level.size)}
    around |= {("down", child): level.port for child in range(level.size)}
    return Network({**found, **around})
