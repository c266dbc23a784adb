"""Trees of least latency: each rank is reached over a way of least latency from the root.

Among such ways, the one with the least loaded links is taken. Other trees of the same latency may
load the links less.
"""

from collections.abc import Sequence
from fractions import Fraction
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from collir.synthesis.trees.graph import CapacityGraph, Link
from collir.synthesis.trees.packing import SpanningTree


class ShortestTrees(NamedTuple):
    """One tree from each root.

    Attributes:
        bandwidth: of a tree, in bytes/second, if all run at the same time.
        latencies: in seconds, of the links of trees.
    """

    trees: list[SpanningTree]
    bandwidth: Fraction
    latencies: dict[Link, float]


class _RankWay(NamedTuple):
    """A link between devices, or two with a switch between them."""

    latency: float
    links: tuple[Link, ...]


def shortest_trees(graph: CapacityGraph, roots: Sequence[int]) -> ShortestTrees:
    """Return trees of least latency, one from each root."""
    ways = _ways(graph)
    loads: dict[Link, int] = {}
    trees = [_tree(graph, root, ways, loads) for root in roots]
    bandwidth = min(graph.links[link].bandwidth / load for link, load in loads.items())
    latencies = {(a, b): way.latency for a, own in enumerate(ways) for b, way in own.items()}
    return ShortestTrees(trees, bandwidth, latencies)


def _ways(graph: CapacityGraph) -> list[dict[int, _RankWay]]:
    """Return the ways from each device to others: of several, the one of least latency."""
    ways: list[dict[int, _RankWay]] = [{} for _ in range(graph.ranks)]
    into: dict[int, list[int]] = {}
    for (a, b), rates in graph.links.items():
        if max(a, b) < graph.ranks:
            ways[a][b] = _RankWay(rates.latency, ((a, b),))
        elif a >= graph.ranks:
            into.setdefault(a, []).append(b)
    for switch, devices in into.items():
        for a in devices:
            for b in devices:
                way = _RankWay(graph.latency(a, b, switch), ((a, switch), (switch, b)))
                if a != b and (b not in ways[a] or way.latency < ways[a][b].latency):
                    ways[a][b] = way
    return ways


def _tree(
    graph: CapacityGraph, root: int, ways: list[dict[int, _RankWay]], loads: dict[Link, int]
) -> SpanningTree:
    """Return a tree from a root, and add it to the loads of links."""
    n = graph.ranks
    times = _least_times(root, ways)
    parents = [-1] * n
    for y in sorted(range(n), key=lambda rank: (times[rank], (rank - root) % n))[1:]:
        before = [x for x in range(n) if y in ways[x] and _after(times[x], ways[x][y]) == times[y]]
        x = min(before, key=lambda x: (_load(graph, ways[x][y], loads), (y - x) % n))
        parents[y] = x
        for link in ways[x][y].links:
            loads[link] = loads.get(link, 0) + 1
    return SpanningTree(root, 1, tuple(parents))


def _least_times(root: int, ways: list[dict[int, _RankWay]]) -> list[tuple[float, int]]:
    """Return the least latency to each rank, and the fewest hops with it (Dijkstra)."""
    times: list[tuple[float, int]] = [(inf, 0)] * len(ways)
    times[root] = 0.0, 0
    queue = [(times[root], root)]
    while queue:
        time, x = heappop(queue)
        for y, way in ways[x].items() if time == times[x] else ():
            if (later := _after(time, way)) < times[y]:
                times[y] = later
                heappush(queue, (later, y))
    return times


def _after(time: tuple[float, int], way: _RankWay) -> tuple[float, int]:
    return time[0] + way.latency, time[1] + 1


def _load(graph: CapacityGraph, way: _RankWay, loads: dict[Link, int]) -> float:
    """Return the trees per unit of capacity on the busiest link of a way, with one more tree."""
    return max((loads.get(link, 0) + 1) / graph.capacities[link] for link in way.links)
