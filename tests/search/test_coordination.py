"""Every division of work on every engine gives the answer of a plain recursive search."""

from collections import Counter
from collections.abc import Generator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.harness.hanging import within
from support.search.plain_search import better, plain_decide, plain_enumerate, plain_optimise
from support.search.problems import Heap, Tree, trees

from collir.problems.clique import MaxClique
from collir.problems.graphs import UndirectedGraph
from collir.problems.knapsack import Knapsack
from collir.problems.queens import Queens
from collir.search import (
    Budget,
    Collect,
    Coordination,
    DepthBounded,
    Enumeration,
    Local,
    Nodes,
    NodesByDepth,
    Optimum,
    Options,
    Ordered,
    Processes,
    SearchEngine,
    SearchError,
    Sequential,
    Solutions,
    StackStealing,
    Threads,
    decide,
    enumerate,
    k_best,
    optimise,
)
from collir.search.core.plan import Order
from collir.search.core.problem import Number, Problem, overrides

COORDINATIONS: list[Coordination | None] = [
    None,
    Sequential(),
    *(DepthBounded(depth) for depth in (0, 1, 3, 50)),
    StackStealing(),
    StackStealing(chunked=False),
    *(Budget(backtracks) for backtracks in (1, 3, None)),
    *(Ordered(depth) for depth in (0, 1, 2, 50)),
]
SEEDS = st.integers(0, 2**16)


@dataclass
class Pool:
    """Yield engines that all tests of this file share."""

    processes: dict[int, Processes]
    threads: Threads
    thread_pool: Executor
    process_pool: Executor


@pytest.fixture(scope="module")
def pool() -> Generator[Pool]:
    with Processes(2) as two, Processes(3) as three:
        for engine in (two, three):  # before threads are started, so that they may be forked
            assert optimise(Heap(9), engine=engine, coordination=Budget(1)).best
        process_pool = ProcessPoolExecutor(2, get_context("spawn"))
        with ThreadPoolExecutor(3) as thread_pool, process_pool:
            yield Pool({2: two, 3: three}, Threads(3), thread_pool, process_pool)


@st.composite
def plans(draw: st.DrawFn) -> Options:
    """Options of a search: any division, order and slice."""
    order: Order = draw(st.sampled_from(["depth-first", "best-first"]))
    return Options(
        coordination=draw(st.sampled_from(COORDINATIONS)),
        order=order,
        slice=draw(st.sampled_from([1, 1, 7, None])),
    )


@st.composite
def here(draw: st.DrawFn) -> SearchEngine:
    """Workers in this process: one, a few, or more than there are nodes."""
    return Local(draw(st.sampled_from([1, 2, 3, 5, 40])), draw(SEEDS))


def agrees(problem: Problem[Any], kind: int, options: Options) -> None:
    """Run one of four kinds of search, and compare it with the plain search."""
    with within():
        if kind == 0:
            agrees_on_best(problem, options)
        elif kind == 7:
            agrees_on_decision(problem, options)
        elif kind == 8:
            agrees_on_folds(problem, options)
        else:
            agrees_on_k_best(problem, kind, options)


def values_of(problem: Problem[Any]) -> list[Number]:
    """Return all objectives, best first."""
    values = plain_enumerate(problem).values.elements()
    return sorted(values, reverse=problem.sense == "max")


def proven(problem: Problem[Any], outcome: Optimum[Any]) -> None:
    """Check the properties of every finished search."""
    assert outcome.statistics.reason == ""
    assert [problem.objective(s.node) for s in outcome.solutions] == [
        s.value for s in outcome.solutions
    ]
    if outcome.solutions:
        assert outcome.best is not None
        assert outcome.status == "optimal"
        if overrides(problem, "bound"):
            assert (outcome.bound, outcome.gap) == (outcome.best.value, 0.0)
    else:
        assert (outcome.status, outcome.bound, outcome.best) == ("infeasible", None, None)


def agrees_on_best(problem: Problem[Any], options: Options) -> None:
    expected = plain_optimise(problem)
    outcome = optimise(problem, **options)
    proven(problem, outcome)
    assert (outcome.best.value if outcome.best else None) == expected.value


