"""Best-first search, keys and the k best solutions agree with dynamic programming."""

import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.harness.hanging import within
from support.search.plain_search import plain_optimise
from support.search.problems import (
    BoundedTree,
    BoundedWalks,
    Heap,
    SlowWalks,
    Tree,
    Walks,
    least,
    shortest,
    trees,
    walks,
)

from collir.problems.knapsack import Knapsack
from collir.search import (
    Budget,
    Coordination,
    DepthBounded,
    Local,
    Options,
    Ordered,
    Problem,
    Processes,
    SearchEngine,
    Sequential,
    StackStealing,
    Threads,
    decide,
    k_best,
    optimise,
)
from collir.search.core.plan import Order

COORDINATIONS: list[Coordination] = [
    Sequential(),
    DepthBounded(0),
    DepthBounded(2),
    StackStealing(),
    StackStealing(chunked=False),
    Budget(1),
    Budget(3),
    Budget(),
    Ordered(0),
    Ordered(2),
]
ORDERS: list[Order] = ["depth-first", "best-first"]


@dataclass
class Pool:
    """Yield engines that all tests of this file share."""

    processes: Processes
    threads: Threads
    executor: Executor


@pytest.fixture(scope="module")
def pool() -> Generator[Pool]:
    with Processes(2) as processes:
        assert optimise(Heap(9), engine=processes).best  # before threads are started
        with ThreadPoolExecutor(3) as executor:
            yield Pool(processes, Threads(3), executor)


@st.composite
def plans(draw: st.DrawFn) -> Options:
    return Options(
        order=draw(st.sampled_from(ORDERS)),
        coordination=draw(st.sampled_from(COORDINATIONS)),
        slice=draw(st.sampled_from([1, 5, None])),
    )


def engines() -> st.SearchStrategy[SearchEngine]:
    return st.builds(Local, st.sampled_from([1, 2, 3, 20]), st.integers(0, 999))


HERE = settings(max_examples=45)
AWAY = settings(
    max_examples=14,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def shortest_walk(problem: Walks, options: Options) -> None:
    expected = shortest(problem)
    with within():
        outcome = optimise(problem, **options)
        assert [solution.value for solution in outcome.solutions] == expected
        assert outcome.status == ("optimal" if expected else "infeasible")
        if expected:
            (cost,) = expected
            assert decide(problem, target=cost, **options).status == "feasible"
            assert decide(problem, target=cost - 1, **options).status == "infeasible"


@HERE
@given(walks(), engines(), plans())
def test_the_shortest_walk_in_a_graph_with_circles(
    problem: Walks, engine: SearchEngine, options: Options
) -> None:
    options["engine"] = engine
    shortest_walk(problem, options)


@AWAY
@given(walks(), plans())
def test_the_shortest_walk_is_found_by_processes_threads_and_executors(
    pool: Pool, problem: Walks, options: Options
) -> None:
    for engine in (pool.processes, pool.threads):
        options["engine"] = engine
        shortest_walk(problem, options)
    options["engine"], options["workers"] = pool.executor, 2
    shortest_walk(problem, options)


def test_futures_remember_the_states_that_were_reached(pool: Pool) -> None:
    """A circle that takes longer than a future runs is passed once, not for ever."""
    problem = SlowWalks({i: [((i + 1) % 60, (1,))] for i in range(60)}, -1)
    with within():
        outcome = optimise(problem, engine=pool.executor, workers=2)
    assert outcome.status == "infeasible"


@HERE
@given(walks(), st.integers(1, 6), engines(), plans())
def test_the_k_shortest_walks(
    problem: Walks, k: int, engine: SearchEngine, options: Options
) -> None:
    options["engine"] = engine
    with within():
        outcome = k_best(problem, k, **options)
    assert [solution.value for solution in outcome.solutions] == shortest(problem, k)
    assert outcome.status == ("optimal" if outcome.solutions else "infeasible")


@AWAY
@given(walks(), st.integers(1, 6), plans())
def test_the_k_shortest_walks_by_processes(
    pool: Pool, problem: Walks, k: int, options: Options
) -> None:
    options["engine"] = pool.processes
    with within():
        outcome = k_best(problem, k, **options)
    assert [solution.value for solution in outcome.solutions] == shortest(problem, k)


@HERE
@given(walks(), st.integers(1, 3), st.integers(0, 6), engines(), plans())
def test_the_k_shortest_walks_of_few_edges(
    problem: Walks, k: int, length: int, engine: SearchEngine, options: Options
) -> None:
    options["engine"], options["depth_limit"] = engine, length
    with within():
        outcome = k_best(problem, k, **options)
    assert [solution.value for solution in outcome.solutions] == shortest(problem, k, length)


@HERE
@given(walks(costs=2), engines(), plans())
def test_a_state_reached_at_two_costs_is_dropped_only_if_neither_is_less(
    problem: Walks, engine: SearchEngine, options: Options
) -> None:
    options["engine"] = engine
    with within():
        outcome = optimise(problem, **options)
    assert (outcome.best.value if outcome.best else None) == least(problem)


@AWAY
@given(walks(costs=2), plans())
def test_two_costs_in_processes(pool: Pool, problem: Walks, options: Options) -> None:
    options["engine"] = pool.processes
    with within():
        outcome = optimise(problem, **options)
    assert (outcome.best.value if outcome.best else None) == least(problem)


@HERE
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=6),
    st.integers(0, 12),
    engines(),
    plans(),
)
def test_keys_where_the_greatest_is_best(
    items: list[tuple[int, int]], capacity: int, engine: SearchEngine, options: Options
) -> None:
    values, weights = [v for v, _ in items], [w for _, w in items]
    best = plain_optimise(Knapsack(values, weights, capacity)).value
    with within():
        outcome = optimise(Knapsack(values, weights, capacity, dominance=True), **options)
    assert outcome.best is not None and outcome.best.value == best


