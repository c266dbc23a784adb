"""Undirected graphs as values, and families of graphs that are defined by a formula."""

import math
import random as python_random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import TypeVar

from collir.search.core.problem import SearchError

_Thing = TypeVar("_Thing")

MAX_VERTICES = 1 << 15
"""The maximum number of vertices; the adjacency of such a dense graph takes 128 MiB."""


@dataclass(frozen=True)
class UndirectedGraph:
    """An undirected graph without loops.

    Attributes:
        adjacency: for each vertex 0..n-1 the set of its neighbours as bits, bit w for vertex w.
        first: the number of vertex 0 in the file of the graph (1 in DIMACS files).
        name: the name of the graph.
    """

    adjacency: tuple[int, ...]
    first: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        n = len(self.adjacency)
        for v, row in enumerate(self.adjacency):
            if row < 0 or row >> n:
                raise SearchError(f"vertex {v} has a neighbour that is not one of 0..{n - 1}")
            if row >> v & 1:
                raise SearchError(f"vertex {v} is its own neighbour; graphs here have no loops")

    @staticmethod
    def of(
        n: int, edges: Iterable[tuple[int, int]], first: int = 0, name: str = ""
    ) -> "UndirectedGraph":
        """Return the graph with vertices 0..n-1 and the given edges; repeated edges count once.

        Raises:
            SearchError: there are too many vertices, or an edge is a loop or has no such vertex.
        """
        _checked_size(n)
        adjacency = [0] * n
        for v, w in edges:
            if not (0 <= v < n and 0 <= w < n):
                raise SearchError(f"the edge ({v}, {w}) leaves the vertices 0..{n - 1}")
            adjacency[v] |= 1 << w
            adjacency[w] |= 1 << v
        return UndirectedGraph(tuple(adjacency), first, name)

    @property
    def n(self) -> int:
        """The number of vertices."""
        return len(self.adjacency)

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """The number of neighbours of each vertex."""
        return tuple(row.bit_count() for row in self.adjacency)

    @property
    def size(self) -> int:
        """The number of edges."""
        return sum(self.degrees) // 2

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield the edges as (v, w), v > w, in the order of DIMACS files."""
        for v, row in enumerate(self.adjacency):
            yield from ((v, w) for w in set_bits(row & ((1 << v) - 1)))

    def renumbered(self, order: Sequence[int]) -> tuple[int, ...]:
        """Return the adjacency with vertex ``order[i]`` as vertex i; ``order`` is a permutation."""
        place = [0] * self.n
        for i, v in enumerate(order):
            place[v] = i
        return tuple(sum(1 << place[w] for w in set_bits(self.adjacency[v])) for v in order)

    def numbers(self, members: Iterable[int]) -> list[int]:
        """Return the numbers that vertices 0..n-1 have in the file, in increasing order."""
        return sorted(v + self.first for v in members)


def set_bits(members: int) -> Iterator[int]:
    """Yield the elements of a set of small integers, in increasing order."""
    while members:
        low = members & -members
        yield low.bit_length() - 1
        members ^= low


def _checked_size(n: int) -> None:
    if not 0 <= n <= MAX_VERTICES:
        raise SearchError(f"a graph has 0 to {MAX_VERTICES} vertices, not {n}")


def hamming(n: int, d: int) -> UndirectedGraph:
    """Return the words of ``n`` bits, adjacent if ``d`` or more bits differ (DIMACS hammingN-D)."""
    _between("the bits of a word", n, 0, 12)
    steps = [step for step in range(1 << n) if step.bit_count() >= max(d, 1)]
    return _translated(range(1 << n), steps, lambda v, step: v ^ step, f"hamming{n}-{d}")


def johnson(n: int, w: int, d: int) -> UndirectedGraph:
    """Return the words of ``n`` bits with ``w`` set, adjacent if ``d`` or more bits differ."""
    _between("the bits of a word", n, 0, 64)
    _between("the set bits of a word", w, 0, n)
    _checked_size(math.comb(n, w))
    words = sorted(sum(1 << i for i in ones) for ones in combinations(range(n), w))
    return _compared(words, lambda v, u: (v ^ u).bit_count() >= d, f"johnson{n}-{w}-{d}")


def keller(n: int) -> UndirectedGraph:
    """Return the graph of Lagarias and Shor on Keller's conjecture in ``n`` dimensions (DIMACS
    kellerN).

    Of all words of n digits 0..3, two are adjacent if they differ in two places or more, and in one
    of them by 2 modulo 4. The graph has only the neighbours of the word 0, in increasing order (as
    in the DIMACS file), so its cliques are smaller by one than the cliques on all words.
    """
    _between("the dimensions", n, 1, 6)
    digits = (d for d in product(range(4), repeat=n) if 2 in d and sum(map(bool, d)) > 1)
    words = [int("0" + "".join(map(str, d)), 16) for d in digits]  # no carry at 4 bits each
    mask = int("3" * n, 16)
    return _translated(words, words, lambda v, step: (v + step) & mask, f"keller{n}")


def mann(points: int) -> UndirectedGraph:
    """Return the cover of a Steiner triple system as a clique problem (DIMACS MANN_a).

    The graph is the complement of this one (Mannino and Sassano): a vertex for each point, and a
    triangle for each triple, its corners adjacent to one point of the triple each. The triples are
    the lines of the affine space of 3^k points (9, 27, 81: MANN_a9, a27, a81). A clique of
    points + triples - c vertices is a cover by c points.
    """
    if points not in (3, 9, 27, 81):
        raise SearchError(f"the triples of 3, 9, 27 or 81 points are known here, not of {points}")
    vectors = list(product(range(3), repeat=round(math.log(points, 3))))
    place = {v: i for i, v in enumerate(vectors)}
    triples: list[tuple[int, int, int]] = []
    for a, b in combinations(vectors, 2):
        c = tuple(-(x + y) % 3 for x, y in zip(a, b, strict=True))
        if b < c:
            triples.append((place[a], place[b], place[c]))
    apart: set[tuple[int, int]] = set()
    for index, triple in enumerate(triples):
        corners = [points + 3 * index + i for i in range(3)]
        apart.update(combinations(corners, 2))
        apart.update(zip(triple, corners, strict=True))
    n = points + 3 * len(triples)
    edges = (pair for pair in combinations(range(n), 2) if pair not in apart)
    return UndirectedGraph.of(n, edges, 1, f"MANN_a{points}")


def c_fat(n: int, c: float) -> UndirectedGraph:
    """Return a ring of floor(n / (c ln n)) parts, adjacent within and to the next (DIMACS
    c-fatN-C).

    Vertex v is in part v modulo the number of parts: sizes differ by one at most (Berman and Pelc;
    Hasselberg, Pardalos and Vairaktarakis). The numbering need not be that of the DIMACS file.
    """
    _between("the vertices", n, 2, MAX_VERTICES)
    if not 0 < c < math.inf:
        raise SearchError(f"the fatness of a ring is a number greater than 0, not {c}")
    parts = max(1, min(n, math.floor(n / (c * math.log(n)))))
    members = [sum(1 << v for v in range(part, n, parts)) for part in range(parts)]
    around = [members[i - 1] | members[i] | members[(i + 1) % parts] for i in range(parts)]
    rows = tuple(around[v % parts] & ~(1 << v) for v in range(n))
    return UndirectedGraph(rows, 1, f"c-fat{n}-{c}")


def random(n: int, p: float, seed: int) -> UndirectedGraph:
    """Return a random graph of ``n`` vertices, each pair an edge with probability ``p``."""
    _checked_size(n)
    if not 0 <= p <= 1:
        raise SearchError(f"a probability is a number from 0 to 1, not {p}")
    generator = python_random.Random(seed)
    edges = ((v, w) for v in range(n) for w in range(v) if generator.random() < p)
    return UndirectedGraph.of(n, edges, 1, f"random{n}-{p}-{seed}")


def petersen() -> UndirectedGraph:
    """Return the Petersen graph: the pairs of 5 elements, adjacent if they are disjoint."""
    pairs = list(combinations(range(5), 2))
    return _compared(pairs, lambda v, w: not set(v) & set(w), "petersen", 0)


def cycle(n: int) -> UndirectedGraph:
    """Return the cycle of ``n`` vertices, 3 or more."""
    _between("the vertices of a cycle", n, 3, MAX_VERTICES)
    return UndirectedGraph.of(n, ((v, (v + 1) % n) for v in range(n)), name=f"cycle{n}")


def cube(k: int) -> UndirectedGraph:
    """Return the corners and edges of the cube of ``k`` dimensions; 2^k vertices."""
    _between("the dimensions of a cube", k, 0, 15)
    edges = ((v, v ^ 1 << i) for v in range(1 << k) for i in range(k))
    return UndirectedGraph.of(1 << k, edges, name=f"cube{k}")


def _between(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise SearchError(f"{what} are {low} to {high}, not {value}")


def _translated(
    words: Sequence[int], steps: Sequence[int], move: Callable[[int, int], int], name: str
) -> UndirectedGraph:
    """Return the graph of ``words`` in which the steps lead from a word to its neighbours."""
    bit = {word: 1 << i for i, word in enumerate(words)}
    rows = tuple(sum(bit.get(move(v, step), 0) for step in steps) for v in words)
    return UndirectedGraph(rows, 1, name)


def _compared(
    things: Sequence[_Thing], adjacent: Callable[[_Thing, _Thing], bool], name: str, first: int = 1
) -> UndirectedGraph:
    pairs = combinations(range(len(things)), 2)
    edges = ((v, w) for v, w in pairs if adjacent(things[v], things[w]))
    return UndirectedGraph.of(len(things), edges, first, name)