def agrees_on_k_best(problem: Problem[Any], k: int, options: Options) -> None:
    outcome = k_best(problem, k, **options)
    proven(problem, outcome)
    assert [solution.value for solution in outcome.solutions] == values_of(problem)[:k]
    if isinstance(problem, Tree):
        assert len({solution.node for solution in outcome.solutions}) == len(outcome.solutions)


def agrees_on_decision(problem: Problem[Any], options: Options) -> None:
    values = values_of(problem)
    targets: list[Number] = [0, 5, *values[:2], *values[-1:]]
    for target in targets:
        expected = plain_decide(problem, target)
        outcome = decide(problem, target=target, **options)
        if expected.node is None:
            assert (outcome.status, outcome.solution) == ("infeasible", None)
        else:
            assert outcome.status == "feasible" and outcome.solution is not None
            value = problem.objective(outcome.solution.node)
            assert value is not None and value == outcome.solution.value
            assert not better(problem, target, value)


def agrees_on_folds(problem: Problem[Any], options: Options) -> None:
    options["order"] = "depth-first"
    expected = plain_enumerate(problem)
    solutions: Enumeration[int] = enumerate(problem, **options)
    assert (solutions.status, solutions.total) == ("complete", expected.values.total())
    assert solutions.statistics.nodes == expected.nodes
    assert solutions.statistics.deepest == expected.deepest
    assert enumerate(problem, Solutions(), **options).total == expected.values.total()
    assert enumerate(problem, Nodes(), **options).total == expected.nodes
    by_depth = enumerate(problem, NodesByDepth(), **options).total
    assert Counter(dict(zip(range(99), by_depth, strict=False))) == expected.by_depth
    shown = enumerate(problem, Collect(), **options).total
    assert len(shown) == expected.values.total()
    if isinstance(problem, Tree):
        assert sorted(shown) == [
            n for n, value in zip(range(99), problem.values, strict=False) if value is not None
        ]


KINDS = st.integers(0, 8)
HERE = settings(max_examples=72)
AWAY = settings(
    max_examples=18,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@HERE
@given(trees(), KINDS, here(), plans())
def test_workers_in_turn_agree_on_random_trees(
    problem: Tree, kind: int, engine: SearchEngine, options: Options
) -> None:
    options["engine"] = engine
    agrees(problem, kind, options)


@AWAY
@given(trees(), KINDS, st.sampled_from([2, 3]), plans())
def test_processes_agree_on_random_trees(
    pool: Pool, problem: Tree, kind: int, workers: int, options: Options
) -> None:
    options["engine"] = pool.processes[workers]
    agrees(problem, kind, options)


@AWAY
@given(trees(), KINDS, plans())
def test_threads_agree_on_random_trees(
    pool: Pool, problem: Tree, kind: int, options: Options
) -> None:
    options["engine"] = pool.threads
    agrees(problem, kind, options)


@AWAY
@given(trees(), KINDS, st.sampled_from([2, None]), plans())
def test_a_pool_of_threads_agrees_on_random_trees(
    pool: Pool, problem: Tree, kind: int, workers: int | None, options: Options
) -> None:
    options["engine"], options["workers"] = pool.thread_pool, workers or 3
    agrees(problem, kind, options)


@settings(AWAY, max_examples=15)
@given(trees(), KINDS, plans())
def test_a_pool_of_processes_agrees_on_random_trees(
    pool: Pool, problem: Tree, kind: int, options: Options
) -> None:
    options["engine"], options["workers"] = pool.process_pool, 2
    agrees(problem, kind, options)


@settings(HERE, max_examples=27)
@given(trees(most=14), KINDS, SEEDS, plans())
def test_workers_lost_by_chance_change_no_answer(
    problem: Tree, kind: int, seed: int, options: Options
) -> None:
    for again in range(30):
        engine = Local(5, seed + again, loss=0.05)
        try:
            options["engine"] = engine
            agrees(problem, kind, options)
            return
        except SearchError as error:
            assert "lost with the same task" in str(error)
    raise AssertionError("in 30 searches a task was lost three times")


@st.composite
def knapsacks(draw: st.DrawFn) -> Knapsack:
    items = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=6))
    return Knapsack([v for v, _ in items], [w for _, w in items], draw(st.integers(0, 30)))


