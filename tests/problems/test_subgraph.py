"""Embeddings agree with known numbers, and with networkx on random graphs."""

import importlib
import pickle
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.search.plain_search import plain_decide, plain_enumerate

from collir.problems import graphs
from collir.problems.graphs import UndirectedGraph
from collir.problems.subgraph import Embedding, SubgraphIsomorphism

nx: Any = importlib.import_module("networkx")  # it has no types
isomorphism: Any = importlib.import_module("networkx.algorithms.isomorphism")


@st.composite
def some_graphs(draw: st.DrawFn, most: int) -> UndirectedGraph:
    n = draw(st.integers(0, most))
    edges = [pair for pair in combinations(range(n), 2) if draw(st.booleans())]
    return UndirectedGraph.of(n, edges, draw(st.integers(0, 1)))


def embeddings(
    pattern: UndirectedGraph, target: UndirectedGraph, induced: bool
) -> set[frozenset[tuple[int, int]]]:
    """Return all embeddings by networkx, as (pattern, target) vertices."""
    if not pattern.n:
        return {frozenset()}  # networkx has no embedding of the empty graph
    if pattern.n > target.n:
        return set()
    other: list[Any] = []
    for graph in (target, pattern):
        other.append(nx.empty_graph(graph.n))
        other[-1].add_edges_from(graph.edges())
    matcher = isomorphism.GraphMatcher(*other)
    mappings = matcher.subgraph_isomorphisms_iter() if induced else (
        matcher.subgraph_monomorphisms_iter()
    )  # fmt: skip
    return {frozenset((p, t) for t, p in mapping.items()) for mapping in mappings}


def ours(problem: SubgraphIsomorphism) -> list[list[tuple[int, int]]]:
    solutions: list[list[tuple[int, int]]] = []

    def visit(node: Embedding) -> None:
        if problem.objective(node) is not None:
            solutions.append(problem.show(node))
        for child in problem.children(node):
            assert problem.bound(child) <= problem.bound(node)
            visit(child)

    visit(problem.root())
    return solutions


@pytest.mark.parametrize(
    ("pattern", "target", "induced", "count"),
    [
        (graphs.petersen(), graphs.petersen(), False, 120),
        (graphs.petersen(), graphs.petersen(), True, 120),
        (graphs.cycle(8), graphs.cube(3), False, 96),
        (graphs.cycle(8), graphs.cube(3), True, 0),
        (graphs.cycle(6), graphs.cube(3), True, 48),
        (graphs.cube(3), graphs.cube(5), False, 1920),
        (graphs.cycle(3), graphs.petersen(), False, 0),
        (graphs.cycle(5), graphs.petersen(), False, 120),
        (graphs.cube(3), graphs.cycle(5), False, 0),
        (UndirectedGraph(()), graphs.cycle(5), False, 1),
        (UndirectedGraph((0, 0)), UndirectedGraph((0, 0, 0)), True, 6),
        (UndirectedGraph((0,)), UndirectedGraph(()), False, 0),
    ],
)
def test_known_numbers(
    pattern: UndirectedGraph, target: UndirectedGraph, induced: bool, count: int
) -> None:
    problem = SubgraphIsomorphism(pattern, target, induced=induced)
    outcome = plain_enumerate(problem)
    assert dict(outcome.values) == ({pattern.n: count} if count else {})
    assert (plain_decide(problem).node is not None) == (count > 0)


@given(some_graphs(4), some_graphs(6), st.booleans())
def test_networkx_finds_the_same_embeddings(
    pattern: UndirectedGraph, target: UndirectedGraph, induced: bool
) -> None:
    problem = SubgraphIsomorphism(pattern, target, induced=induced)
    actual = [
        frozenset((p - pattern.first, t - target.first) for p, t in shown)
        for shown in ours(problem)
    ]
    expected = embeddings(pattern, target, induced)
    assert len(actual) == len(expected) and set(actual) == expected


@given(some_graphs(5), some_graphs(7), st.booleans())
def test_deciding_finds_one_if_there_is_one(
    pattern: UndirectedGraph, target: UndirectedGraph, induced: bool
) -> None:
    problem = SubgraphIsomorphism(pattern, target, induced=induced)
    outcome = plain_decide(problem)
    if outcome.node is None:
        assert not ours(problem)
        return
    place = dict(problem.show(outcome.node))
    assert outcome.value == pattern.n == len(set(place.values()))
    for v, w in combinations(range(pattern.n), 2):
        edge = pattern.adjacency[v] >> w & 1
        t, u = (place[p + pattern.first] - target.first for p in (v, w))
        image = target.adjacency[t] >> u & 1
        assert image == edge if induced else image >= edge


def test_nodes_travel() -> None:
    problem = SubgraphIsomorphism(graphs.cycle(8), graphs.cube(3))
    first = next(iter(problem.children(problem.root())))
    again, other = pickle.loads(pickle.dumps((problem, first)))
    assert list(again.children(other)) == list(problem.children(first))
