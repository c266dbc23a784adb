"""Subgraph isomorphism: the occurrences of a small graph, the pattern, in a target graph.

The search keeps domains: for each vertex of the pattern the set of target vertices that it may
still be mapped to, as bits, filtered when a vertex is mapped (Ullmann, *An algorithm for subgraph
isomorphism*, 1976). The first domains compare the degrees of neighbours (Zampelli, Deville and
Solnon, *Solving subgraph isomorphism problems with constraint programming*, 2010).
"""

from collections.abc import Iterator
from typing import NamedTuple

from collir.problems.graphs import UndirectedGraph, set_bits
from collir.search.core.problem import Problem


class Embedding(NamedTuple):
    """A partial mapping of the pattern, and the domains of its vertices.

    Attributes:
        mapped: the pattern vertices that are mapped, as a set of bits.
        domains: for each pattern vertex the set of target vertices that it may be mapped to; for a
            mapped vertex, its image. Target vertices are numbered by falling degree.
    """

    mapped: int
    domains: tuple[int, ...]


class SubgraphIsomorphism(Problem[Embedding]):
    """The embeddings of ``pattern`` in ``target``: vertices to different vertices, edges to edges.

    If ``induced``, vertices that are not adjacent are mapped to vertices that are not adjacent.
    Only complete embeddings have an objective, the number of pattern vertices, which is also the
    target of a decision. An enumeration counts each embedding as a solution; embeddings that differ
    by a symmetry of the pattern count as different.
    """

    sorted_by_bound = False

    def __init__(self, pattern: UndirectedGraph, target: UndirectedGraph, *, induced: bool = False):
        self.pattern = pattern
        self.graph = target
        self.induced = induced
        self.target = pattern.n
        vertices = (1 << target.n) - 1
        self.order = sorted(range(target.n), key=lambda v: (-target.degrees[v], v))
        self.adjacent = target.renumbered(self.order)
        self.apart = tuple(vertices ^ row ^ 1 << v for v, row in enumerate(self.adjacent))

    def root(self) -> Embedding:
        """Return the empty mapping; neighbours of sufficient degrees decide the domains."""
        pattern, target = self.pattern, self.graph
        available = [_neighbour_degrees(target, v) for v in self.order]
        domains = [0] * pattern.n
        for p in range(pattern.n):
            needs = _neighbour_degrees(pattern, p)
            strangers = pattern.n - len(needs)
            for t in range(target.n):
                enough = len(available[t]) >= len(needs) and all(
                    map(int.__ge__, available[t], needs)
                )
                if enough and not (self.induced and target.n - len(available[t]) < strangers):
                    domains[p] |= 1 << t
        return Embedding(0, tuple(domains))

    def children(self, node: Embedding) -> Iterator[Embedding]:
        """Map the vertex with the smallest domain to each target that leaves no domain empty."""
        mapped, domains = node
        free = [p for p in range(self.pattern.n) if not mapped >> p & 1]
        if not free:
            return
        chosen = min(free, key=lambda p: domains[p].bit_count())
        free.remove(chosen)
        near = self.pattern.adjacency[chosen]
        for t in set_bits(domains[chosen]):
            beside = self.adjacent[t]
            elsewhere = self.apart[t] if self.induced else ~(1 << t)
            filtered = list(domains)
            filtered[chosen] = 1 << t
            for p in free:
                filtered[p] &= beside if near >> p & 1 else elsewhere
                if not filtered[p]:
                    break
            else:
                yield Embedding(mapped | 1 << chosen, tuple(filtered))

    def objective(self, node: Embedding) -> int | None:
        """Return the number of pattern vertices, if all of them are mapped."""
        return self.pattern.n if node.mapped.bit_count() == self.pattern.n else None

    def bound(self, node: Embedding) -> int:
        """Return the number of nonempty domains, or of target vertices in them if that is less."""
        reach, placed = 0, 0
        for domain in node.domains:
            reach |= domain
            placed += domain > 0
        return min(placed, reach.bit_count())

    def show(self, node: Embedding) -> list[tuple[int, int]]:
        """Return the mapping as (pattern vertex, target vertex), by their numbers in the files."""
        first, start = self.pattern.first, self.graph.first
        return [
            (p + first, self.order[node.domains[p].bit_length() - 1] + start)
            for p in set_bits(node.mapped)
        ]


def _neighbour_degrees(graph: UndirectedGraph, v: int) -> list[int]:
    """Return the degrees of the neighbours of a vertex, the greatest first."""
    return sorted((graph.degrees[w] for w in set_bits(graph.adjacency[v])), reverse=True)