@st.composite
def cliques(draw: st.DrawFn) -> MaxClique:
    n = draw(st.integers(1, 7))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return MaxClique(UndirectedGraph.of(n, edges))


APPLICATIONS = st.one_of(knapsacks(), cliques(), st.builds(Queens, st.integers(1, 5)))


@settings(HERE, max_examples=36)
@given(APPLICATIONS, KINDS, here(), plans())
def test_workers_in_turn_agree_on_applications(
    problem: Problem[Any], kind: int, engine: SearchEngine, options: Options
) -> None:
    options["engine"] = engine
    agrees(problem, kind, options)


@settings(AWAY, max_examples=14)
@given(APPLICATIONS, KINDS, plans())
def test_processes_agree_on_applications(
    pool: Pool, problem: Problem[Any], kind: int, options: Options
) -> None:
    options["engine"] = pool.processes[2]
    agrees(problem, kind, options)


@HERE
@given(trees())
def test_alone_it_takes_the_nodes_that_a_plain_search_takes(problem: Tree) -> None:
    expected = plain_optimise(problem)
    outcome = optimise(problem)
    assert (outcome.statistics.nodes, outcome.statistics.pruned) == (
        expected.nodes,
        expected.pruned,
    )
    assert outcome.statistics.deepest == expected.deepest
    assert (outcome.best.node if outcome.best else None) == expected.node


@HERE
@given(trees(), st.sampled_from([Sequential(), Budget(1), DepthBounded(2)]), SEEDS, KINDS)
def test_the_inner_loop_of_branch_and_bound_does_what_the_general_one_does(
    problem: Tree, coordination: Coordination, seed: int, step: int
) -> None:
    """A search with a profile uses the general loop, whose counts are the same."""
    plain, general = (
        optimise(
            problem,
            engine=Local(2, seed),
            coordination=coordination,
            slice=step + 1,
            profile=profile,
        )
        for profile in (False, True)
    )
    plain.statistics.seconds = general.statistics.seconds = 0.0
    assert plain.statistics == general.statistics
    assert plain.solutions == general.solutions


# The answer of an ordered search does not depend on the engine.


def ordered(problem: Tree, depth: int, engine: SearchEngine, step: int | None) -> None:
    """The node, not only its value, is the one that the sequential search finds."""
    options = Options(engine=engine, coordination=Ordered(depth), slice=step)
    with within():
        best = plain_optimise(problem)
        outcome = optimise(problem, **options)
        assert (outcome.best.node if outcome.best else None) == best.node
        assert outcome.best is None or outcome.best.value == best.value
        values = values_of(problem)
        for target in (0, *values[:1], *values[len(values) // 2 :][:1]):
            solution = decide(problem, target=target, **options).solution
            assert (solution.node if solution else None) == plain_decide(problem, target).node
        three = k_best(problem, 3, **options).solutions
        alone = k_best(problem, 3).solutions
        assert [solution.node for solution in three] == [solution.node for solution in alone]


DEPTHS = st.sampled_from([0, 1, 2, 3, 50])


@settings(HERE, max_examples=36)
@given(trees(), DEPTHS, here(), st.sampled_from([1, None]))
def test_ordered_returns_the_node_of_the_sequential_search(
    problem: Tree, depth: int, engine: SearchEngine, step: int | None
) -> None:
    ordered(problem, depth, engine, step)


@settings(HERE, max_examples=18)
@given(trees(most=14), DEPTHS, SEEDS)
def test_ordered_returns_the_same_node_when_workers_are_lost(
    problem: Tree, depth: int, seed: int
) -> None:
    for again in range(30):
        try:
            ordered(problem, depth, Local(3, seed + again, loss=0.02), 1)
            return
        except SearchError as error:
            assert "lost with the same task" in str(error)
    raise AssertionError("in 30 searches a task was lost three times")


@pytest.mark.turns
@settings(AWAY, max_examples=15)
@given(trees(), DEPTHS, st.sampled_from([1, None]))
def test_ordered_returns_the_node_of_the_sequential_search_from_other_places(
    pool: Pool, problem: Tree, depth: int, step: int | None
) -> None:
    for engine in (pool.processes[2], pool.processes[3], pool.threads):
        ordered(problem, depth, engine, step)
