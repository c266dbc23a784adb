"""Tours agree with all permutations and the table of Held and Karp; the bound holds."""

from itertools import pairwise, permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.search.plain_search import plain_decide, plain_enumerate, plain_optimise

from collir.problems.tsp import TSP, Tour, spanning_tree
from collir.search.core.problem import SearchError

Rows = list[list[int]]


@st.composite
def matrices(draw: st.DrawFn, most: int = 6, symmetric: bool | None = None) -> Rows:
    """Distances of a few cities, many of them equal."""
    n = draw(st.integers(1, most))
    distances = st.integers(0, draw(st.sampled_from([1, 9, 1000])))
    rows = draw(st.lists(st.lists(distances, min_size=n, max_size=n), min_size=n, max_size=n))
    if draw(st.booleans()) if symmetric is None else symmetric:
        return [[rows[min(i, j)][max(i, j)] for j in range(n)] for i in range(n)]
    return rows


def length(matrix: Rows, tour: list[int]) -> int:
    if len(tour) == 1:
        return 0
    return sum(matrix[i][j] for i, j in pairwise([*tour, tour[0]]))


def by_permutations(matrix: Rows) -> int:
    cities = range(1, len(matrix))
    return min(length(matrix, [0, *order]) for order in permutations(cities))


def by_table(matrix: Rows) -> int:
    """Return the shortest path through each set of cities to each of its cities (Held and Karp)."""
    n = len(matrix)
    shortest = {(1 << i, i): matrix[0][i] for i in range(1, n)}
    for visited in range(2, 1 << n, 2):
        for last in range(1, n):
            before = visited & ~(1 << last)
            if visited >> last & 1 and before:
                shortest[visited, last] = min(
                    shortest[before, i] + matrix[i][last] for i in range(1, n) if before >> i & 1
                )
    everywhere = (1 << n) - 2
    return min(shortest[everywhere, i] + matrix[i][0] for i in range(1, n))


@given(matrices())
def test_the_shortest_tour(matrix: Rows) -> None:
    problem = TSP(matrix)
    outcome = plain_optimise(problem)
    toured = problem.show(outcome.node)
    assert outcome.value == toured["length"] == by_permutations(matrix)
    assert length(matrix, toured["tour"]) == toured["length"]
    assert sorted(toured["tour"]) == list(range(len(matrix)))


@given(matrices())
def test_each_tour_is_one_node_and_a_way_back_is_none(matrix: Rows) -> None:
    problem = TSP(matrix)
    n = len(matrix)
    tours = [
        [0, *order]
        for order in permutations(range(1, n))
        if not problem.symmetric or n < 3 or order.index(1) < order.index(2)
    ]
    outcome = plain_enumerate(problem)
    assert sorted(outcome.values.elements()) == sorted(length(matrix, tour) for tour in tours)


@given(matrices(5))
def test_the_bounds_hold(matrix: Rows) -> None:
    problem = TSP(matrix)
    ways: dict[object, int] = {}

    def best_below(node: Tour) -> int:
        value = problem.objective(node)
        worths = [best_below(child) for child in problem.children(node)]
        worths += [] if value is None else [value]
        best = min(worths)
        assert node.length <= problem.bound(node) <= best
        if value is not None:
            assert problem.bound(node) == value
        # The length still to go depends only on the key.
        rest = best - problem.cost(node)
        assert ways.setdefault(problem.key(node), rest) == rest
        return best

    best_below(problem.root())


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.booleans())
def test_the_shortest_tour_of_nine_cities(seed: int, symmetric: bool) -> None:
    rng = Random(seed)
    matrix = [[rng.randrange(100) for _ in range(9)] for _ in range(9)]
    if symmetric:
        matrix = [[matrix[min(i, j)][max(i, j)] for j in range(9)] for i in range(9)]
    assert plain_optimise(TSP(matrix)).value == by_table(matrix)


def test_the_bound_at_the_root_is_close() -> None:
    around = [[min(abs(i - j), 20 - abs(i - j)) for j in range(20)] for i in range(20)]
    problem = TSP(around)
    assert problem.bound(problem.root()) == 20
    assert plain_optimise(problem).value == 20


@given(matrices(7, symmetric=True))
def test_a_spanning_tree_is_a_tree_and_the_cheapest(matrix: Rows) -> None:
    n = len(matrix)
    total, edges = spanning_tree(matrix, range(n))
    assert total == sum(matrix[i][j] for i, j in edges)
    kruskal, component = 0, list(range(n))
    for distance, i, j in sorted((matrix[a][b], a, b) for a in range(n) for b in range(a)):
        if component[i] != component[j]:
            kruskal += distance
            component = [component[i] if c == component[j] else c for c in component]
    assert total == kruskal
    reached = {n - 1}
    for i, j in edges:
        assert i in reached
        assert j not in reached
        reached.add(j)
    assert reached == set(range(n))


def test_deciding() -> None:
    matrix = [[0, 1, 9], [9, 0, 1], [1, 9, 0]]
    assert plain_decide(TSP(matrix, target=3)).value == 3
    assert plain_decide(TSP(matrix, target=2)).node is None


def test_dominance_can_be_turned_off() -> None:
    for dominance, key in [(True, (1, 0)), (False, None)]:
        problem = TSP([[0, 1], [2, 0]], dominance=dominance)
        assert problem.key(problem.root()) == key


def test_names_of_cities() -> None:
    problem = TSP([[0, 1], [2, 0]], names=[7, 9])
    assert problem.show(plain_optimise(problem).node) == {"length": 3, "tour": [7, 9]}


def test_the_diagonal_is_not_looked_at() -> None:
    assert plain_optimise(TSP([[-5, 1, 2], [1, 2**60, 3], [2, 3, 7]])).value == 6


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([], "from 1 to 1000 cities, not 0"),
        ([[0]] * 1001, "from 1 to 1000 cities, not 1001"),
        ([[0, 1], [1]], "row 1 of the matrix has 1 distances for 2 cities"),
        ([[0, 1.5], [1, 0]], "row 0 of the matrix has a distance that is no int"),
        ([[0, 1], [-1, 0]], "row 1 of the matrix has a negative distance"),
        ([[0, 2**53], [1, 0]], "longer than 9007199254740992; give distances in a larger unit"),
    ],
)
def test_what_is_no_matrix_of_distances(matrix: Rows, message: str) -> None:
    with pytest.raises(SearchError, match=message):
        TSP(matrix)


def test_names_for_other_cities() -> None:
    with pytest.raises(SearchError, match="there are 2 cities and 1 names"):
        TSP([[0, 1], [1, 0]], names=[1])
