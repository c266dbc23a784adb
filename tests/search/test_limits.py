"""Limits return the best solution so far with a valid bound; checkpoints are resumed."""

import math
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.harness.hanging import HANG, within
from support.harness.seeds import some
from support.search.plain_search import plain_enumerate, plain_optimise
from support.search.problems import Endless, Heap, Tree, seen_in_time, trees

from collir.search import (
    Budget,
    Collect,
    Coordination,
    DepthBounded,
    Fold,
    Local,
    Nodes,
    NodesByDepth,
    Optimum,
    Options,
    Ordered,
    Problem,
    Processes,
    SearchError,
    Sequential,
    StackStealing,
    Threads,
    decide,
    enumerate,
    k_best,
    optimise,
)
from collir.search.core.plan import ORDERS, Order
from collir.search.running.checkpoint import MAGIC

HERE = settings(
    max_examples=22,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
DIVIDED: list[Coordination] = [
    Sequential(),
    DepthBounded(2),
    StackStealing(),
    Budget(1),
    Budget(),
]


@pytest.fixture(scope="module")
def engine() -> Generator[Processes]:
    with Processes(2) as engine:
        yield engine


def holds(problem: Problem[Any], outcome: Optimum[Any], best: float | None) -> None:
    """Check that the optimum lies between the best solution so far and the bound."""
    up = 1 if problem.sense == "max" else -1
    bound = outcome.bound
    if outcome.status in ("optimal", "infeasible"):
        assert (outcome.best.value if outcome.best else None) == best
        assert outcome.statistics.reason == ""
        return
    assert outcome.status == ("feasible" if outcome.best else "interrupted")
    assert outcome.statistics.reason
    assert bound is not None
    if best is not None:
        assert up * bound >= up * best
    if outcome.best is not None:
        assert best is not None
        assert up * outcome.best.value <= up * best
        assert problem.objective(outcome.best.node) == outcome.best.value
        assert outcome.gap is None or outcome.gap >= 0
        if outcome.gap == 0:
            assert outcome.best.value == best


@given(
    trees(),
    st.integers(0, 30),
    st.integers(1, 4),
    st.sampled_from(ORDERS),
    st.sampled_from(DIVIDED),
)
@HERE
def test_the_optimum_lies_between_the_best_so_far_and_the_bound(
    problem: Tree, limit: int, workers: int, order: Order, coordination: Coordination
) -> None:
    outcome = optimise(
        problem,
        engine=Local(workers, limit),
        order=order,
        coordination=coordination,
        node_limit=limit,
        slice=1,
    )
    holds(problem, outcome, plain_optimise(problem).value)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limit", [1, 2, 17, 100, 1234])
def test_alone_a_limit_of_nodes_is_met_exactly(order: Order, limit: int) -> None:
    outcome = optimise(Heap(5000), node_limit=limit, order=order)
    assert (outcome.statistics.nodes, outcome.statistics.reason) == (limit, "node limit")
    assert (outcome.status, outcome.bound) == ("feasible", 2000)


def test_alone_a_limit_of_nodes_is_met_exactly_when_enumerating() -> None:
    for limit in (1, 5, 999):
        outcome = enumerate(Heap(1000), Nodes(), node_limit=limit)
        assert (outcome.status, outcome.total, outcome.statistics.nodes) == (
            "interrupted",
            limit,
            limit,
        )


def test_a_limit_of_more_nodes_than_there_are_does_not_matter() -> None:
    for limit in (1001, 10**9):
        outcome = enumerate(Heap(1000), Nodes(), node_limit=limit)
        assert (outcome.status, outcome.total, outcome.statistics.reason) == ("complete", 1000, "")


def test_a_limit_of_just_as_many_nodes_as_there_are_does_not_matter() -> None:
    outcome = enumerate(Heap(1000), Nodes(), node_limit=1000)
    assert (outcome.status, outcome.total, outcome.statistics.reason) == ("complete", 1000, "")


ENGINES = ["local", "processes", "threads"]


@pytest.mark.turns
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limit", ["time", "node", "memory"])
def test_each_limit_ends_a_long_search_with_a_bound(name: Any, order: Order, limit: str) -> None:
    options = Options(
        engine=name,
        workers=2,
        order=order,
        node_limit=500 if limit == "node" else None,
        memory_limit=1 << 20 if limit == "memory" else None,
    )
    with within():
        outcome = seen_in_time(**options) if limit == "time" else optimise(Endless(), **options)
    assert (outcome.status, outcome.statistics.reason) == ("feasible", f"{limit} limit")
    assert outcome.best is not None and outcome.bound == 20000
    value = outcome.best.value
    assert outcome.gap == ((20000 - value) / value if value else math.inf)


def test_limits_of_no_time_and_no_nodes_end_at_once() -> None:
    for engine in (Local(1), Local(3), Threads(2)):
        limits: list[Options] = [
            Options(time_limit=0, engine=engine),
            Options(node_limit=0, engine=engine),
        ]
        for options in limits:
            with within():
                outcome = optimise(Endless(), **options)
            assert outcome.status in ("feasible", "interrupted")
            assert outcome.statistics.nodes <= 64


def test_a_limit_of_no_memory_ends_at_once() -> None:
    assert optimise(Heap(3000), memory_limit=0).statistics.reason == "memory limit"


def test_a_limit_of_time_holds_though_every_node_takes_long() -> None:
    """At most a few nodes are visited after the limit."""
    outcome = enumerate(Heap(300, seconds=0.1), Nodes(), time_limit=0.15)
    assert outcome.status == "interrupted" and outcome.total <= 6


def test_a_search_without_a_bound_that_is_cut_off_has_no_gap() -> None:
    outcome = optimise(Tree([0, 1, 2], [1, 2, 3, 4]), node_limit=2)
    assert (outcome.status, outcome.bound, outcome.gap) == ("feasible", math.inf, None)


def test_a_decision_cut_off_is_no_decision() -> None:
    problem = Heap(1000)
    assert decide(problem, target=1100, node_limit=50).status == "interrupted"
    assert decide(problem, target=1100).status == "infeasible"
    assert decide(problem, target=0, node_limit=50).status == "feasible"


# Checkpoints.


@st.composite
def places(draw: st.DrawFn) -> Options:
    """Options of a part of a search."""
    workers, seed = draw(st.sampled_from([1, 2, 5])), draw(st.integers(0, 99))
    return Options(
        engine=Local(workers, seed),
        coordination=draw(st.sampled_from(DIVIDED)),
        slice=draw(st.sampled_from([1, 2])),
    )


PARTS = st.lists(st.tuples(st.integers(1, 8), places()), min_size=1, max_size=6)


@given(trees(), PARTS)
@HERE
def test_an_enumeration_in_parts_counts_every_node_once(
    tmp_path: Path, problem: Tree, parts: list[tuple[int, Options]]
) -> None:
    path = tmp_path / "search"
    expected = plain_enumerate(problem)
    by_depth = [expected.by_depth[depth] for depth in range(expected.deepest + 1)]
    path.unlink(missing_ok=True)
    limit = 0
    for more, options in parts:
        limit += more
        options["node_limit"], options["checkpoint"], options["profile"] = limit, path, True
        if path.exists():
            options["resume"] = path
        outcome = enumerate(problem, NodesByDepth(), **options)
        assert sum(outcome.total) == outcome.statistics.nodes
        if outcome.status == "complete":
            break
    else:
        outcome = enumerate(problem, NodesByDepth(), resume=path, profile=True)
    assert (outcome.status, outcome.total) == ("complete", by_depth)
    assert outcome.statistics.nodes == expected.nodes
    assert outcome.profile is not None and outcome.profile.nodes == by_depth


@given(trees(), PARTS, st.integers(1, 4), st.lists(st.sampled_from(ORDERS), min_size=7))
@HERE
def test_the_best_are_the_best_when_searched_for_in_parts(
    tmp_path: Path,
    problem: Tree,
    parts: list[tuple[int, Options]],
    k: int,
    orders: list[Order],
) -> None:
    """A resumed search is exact even if the order changes from part to part."""
    path = tmp_path / "search"
    path.unlink(missing_ok=True)
    values = sorted(plain_enumerate(problem).values.elements(), reverse=problem.sense == "max")[:k]
    limit = 0
    for (more, options), order in zip(parts, orders, strict=False):
        limit += more
        options["node_limit"], options["checkpoint"], options["order"] = limit, path, order
        if path.exists():
            options["resume"] = path
        outcome = k_best(problem, k, **options)
        if k == 1:
            holds(problem, outcome, values[0] if values else None)
        if outcome.status in ("optimal", "infeasible"):
            break
    else:
        outcome = k_best(problem, k, resume=path, order=orders[-1])
    assert [solution.value for solution in outcome.solutions] == values
    assert len({solution.node for solution in outcome.solutions}) == len(values)


@given(trees(), st.integers(0, 3), st.lists(st.integers(1, 6), min_size=1, max_size=4))
@HERE
def test_an_ordered_search_in_parts_returns_the_same_node(
    tmp_path: Path, problem: Tree, depth: int, parts: list[int]
) -> None:
    path = tmp_path / "search"
    path.unlink(missing_ok=True)
    options = Options(coordination=Ordered(depth), slice=1)
    expected = k_best(problem, 2, **options)
    limit = 0
    for more in parts:
        limit += more
        options["node_limit"], options["checkpoint"], options["engine"] = limit, path, Local(3)
        if path.exists():
            options["resume"] = path
        outcome = k_best(problem, 2, **options)
        if not outcome.statistics.reason:
            break
    else:
        outcome = k_best(
            problem, 2, resume=path, engine=Local(2), coordination=Ordered(depth), slice=1
        )
    assert [solution.node for solution in outcome.solutions] == [
        solution.node for solution in expected.solutions
    ]


def test_a_search_goes_on_elsewhere(engine: Processes, tmp_path: Path) -> None:
    """A search that changes its engine from part to part is exact."""
    path = tmp_path / "search"
    problem = Heap(6000, 3)
    chance = random.Random(4)
    for _ in range(5):
        limit = 0
        outcome = None
        for _ in range(4):
            limit += chance.randrange(1, 1500)
            options = Options(node_limit=limit, checkpoint=path)
            options["engine"] = chance.choice([Local(1), Local(4, limit), engine, Threads(2)])
            options["coordination"] = chance.choice(DIVIDED)
            if outcome is not None:
                options["resume"] = path
            with within():
                outcome = enumerate(problem, Collect(), **options)
            assert len(set(outcome.total)) == len(outcome.total) == outcome.statistics.nodes
            if outcome.status == "complete":
                break
        else:
            outcome = enumerate(problem, Collect(), resume=path)
        assert outcome is not None and outcome.status == "complete"
        assert sorted(outcome.total) == list(range(6000))


def test_a_limit_of_nodes_is_of_each_part(tmp_path: Path) -> None:
    """A node limit counts the nodes after the checkpoint only, as a time limit does."""
    path = tmp_path / "search"
    first = enumerate(Heap(1000), Nodes(), node_limit=100, checkpoint=path)
    assert first.total == 100
    further = enumerate(Heap(1000), Nodes(), node_limit=150, resume=path, checkpoint=path)
    assert further.total == further.statistics.nodes == 250


class Failing(Heap):
    """A problem whose expansion of a node fails once, as noted in a file."""

    mark: Path

    def children(self, node: int) -> Any:
        if node == self.size // 2 and not self.mark.exists():
            self.mark.touch()
            raise ValueError("failed once")
        return super().children(node)


@pytest.mark.turns
@pytest.mark.parametrize("name", some(["local", "processes", "auto"], 1))
def test_a_checkpoint_left_by_a_search_that_failed_counts_nothing_twice(
    tmp_path: Path, name: Any
) -> None:
    """If a checkpoint is left, its counts match its open tasks."""
    path = tmp_path / "search"
    failing = Failing(1500, seconds=0.0008)
    failing.mark = tmp_path / "mark"
    with within(), pytest.raises((ValueError, SearchError), match="failed once"):
        enumerate(failing, Nodes(), engine=name, workers=2, checkpoint=path)
    if path.exists():
        assert enumerate(failing, Nodes(), resume=path).total == 1500


class Other(Heap):
    """A different problem."""


def test_a_checkpoint_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search"
    optimise(Heap(300), node_limit=20, checkpoint=path)
    with pytest.raises(SearchError, match="another search"):
        optimise(Heap(301), resume=path)
    with pytest.raises(SearchError, match="another search"):
        optimise(Other(300), resume=path)
    with pytest.raises(SearchError, match="another search"):
        k_best(Heap(300), 2, resume=path)
    with pytest.raises(SearchError, match="another search"):
        enumerate(Heap(300), resume=path)
    with pytest.raises(SearchError, match="another search"):
        optimise(Heap(300), depth_limit=3, resume=path)
    with pytest.raises(SearchError, match="another search"):
        optimise(Heap(300), better_than=3, resume=path)
    with pytest.raises(SearchError, match="another search"):
        optimise(Heap(300), coordination=Ordered(), resume=path)
    with pytest.raises(SearchError, match="another search"):
        decide(Heap(300), target=5, resume=path)
    assert optimise(Heap(300), resume=path).status == "optimal"


def test_a_checkpoint_that_is_none_or_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search"
    optimise(Heap(300), node_limit=20, checkpoint=path)
    whole = path.read_bytes()
    broken = tmp_path / "broken"
    chance = random.Random(1)
    for cut in (0, 5, len(MAGIC), len(MAGIC) + 1, len(whole) // 2, len(whole) - 1):
        broken.write_bytes(whole[:cut])
        with pytest.raises(SearchError, match=r"no checkpoint|damaged"):
            optimise(Heap(300), resume=broken)
    for _ in range(20):
        broken.write_bytes(MAGIC + chance.randbytes(chance.randrange(1, 60)))
        with pytest.raises(SearchError, match=r"damaged|another"):
            optimise(Heap(300), resume=broken)
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / "nowhere" / "file"):
        with pytest.raises(SearchError, match="cannot read"):
            optimise(Heap(300), resume=folder)
    with pytest.raises(SearchError, match="cannot write"):
        optimise(Heap(300), checkpoint=tmp_path / "nowhere" / "file")


def test_a_checkpoint_without_a_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search"
    optimise(Heap(300), node_limit=20, checkpoint=path)
    identity, _ = pickle.loads(path.read_bytes()[len(MAGIC) :])
    path.write_bytes(MAGIC + pickle.dumps((identity, "no state")))
    with pytest.raises(SearchError, match="damaged"):
        optimise(Heap(300), resume=path)


def test_a_finished_search_leaves_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "search"
    optimise(Heap(300), checkpoint=path)
    assert not path.exists() and not list(tmp_path.iterdir())


class Caching(Heap):
    """A problem that caches a value, as functools.cached_property does."""

    def objective(self, node: int) -> int:
        vars(self).setdefault("cache", {})[node] = super().objective(node)
        return super().objective(node)

    def identity(self) -> int:
        return self.size


def test_a_problem_that_remembers_things_can_be_gone_on_with(tmp_path: Path) -> None:
    """Cached values do not change the identity of a problem."""
    path = tmp_path / "search"
    problem = Caching(300)
    optimise(problem, node_limit=20, checkpoint=path)
    assert optimise(problem, resume=path).status == "optimal"


GOING_ON = """
import sys
from collir.search import optimise
from support.search.problems import Heap
class Named(Heap):
    names = frozenset(["alpha", "beta", "gamma", "delta", "epsilon"])
    def identity(self):
        return self.names
problem = Named(300)
if sys.argv[2] == "begin":
    optimise(problem, node_limit=5, checkpoint=sys.argv[1])
else:
    print(optimise(problem, resume=sys.argv[1]).status)
"""


def test_a_problem_with_sets_can_be_gone_on_with_in_another_process(tmp_path: Path) -> None:
    """The order of a set of strings differs from process to process."""
    output = ""
    for seed, part in (("1", "begin"), ("2", "end")):
        output = subprocess.run(
            [sys.executable, "-c", GOING_ON, str(tmp_path / "search"), part],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=HANG,
            check=part == "begin",
        ).stdout
    assert output.strip() == "optimal"


class CountAbove(Fold[int]):
    """A fold that counts the objectives above a value."""

    def __init__(self, least: int):
        self.least = least

    def empty(self) -> int:
        return 0

    def add(self, total: int, problem: Problem[Any], node: Any, depth: int) -> int:
        return total + ((problem.objective(node) or 0) > self.least)

    def merge(self, total: int, other: int) -> int:
        return total + other


def test_a_checkpoint_of_another_fold_is_refused(tmp_path: Path) -> None:
    """A fold of the same class with another value has another identity."""
    path = tmp_path / "search"
    enumerate(Heap(300), CountAbove(10**9), node_limit=50, checkpoint=path)
    with pytest.raises(SearchError, match="another search"):
        enumerate(Heap(300), CountAbove(-1), resume=path)
    assert enumerate(Heap(300), CountAbove(10**9), resume=path).total == 0