@HERE
@given(walks(), st.integers(0, 3), st.sampled_from(ORDERS), st.integers(1, 3))
def test_an_ordered_search_with_keys_returns_the_same_node_with_any_workers(
    problem: Walks, depth: int, order: Order, k: int
) -> None:
    with within():
        first, *others = (
            k_best(problem, k, order=order, coordination=Ordered(depth), engine=engine, slice=step)
            for engine, step in (
                (Local(1), 1),
                (Local(1), None),
                (Local(3, 1), 1),
                (Local(3, 2), None),
                (Local(20, 3), 1),
            )
        )
    for other in others:
        assert [solution.node for solution in other.solutions] == [
            solution.node for solution in first.solutions
        ]


@HERE
@given(trees(), st.integers(0, 3), st.integers(1, 3))
def test_an_ordered_best_first_search_returns_the_same_nodes_with_any_workers(
    problem: Tree, depth: int, k: int
) -> None:
    with within():
        first, *others = (
            k_best(
                problem,
                k,
                order="best-first",
                coordination=Ordered(depth),
                engine=engine,
                slice=step,
            )
            for engine, step in ((Local(1), 1), (Local(1), None), (Local(3, 1), 1), (Local(9), 2))
        )
    for other in others:
        assert [solution.node for solution in other.solutions] == [
            solution.node for solution in first.solutions
        ]


@pytest.mark.turns
@HERE
@given(trees())
def test_alone_best_first_visits_no_node_whose_bound_is_worse_than_the_optimum(
    problem: Tree,
) -> None:
    outcome = optimise(problem, order="best-first")
    if outcome.best is None or not isinstance(problem, BoundedTree):
        return
    up = 1 if problem.sense == "max" else -1
    as_good = [b for b in problem.bounds if up * b >= up * outcome.best.value]
    assert outcome.statistics.nodes <= len(as_good)


def test_a_star_reaches_each_state_of_a_grid_once_at_most() -> None:
    """With an exact bound, a grid is searched along shortest walks only."""
    side = 12
    edges = {
        y * side + x: [
            ((y + j) * side + x + i, (1,))
            for i, j in ((1, 0), (0, 1), (-1, 0), (0, -1))
            if 0 <= x + i < side and 0 <= y + j < side
        ]
        for x in range(side)
        for y in range(side)
    }
    outcome = optimise(BoundedWalks(edges, side * side - 1), order="best-first")
    assert outcome.best is not None and outcome.best.value == 2 * side - 2
    assert outcome.statistics.nodes <= side * side


def test_a_best_first_search_for_several_walks_keeps_walks_apart() -> None:
    """Two walks of equal cost are two solutions, even if they have met before."""
    edges = {0: [(1, (1,)), (2, (1,))], 1: [(3, (1,))], 2: [(3, (1,))], 3: [(4, (0,))]}
    for order in ORDERS:
        outcome = k_best(BoundedWalks(edges, 4), 3, order=order)
        assert [solution.value for solution in outcome.solutions] == [2, 2]


@dataclass(frozen=True)
class Simulations(Problem[tuple[int, int]]):
    """Nodes in the order of their bounds; children take long until two threads look for them."""

    threads: set[int]

    sense = "min"
    sorted_by_bound = True

    def root(self) -> tuple[int, int]:
        return 0, 0

    def children(self, node: tuple[int, int]) -> Iterator[tuple[int, int]]:
        state, number = node
        if state == 0:
            yield from ((1, n) for n in range(100))
        elif state == 1:
            yield 2, number
        elif state == 2:
            self.threads.add(threading.get_ident())
            if len(self.threads) == 1:
                time.sleep(0.05)
            yield 3, number

    def objective(self, node: tuple[int, int]) -> int | None:
        return node[1] + 90 if node[0] == 3 else None

    def bound(self, node: tuple[int, int]) -> int:
        return node[1] + 90 * (node[0] == 3)


def test_a_worker_with_few_slow_nodes_shares_them() -> None:
    problem = Simulations(set())
    with within():
        outcome = optimise(problem, order="best-first", engine=Threads(2))
    assert [solution.value for solution in outcome.solutions] == [90]
    assert len(problem.threads) == 2
