"""Travelling salesman: the shortest tour of all cities.

The bound of a symmetric instance is a spanning tree of the cities still to visit, in distances
shifted by a multiplier for each city. The multipliers are computed once by ascent (Held and Karp,
"The traveling-salesman problem and minimum spanning trees", 1970 and 1971). The bound of an
asymmetric instance is the reduction of Little, Murty, Sweeney and Karel ("An algorithm for the
traveling salesman problem", 1963). All numbers are integers.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypedDict

from collir.problems.text import EXACT
from collir.search.core.problem import Problem, SearchError

MAX_CITIES = 1000

_SCALE = 64
"""Units of a multiplier in a unit of distance."""

_ASCENT = 10**7
"""The approximate number of distances that the ascent reads."""

DistanceMatrix = Sequence[Sequence[int]]


class Tour(NamedTuple):
    """A path that begins in city 0.

    Attributes:
        last: the last city of the path.
        visited: a mask of its cities, bit i for city i.
        length: the length of the path.
        path: its cities in order.
    """

    last: int
    visited: int
    length: int
    path: tuple[int, ...]


class Toured(TypedDict):
    """A solution for people: its length, back to the first city, and the cities in order."""

    length: int
    tour: list[int]


class TSP(Problem[Tour]):
    """The tours of all cities, built from city 0, the nearest city first (by shifted distances).

    Of a symmetric tour and its reverse only one is searched: city 1 is visited before city 2.

    Args:
        matrix: ``matrix[i][j]`` is the distance from city i to city j, not negative; the diagonal
            is ignored.
        target: the length that a decision must not exceed.
        dominance: whether to keep only the shortest of the paths through the same cities to the
            same last city; this takes memory for each kept path.
        names: the numbers of the cities in solutions; by default from 0.
    """

    sense = "min"

    def __init__(
        self,
        matrix: DistanceMatrix,
        target: int | None = None,
        dominance: bool = True,
        names: Sequence[int] | None = None,
    ):
        _check(matrix)
        self.n = n = len(matrix)
        self.names = tuple(range(n) if names is None else names)
        if len(self.names) != n:
            raise SearchError(f"there are {n} cities and {len(self.names)} names")
        self.target, self.dominance = target, dominance
        self.matrix = [
            [0 if i == j else distance for j, distance in enumerate(row)]
            for i, row in enumerate(matrix)
        ]
        self.symmetric = self.matrix == list(map(list, zip(*self.matrix, strict=True)))
        self._everywhere = (1 << n) - 1
        self._multipliers = _ascend(self.matrix) if self.symmetric else [0] * n
        self._moved = _move(self.matrix, self._multipliers)
        self._near = [
            sorted((j for j in range(n) if j != i), key=row.__getitem__)
            for i, row in enumerate(self._moved)
        ]

    def root(self) -> Tour:
        """Return the path of city 0 alone."""
        return Tour(0, 1, 0, (0,))

    def children(self, node: Tour) -> Iterator[Tour]:
        """Yield the paths with one more city, the nearest by shifted distances first."""
        last, visited, length, path = node
        closed = visited | (4 if self.symmetric and not visited & 2 else 0)
        row = self.matrix[last]
        for city in self._near[last]:
            if not closed >> city & 1:
                yield Tour(city, visited | 1 << city, length + row[city], (*path, city))

    def objective(self, node: Tour) -> int | None:
        """Return the length of the tour, back to city 0, if it has all cities."""
        if node.visited != self._everywhere:
            return None
        return node.length + self.matrix[node.last][0]

    def bound(self, node: Tour) -> int:
        """Return the length so far plus a lower bound of the way back through all other cities."""
        if node.visited == self._everywhere:
            return node.length + self.matrix[node.last][0]
        left = [city for city in range(self.n) if not node.visited >> city & 1]
        rest = self._by_tree(node.last, left) if self.symmetric else self._by_rows(node.last, left)
        return node.length + rest

    def _by_tree(self, last: int, left: list[int]) -> int:
        """Bound the way back by a spanning tree of the cities left and a road from each end.

        The way has two roads at each city left and one at each end; each road adds a multiplier.
        """
        tree, _ = spanning_tree(self._moved, left)
        if last or len(left) == 1:
            tree += min(map(self._moved[last].__getitem__, left))
            tree += min(map(self._moved[0].__getitem__, left))
        else:
            tree += sum(sorted(map(self._moved[0].__getitem__, left))[:2])
        multipliers = self._multipliers
        added = 2 * sum(map(multipliers.__getitem__, left)) + multipliers[last] + multipliers[0]
        return max(0, -((added - tree) // _SCALE))  # rounded up

    def _by_rows(self, last: int, left: list[int]) -> int:
        """Bound the way back by the shortest roads that leave and that enter each city."""
        rows = [
            [self.matrix[i][j] if i != j else EXACT for j in left]
            + [self.matrix[i][0] if i != last else EXACT]
            for i in (last, *left)
        ]
        least = [min(row) for row in rows]
        enter = (min(map(int.__sub__, column, least)) for column in zip(*rows, strict=True))
        return sum(least) + sum(enter)

    def key(self, node: Tour) -> tuple[int, int] | None:
        """Return the visited cities and the last of them, if dominance is enabled."""
        return (node.visited, node.last) if self.dominance else None

    def cost(self, node: Tour) -> int:
        """Return the length so far."""
        return node.length

    def show(self, node: Tour) -> Toured:
        """Return the length and the names of the cities in order."""
        length = node.length + self.matrix[node.last][0]
        return {"length": length, "tour": [self.names[city] for city in node.path]}


def _check(matrix: DistanceMatrix) -> None:
    """Raise an error if a matrix holds anything but distances."""
    n = len(matrix)
    if not 1 <= n <= MAX_CITIES:
        raise SearchError(f"there must be from 1 to {MAX_CITIES} cities, not {n}")
    longest = 0
    for i, row in enumerate(matrix):
        if len(row) != n:
            raise SearchError(f"row {i} of the matrix has {len(row)} distances for {n} cities")
        if any(type(distance) is not int for distance in row):
            raise SearchError(
                f"row {i} of the matrix has a distance that is no int; scale and round"
            )
        others = [*row[:i], *row[i + 1 :]]
        if min(others, default=0) < 0:
            raise SearchError(f"row {i} of the matrix has a negative distance")
        longest = max(longest, *others, 0)
    if longest * n > EXACT:
        raise SearchError(f"a tour may be longer than {EXACT}; give distances in a larger unit")


def spanning_tree(cost: DistanceMatrix, nodes: Sequence[int]) -> tuple[int, list[tuple[int, int]]]:
    """Return the cost and the edges of a minimum spanning tree of some nodes (Prim's algorithm)."""
    rest = list(nodes)
    newest = rest.pop()
    row = cost[newest]
    best = [(row[node], newest) for node in rest]
    total = 0
    edges: list[tuple[int, int]] = []
    while rest:
        cheapest = min(best)
        at = best.index(cheapest)
        newest = rest[at]
        total += cheapest[0]
        edges.append((cheapest[1], newest))
        rest[at], best[at] = rest[-1], best[-1]
        rest.pop()
        best.pop()
        row = cost[newest]
        best = [
            old if old[0] <= (new := row[node]) else (new, newest)
            for old, node in zip(best, rest, strict=True)
        ]
    return total, edges


def _move(matrix: DistanceMatrix, multipliers: Sequence[int]) -> list[list[int]]:
    """Return the distances plus the multipliers of both cities, in multiples of 1 / _SCALE."""
    return [
        [
            _SCALE * d + multipliers[i] + multiplier
            for d, multiplier in zip(row, multipliers, strict=True)
        ]
        for i, row in enumerate(matrix)
    ]


def _ascend(matrix: DistanceMatrix) -> list[int]:
    """Return multipliers that make the 1-tree of a symmetric instance long.

    The multiplier of a city rises if its degree is more than two, and falls if it is less.
    """
    n = len(matrix)
    multipliers = [0] * n
    if n < 4:
        return multipliers
    best, longest = multipliers, -1
    rounds = min(150, _ASCENT // n**2)
    for turn in range(rounds):
        moved = _move(matrix, multipliers)
        total, edges = spanning_tree(moved, range(1, n))
        two = sorted(range(1, n), key=moved[0].__getitem__)[:2]
        length = total + moved[0][two[0]] + moved[0][two[1]] - 2 * sum(multipliers)
        if length > longest:
            best, longest = multipliers, length
        degrees = [-2] * n
        for i, j in (*edges, (0, two[0]), (0, two[1])):
            degrees[i] += 1
            degrees[j] += 1
        step = longest * (rounds - turn) // (2 * n * rounds)
        multipliers = [m + step * d for m, d in zip(multipliers, degrees, strict=True)]
    return best
