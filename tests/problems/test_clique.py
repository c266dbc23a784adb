"""The greatest clique agrees with known answers, networkx, and the compiled search."""

import importlib
import pickle
import sys
import threading
from importlib.util import find_spec
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness.seeds import some
from support.search.plain_search import Found, plain_decide, plain_enumerate, plain_optimise

from collir.problems import clique, graphs
from collir.problems.clique import KClique, MaxClique
from collir.problems.clique_node import CliqueNode
from collir.problems.graphs import UndirectedGraph
from collir.search.core.problem import Dive, Kernel, Kind, SearchError

nx: Any = importlib.import_module("networkx")  # it has no types

numba = pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")


@st.composite
def some_graphs(draw: st.DrawFn, most: int = 12, fewest: int = 0) -> UndirectedGraph:
    n = draw(st.integers(fewest, most))
    pairs = list(combinations(range(n), 2))
    chosen = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    edges = (pair for pair, edge in zip(pairs, chosen, strict=True) if edge)
    return UndirectedGraph.of(n, edges, draw(st.integers(0, 1)))


def clique_number(graph: UndirectedGraph) -> int:
    other = nx.empty_graph(graph.n)
    other.add_edges_from(graph.edges())
    return max(map(len, nx.find_cliques(other)), default=0) if graph.n else 0


def is_clique(graph: UndirectedGraph, numbers: list[int]) -> bool:
    members = [number - graph.first for number in numbers]
    return all(graph.adjacency[v] >> w & 1 for v, w in combinations(members, 2))


KNOWN = [  # vertices of the greatest clique, and nodes visited, the root included
    (graphs.keller(4), 11, 13727),
    (graphs.hamming(8, 4), 16, 36453),
    (graphs.hamming(6, 4), 4, 83),
    (graphs.hamming(6, 2), 32, 33),
    (graphs.johnson(8, 4, 4), 14, 127),
    (graphs.johnson(8, 2, 4), 4, 25),
    (graphs.mann(9), 16, 72),
    (graphs.c_fat(200, 1), 12, 26),
    (graphs.c_fat(200, 2), 24, 25),
    (graphs.c_fat(200, 5), 58, 141),
    (graphs.petersen(), 2, 5),
]


@pytest.mark.turns
@pytest.mark.parametrize(("graph", "size", "nodes"), KNOWN, ids=lambda x: getattr(x, "name", None))
def test_known_cliques_and_trees(graph: UndirectedGraph, size: int, nodes: int) -> None:
    problem = MaxClique(graph)
    outcome = plain_optimise(problem)
    shown = problem.show(outcome.node)
    assert (outcome.value, outcome.nodes) == (size, nodes)
    assert len(set(shown)) == size and shown == sorted(shown) and is_clique(graph, shown)


@given(some_graphs())
def test_networkx_finds_no_other_size(graph: UndirectedGraph) -> None:
    problem = MaxClique(graph)
    outcome = plain_optimise(problem)
    assert outcome.value == clique_number(graph) == len(problem.show(outcome.node))
    assert is_clique(graph, problem.show(outcome.node))


@given(some_graphs(8), st.integers(0, 9))
def test_deciding(graph: UndirectedGraph, k: int) -> None:
    problem = KClique(graph, k)
    outcome = plain_decide(problem)
    assert (outcome.node is not None) == (k <= clique_number(graph))
    assert outcome.node is None or len(problem.show(outcome.node)) >= k


@given(some_graphs(9))
def test_each_clique_is_one_node_and_bounds_hold(graph: UndirectedGraph) -> None:
    problem = MaxClique(graph)
    other = nx.Graph(list(graph.edges()))
    other.add_nodes_from(range(graph.n))
    cliques = 1 + sum(1 for _ in nx.enumerate_all_cliques(other))
    assert plain_enumerate(problem).nodes == cliques

    def best(node: CliqueNode) -> int:
        bounds = [problem.bound(child) for child in problem.children(node)]
        assert all(a >= b for a, b in pairwise(bounds))
        value = max([problem.objective(node), *map(best, problem.children(node))])
        assert value <= problem.bound(node)
        return value

    best(problem.root())


def test_children_are_made_one_at_a_time_and_travel() -> None:
    problem = MaxClique(graphs.keller(4))
    first = next(iter(problem.children(problem.root())))
    again, other = pickle.loads(pickle.dumps((problem, first)))
    assert other == first == next(iter(again.children(again.root())))


def test_a_negative_clique_is_refused() -> None:
    with pytest.raises(SearchError, match="a clique has 0 vertices or more, not -1"):
        KClique(graphs.petersen(), -1)


# The compiled search


def compiled(problem: MaxClique, kind: Kind = "optimise") -> Kernel[CliqueNode]:
    kernel = problem.kernel(kind, None)
    assert kernel is not None
    return kernel


def in_pieces(problem: MaxClique, limit: int) -> tuple[Found, list[Dive[CliqueNode]]]:
    """Optimise by dives of ``limit`` nodes; the rests are searched in order."""
    kernel, cut = compiled(problem), np.array([np.inf])
    result, dives, stack = Found(), list[Dive[CliqueNode]](), [problem.root()]
    while stack:
        dive = kernel(stack.pop(), cut, limit)
        assert dive.nodes <= limit
        dives.append(dive)
        result.nodes += dive.nodes
        for value, node in dive.solutions:
            assert result.value is None or value > result.value
            assert problem.objective(node) == value <= problem.bound(node)
            result.value, result.node = value, node
            cut[0] = -(value + 1)
        for level in dive.rest:
            stack.extend(reversed(level))
    return result, dives


