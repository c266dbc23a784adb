"""Random small graphs of devices and switches, their cuts, and what trees carry."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, pairwise

from hypothesis import strategies as st
from support.machine.topologies import links

from collir.machine import Level, LinkKind, Machine
from collir.synthesis.trees.graph import (
    CapacityGraph,
    Link,
    graph_of_level,
    graph_of_machine,
)
from collir.synthesis.trees.packing import SpanningTree


def linked(matrix: Sequence[Sequence[int]], port: float | None = None) -> Level:
    """Return a level with a matrix of links, each of 1 GB/s by default."""
    rows = tuple(map(tuple, matrix))
    wires = max(map(sum, rows))
    return Level("gpu", len(rows), port or wires * 1e9, 1e-6, LinkKind.LINKS, links=rows)


@st.composite
def link_graphs(draw: st.DrawFn, most: int = 8) -> CapacityGraph:
    """Draw a connected graph of 3 devices or more with links of their own."""
    size = draw(st.integers(3, most))
    return graph_of_level(linked(links(random.Random(draw(st.integers(0, 2**16))), size)))


@st.composite
def switch_graphs(draw: st.DrawFn) -> CapacityGraph:
    """Draw a graph with switches: uneven ports, or nodes of devices with links of both kinds."""
    rates = st.integers(1, 6).map(lambda rate: rate * 1e9)
    if draw(st.booleans()):
        ports = tuple(draw(st.lists(rates, min_size=2, max_size=6)))
        return graph_of_level(Level("gpu", len(ports), max(ports), 1e-6, ports=ports))
    inside = draw(st.integers(2, 3))
    ring = inside == 3 and draw(st.booleans())
    kind = LinkKind.RING if ring else LinkKind.SWITCH
    levels = (
        Level("node", draw(st.integers(2, 3)), draw(rates), 1e-5),
        Level("gpu", inside, draw(rates), 1e-6, kind),
    )
    return graph_of_machine(Machine("m", levels))


def cuts(graph: CapacityGraph) -> Iterator[tuple[set[int], Fraction]]:
    """Yield every set of nodes that has some but not all devices, and the bandwidth out of it."""
    for count in range(1, graph.nodes):
        for inside in map(set, combinations(range(graph.nodes), count)):
            if any(x < graph.ranks for x in inside) and not inside.issuperset(range(graph.ranks)):
                out = [
                    x.bandwidth
                    for (a, b), x in graph.links.items()
                    if a in inside and b not in inside
                ]
                yield inside, sum(out, Fraction(0))


def smallest_ratio(graph: CapacityGraph, roots: Iterable[int]) -> Fraction:
    """Return the least bandwidth out of a set for each root in it."""
    ratios = [(inside.intersection(roots), out) for inside, out in cuts(graph)]
    return min(out / len(inside) for inside, out in ratios if inside)


def check_tree(tree: SpanningTree, ranks: int) -> None:
    """Check that a tree leads from its root to all ranks."""
    assert tree.parents[tree.root] == -1
    assert sorted(tree.order) == list(range(ranks))
    assert all(a != b for a, b in pairwise(tree.order))
    assert tree.count > 0


def loads(trees: Iterable[SpanningTree]) -> Counter[Link]:
    """Return how many trees use each link."""
    used: Counter[Link] = Counter()
    for tree in trees:
        for link in tree.links:
            used[link] += tree.count
    return used
