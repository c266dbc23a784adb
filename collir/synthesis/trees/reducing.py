"""The bound of an all_reduce, and the parts of its buffer to reduce at each rank.

Each part of the buffer is reduced up a tree and sent down it again, and any rank may be the root.
With w bytes/second of trees at each root, an all_reduce runs at half of their sum. Trees exist if
the roots in any set S have at most the bandwidth out of S together. The largest sum is that of a
linear program; its constraints are added as minimum cuts violate them.
"""

from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np

from collir.cost.network.cuts import Network, Node, all_reduce_bound
from collir.synthesis.trees.bound import carries, root_bandwidth, violated_cuts
from collir.synthesis.trees.graph import CapacityGraph

MOST_PARTS = 32
"""The most devices for which partitions by cuts are tried, which takes a second there."""

MOST_ROUNDS = 200
"""The most times that a linear program gets more constraints."""

DENOMINATORS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32)
"""Into how many parts a unit of capacity is divided at most, in the order in which it is tried."""


def all_reduce_rate(graph: CapacityGraph) -> float:
    """Return an upper bound of the bytes/second of the buffer of an all_reduce.

    It is the least of three bounds: by the smallest cut, by single devices, and by the blocks below
    ports of switches, as m parts need 2 (m-1) messages for each byte. Up to ``MOST_PARTS`` devices,
    the partitions of ``all_reduce_bound`` are tried as well.
    """
    n = graph.ranks
    sizes = {1, *(size for size in graph.below if not n % size)} - {n}
    rate = float(min(root_bandwidth(graph, [0]), *(_rate_of_blocks(graph, x) for x in sizes)))
    if n > MOST_PARTS:
        return rate
    links: dict[tuple[Node, Node], float] = {(a, b): c for (a, b), c in graph.capacities.items()}
    return min(rate, float(graph.unit) / all_reduce_bound(Network(links), range(n), 1.0))


def _rate_of_blocks(graph: CapacityGraph, size: int) -> Fraction:
    """Return the rate at which blocks of neighbouring devices can exchange sums, in bytes/second.

    A switch between devices of one block belongs to it.
    """
    block = {rank: rank // size for rank in range(graph.ranks)}
    for switch in graph.switches:
        of = {block[a] for a, b in graph.links if b == switch}
        if len(of) == 1:
            block[switch] = of.pop()
    out = Fraction(0)
    for (a, b), rates in graph.links.items():
        if a in block and block[a] != block.get(b):
            out += rates.bandwidth
    return out / (2 * (graph.ranks // size - 1))


def root_weights(graph: CapacityGraph) -> dict[int, Fraction] | None:
    """Return rates in bytes/second of the trees of each root, whose sum is the largest; None if no
    fractions of small denominators reach it."""
    linprog: Any = import_module("scipy.optimize").linprog  # imported here as it is slow
    n = graph.ranks
    cuts = [{rank} for rank in range(n)]
    for _ in range(MOST_ROUNDS):
        matrix = np.array([[float(rank in cut) for rank in range(n)] for cut in cuts])
        most = [
            float(sum(c for (a, b), c in graph.capacities.items() if a in cut and b not in cut))
            for cut in cuts
        ]
        solved = linprog(-np.ones(n), matrix, most)
        rates = {rank: float(x) for rank, x in enumerate(solved.x)}
        violated = violated_cuts(graph.nodes, n, graph.capacities, rates)
        more = [cut for cut in violated if cut not in cuts]
        if not more:
            return _rounded(graph, [*map(Fraction, rates.values())])
        cuts += more
    return None


def _rounded(graph: CapacityGraph, weights: list[Fraction]) -> dict[int, Fraction] | None:
    """Return weights as fractions of a unit with which trees exist, in bytes/second."""
    total = float(sum(weights))
    for parts in DENOMINATORS:
        counts: Mapping[int, int] = {
            rank: count for rank, weight in enumerate(weights) if (count := round(weight * parts))
        }
        if sum(counts.values()) < parts * total * (1 - 1e-9):
            continue
        capacities = {link: c * parts for link, c in graph.capacities.items()}
        if carries(graph.nodes, graph.ranks, capacities, counts):
            return {rank: count * graph.unit / parts for rank, count in counts.items()}
    return None
