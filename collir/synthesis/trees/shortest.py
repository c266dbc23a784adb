"""Trees of least latency: each rank is reached over a way of least latency from the root.

Among such ways, those are taken whose links carry the least so far. It is not proven that no trees
of the same latency load the links less.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from collir.synthesis.trees.graph import CapacityGraph, Link
from collir.synthesis.trees.packing import SpanningTree


class ShortestTrees(NamedTuple):
    """One tree from each root.

    Attributes:
        bandwidth: of a tree, in bytes/second, if all run at the same time.
    """

    trees: list[SpanningTree]
    bandwidth: Fraction


class _Way(NamedTuple):
    """A link between devices, or two with a switch between them."""

    latency: float
    links: tuple[Link, ...]


def shortest_trees(graph: CapacityGraph, roots: Sequence[int]) -> ShortestTrees:
    """Return trees of least latency, one from each root."""
    ways = _ways(graph)
    loads: dict[Link, int] = {}
    trees = [_tree(graph, root, ways, loads) for root in roots]
    bandwidth = min(graph.links[link].bandwidth / load for link, load in loads.items())
    return ShortestTrees(trees, bandwidth)


def _ways(graph: CapacityGraph) -> list[dict[int, _Way]]:
    """Return the ways from each device to others: of several, the one of least latency."""
    ways: list[dict[int, _Way]] = [{} for _ in range(graph.ranks)]
    into: dict[int, list[int]] = {}
    for (a, b), rates in graph.links.items():
        if max(a, b) < graph.ranks:
            ways[a][b] = _Way(rates.latency, ((a, b),))
        elif a >= graph.ranks:
            into.setdefault(a, []).append(b)
    for switch, devices in into.items():
        for a in devices:
            for b in devices:
                latency = max(graph.links[a, switch].latency, graph.links[switch, b].latency)
                way = _Way(latency, ((a, switch), (switch, b)))
                if a != b and (b not in ways[a] or latency < ways[a][b].latency):
                    ways[a][b] = way
    return ways


def _tree(
    graph: CapacityGraph, root: int, ways: list[dict[int, _Way]], loads: dict[Link, int]
) -> SpanningTree:
    """Return a tree from a root, and add it to the loads of links."""
    parents = dict.fromkeys([root], -1)
    best: dict[int, tuple[float, int]] = {root: (0.0, 0)}
    n = graph.ranks
    while len(parents) < n:
        # The next rank has the least latency, then the fewest hops, then the least loaded way.
        latency, hops, _, _, x, y = min(
            (best[x][0] + way.latency, best[x][1] + 1, _load(graph, way, loads), (y - x) % n, x, y)
            for x in parents for y, way in ways[x].items() if y not in parents
        )  # fmt: skip
        parents[y], best[y] = x, (latency, hops)
        for link in ways[x][y].links:
            loads[link] = loads.get(link, 0) + 1
    return SpanningTree(root, 1, tuple(parents[x] for x in range(n)))


def _load(graph: CapacityGraph, way: _Way, loads: dict[Link, int]) -> Fraction:
    """Return the seconds a byte of every tree takes over the slowest link of a way."""
    return max(Fraction(loads.get(x, 0) + 1) / graph.links[x].bandwidth for x in way.links)