@pytest.mark.turns
@numba
@pytest.mark.parametrize("graph", some([g for g, _, _ in KNOWN], 5), ids=lambda x: x.name)
def test_the_kernel_visits_the_same_nodes(graph: UndirectedGraph) -> None:
    problem = MaxClique(graph, kernel=True)
    plain = plain_optimise(problem)
    dive = compiled(problem)(problem.root(), np.array([np.inf]), 1 << 62)
    assert (dive.nodes, dive.pruned, dive.deepest) == (plain.nodes, plain.pruned, plain.deepest)
    assert dive.solutions[-1] == (plain.value, plain.node)
    assert [value for value, _ in dive.solutions] == list(range(int(plain.value or 0) + 1))
    assert dive.rest == () and dive.backtracks == dive.nodes


@numba
@given(some_graphs(), st.integers(1, 5), st.integers(-1, 5))
def test_the_kernel_agrees_on_random_graphs(graph: UndirectedGraph, limit: int, known: int) -> None:
    problem = MaxClique(graph, kernel=True)
    plain = plain_optimise(problem)
    result, dives = in_pieces(problem, limit)
    assert (result.value, result.node, result.nodes) == (plain.value, plain.node, plain.nodes)
    assert all(dive.nodes == limit or dive.rest == () for dive in dives)
    plain = plain_optimise(problem, known)
    dive = compiled(problem)(problem.root(), np.array([-(known + 1.0)]), 1 << 62)
    assert (dive.nodes, dive.pruned) == (plain.nodes, plain.pruned)
    assert (dive.solutions[-1][1] if dive.solutions else None) == plain.node


@numba
@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_kernel_that_stops_leaves_exactly_the_rest(limit: int) -> None:
    result, dives = in_pieces(MaxClique(graphs.keller(4), kernel=True), limit)
    assert (result.value, result.nodes) == (11, 13727)
    assert len(dives) >= 13727 / limit


@numba
@given(some_graphs(8), st.integers(0, 9))
def test_the_kernel_decides(graph: UndirectedGraph, k: int) -> None:
    problem = KClique(graph, k, kernel=True)
    plain = plain_decide(problem)
    dive = compiled(problem, "decide")(problem.root(), np.array([-float(k)]), 1 << 62)
    assert dive.nodes == plain.nodes
    assert dive.solutions == (() if plain.node is None else ((plain.value, plain.node),))


@numba
def test_the_kernel_starts_anywhere_and_is_used_again() -> None:
    problem = MaxClique(graphs.random(70, 0.6, 1), kernel=True)
    kernel = compiled(problem)
    for child in problem.children(problem.root()):
        for start in [child, *list(problem.children(child))[:2]]:
            below = _Below(problem, start)
            plain = plain_optimise(below, 5)
            dive = kernel(start, np.array([-6.0]), 1 << 62)
            assert (dive.nodes, dive.pruned) == (plain.nodes, plain.pruned)
            assert (dive.solutions[-1][1] if dive.solutions else None) == plain.node


class _Below(MaxClique):
    """A problem whose root is a node of another problem."""

    def __init__(self, whole: MaxClique, start: CliqueNode):
        super().__init__(whole.graph)
        self.start = start

    def root(self) -> CliqueNode:
        return self.start


@numba
def test_a_node_that_cannot_matter_is_not_visited() -> None:
    problem = MaxClique(graphs.petersen(), kernel=True)
    for cut in (-4.0, -np.inf):
        dive = compiled(problem)(problem.root(), np.array([cut]), 100)
        assert dive == Dive(nodes=0, pruned=1)


@numba
def test_the_kernel_heeds_a_bound_that_falls_meanwhile() -> None:
    """Other threads run while a search of minutes runs."""
    problem = MaxClique(graphs.random(400, 0.75, 1), kernel=True)
    kernel, cut, dives = compiled(problem), np.array([np.inf]), list[Dive[CliqueNode]]()
    kernel(problem.root(), cut, 1)  # compiles
    thread = threading.Thread(
        target=lambda: dives.append(kernel(problem.root(), cut, 1 << 62)), daemon=True
    )
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    cut[0] = -np.inf
    thread.join(60)
    assert not thread.is_alive() and dives[0].nodes > 1


@numba
def test_a_kernel_is_there_only_if_asked_for() -> None:
    asked = MaxClique(graphs.petersen(), kernel=True)
    assert asked.kernel("enumerate", None) is None
    assert MaxClique(graphs.petersen()).kernel("optimise", None) is None
    assert pickle.loads(pickle.dumps(asked)).kernel("decide", None) is not None


def test_without_numba_a_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        return None

    monkeypatch.setattr(clique, "find_spec", nothing)
    with pytest.raises(SearchError, match=r"needs numba: install it .* or search without it"):
        MaxClique(graphs.petersen(), kernel=True)
    MaxClique(graphs.petersen())


@numba
def test_a_kernel_that_cannot_be_loaded_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = MaxClique(graphs.petersen(), kernel=True)  # asked for here, used elsewhere
    monkeypatch.setitem(sys.modules, "collir.problems.clique_kernel", None)
    with pytest.raises(SearchError, match=r"needs numba: .* \(import of "):
        problem.kernel("optimise", None)
