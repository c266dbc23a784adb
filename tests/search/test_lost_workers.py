"""A killed worker changes no answer: its unreported work is searched again, exactly once."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.harness.hanging import within
from support.harness.seeds import some
from support.search.problems import Deadly, Heap

from collir.search import (
    Budget,
    Coordination,
    DepthBounded,
    Local,
    Nodes,
    NodesByDepth,
    Ordered,
    Processes,
    SearchError,
    Sequential,
    StackStealing,
    decide,
    enumerate,
    k_best,
    optimise,
)
from collir.search.core.plan import ORDERS, Order

DIVIDED: list[Coordination] = [
    Sequential(),
    DepthBounded(3),
    StackStealing(),
    StackStealing(chunked=False),
    Budget(1),
    Budget(),
    Ordered(3),
]
SIZE = 400


@pytest.fixture(scope="module")
def engine() -> Generator[Processes]:
    with Processes(2) as engine:
        yield engine


def by_depth(size: int) -> list[int]:
    """Return the number of nodes at each depth of a full binary tree."""
    depths = Counter((node + 1).bit_length() - 1 for node in range(size))
    return [depths[depth] for depth in range(len(depths))]


@pytest.mark.parametrize("coordination", DIVIDED, ids=str)
def test_every_node_is_counted_once_though_two_workers_die(
    engine: Processes, tmp_path: Path, coordination: Coordination
) -> None:
    problem = Deadly(SIZE, [SIZE // 3, 40], tmp_path)
    with within():
        outcome = enumerate(problem, NodesByDepth(), engine=engine, coordination=coordination)
    assert outcome.total == by_depth(SIZE)
    assert outcome.statistics.nodes == SIZE
    assert outcome.statistics.lost == 2


@pytest.mark.turns
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("coordination", DIVIDED, ids=str)
def test_the_best_are_found_once_though_workers_die_at_them(
    engine: Processes, tmp_path: Path, coordination: Coordination, order: Order
) -> None:
    """One worker dies at the best node before reporting it, another at the second best."""
    problem = Deadly(SIZE, (), tmp_path)
    ranked = sorted(range(SIZE), key=problem.objective, reverse=True)
    problem.nodes = frozenset(ranked[:2])
    with within():
        outcome = k_best(problem, 6, engine=engine, coordination=coordination, order=order)
    assert [solution.value for solution in outcome.solutions] == problem.most(6)
    assert len({solution.node for solution in outcome.solutions}) == 6
    assert outcome.status == "optimal"
    assert outcome.statistics.lost == 2


@pytest.mark.turns
@pytest.mark.parametrize("step", [1, None])
def test_a_worker_that_dies_right_after_it_told_the_optimum(
    engine: Processes, tmp_path: Path, step: int | None
) -> None:
    """A solution by which other workers prune must have been reported."""
    problem = Deadly(SIZE, (), tmp_path)
    best = max(range(SIZE // 2), key=problem.objective)  # its children are visited next
    for deadly in ([best], [2 * best + 1], [best, 2 * best + 1]):
        for coordination in (Budget(1), Sequential(), Ordered(2)):
            for mark in tmp_path.iterdir():
                mark.unlink()
            problem.nodes = frozenset(deadly)
            with within():
                outcome = optimise(problem, engine=engine, coordination=coordination, slice=step)
            assert [solution.value for solution in outcome.solutions] == problem.most()
            assert outcome.statistics.lost == len(deadly)


def test_a_decision_is_found_though_workers_die(engine: Processes, tmp_path: Path) -> None:
    problem = Deadly(SIZE, [0, 17], tmp_path)
    (best,) = problem.most()
    with within():
        outcome = decide(problem, target=best, engine=engine, coordination=Ordered(2))
        assert outcome.solution is not None and outcome.solution.value == best
        absent = decide(
            Deadly(SIZE, [3, 18], tmp_path), target=best + 1, engine=engine, coordination=Budget(1)
        )
        assert absent.status == "infeasible"


def test_an_ordered_search_returns_the_same_node_though_workers_die(
    engine: Processes, tmp_path: Path
) -> None:
    for depth in (0, 1, 4, 50):
        for mark in tmp_path.iterdir():
            mark.unlink()
        problem = Deadly(3000, [5, 1999], tmp_path)  # each value occurs about three times
        with within():
            alone = k_best(problem, 5)
            outcome = k_best(problem, 5, engine=engine, coordination=Ordered(depth))
        assert outcome.statistics.lost == 2
        assert [solution.node for solution in outcome.solutions] == [
            solution.node for solution in alone.solutions
        ]


@pytest.mark.turns
@pytest.mark.parametrize(
    "coordination", [Sequential(), Budget(1), DepthBounded(9), Ordered(1)], ids=str
)
def test_a_task_that_kills_its_worker_each_time_is_an_error(coordination: Coordination) -> None:
    """The error names a node of the task; the engine stays usable."""
    with Processes(2) as engine, within():
        with pytest.raises(SearchError, match=r"lost.*begins at \d+"):
            enumerate(Deadly(SIZE, [33], None), engine=engine, coordination=coordination)
        assert enumerate(Heap(50), Nodes(), engine=engine).total == 50


def test_a_root_that_kills_every_worker_is_an_error_that_names_it() -> None:
    with Processes(1) as engine, within(), pytest.raises(SearchError, match="begins at 0"):
        optimise(Deadly(9, [0], None), engine=engine)


class Heard(Nodes):
    """The number of nodes, which counts the reports that the coordinator has merged."""

    reports = 0

    def merge(self, total: int, other: int) -> int:
        self.reports += 1
        return super().merge(total, other)


@contextmanager
def killing(
    engine: Processes, times: int, pause: float, heard: Heard | None = None
) -> Generator[None]:
    """Kill one worker after the other during a search.

    Args:
        pause: the seconds before each kill.
        heard: the fold of the search: the seconds begin when another report has been merged.
    """
    done = threading.Event()

    def kill() -> None:
        for number in range(times):
            before = heard.reports if heard else 0
            while heard and heard.reports == before:
                if done.wait(0.01):
                    return
            if done.wait(pause):
                return
            pids = engine.pids
            with suppress(ProcessLookupError, IndexError):
                os.kill(pids[number % len(pids)], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.turns
@pytest.mark.parametrize(
    "coordination", some([Budget(1), StackStealing(), DepthBounded(5)], 1), ids=str
)
def test_every_node_is_counted_once_though_workers_are_killed_from_outside(
    coordination: Coordination,
) -> None:
    problem = Heap(3000, seconds=0.0005)
    with Processes(2) as engine, within(), killing(engine, 2, 0.2):
        outcome = enumerate(problem, Nodes(), engine=engine, coordination=coordination)
    assert outcome.total == outcome.statistics.nodes == 3000


@pytest.mark.slow
def test_a_long_task_that_goes_on_is_not_blamed_for_workers_killed_from_outside() -> None:
    """A task that gets further between losses is not blamed for them."""
    problem, heard = Heap(4000, seconds=0.0005), Heard()
    with Processes(1) as engine, within(), killing(engine, 3, 0.05, heard):
        outcome = enumerate(problem, heard, engine=engine, coordination=Sequential())
    assert outcome.total == 4000
    assert outcome.statistics.lost == 3


def test_workers_killed_between_two_searches_are_replaced(engine: Processes) -> None:
    for _ in range(2):
        for pid in engine.pids:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        with within():
            outcome = enumerate(Heap(500), Nodes(), engine=engine, coordination=Budget(1))
        assert outcome.total == 500


def test_a_lost_worker_in_turn_is_replaced_and_counted() -> None:
    """The statistics count losses, but not the lost work."""
    lost = 0
    for seed in range(30):
        engine = Local(4, seed, loss=0.005)
        with suppress(SearchError):  # three workers may be lost with one task
            outcome = enumerate(Heap(300), Nodes(), engine=engine, coordination=Budget(1), slice=1)
            assert outcome.total == outcome.statistics.nodes == 300
            lost += outcome.statistics.lost
    assert lost > 10


def test_tasks_that_waited_behind_others_are_not_blamed(tmp_path: Path) -> None:
    """Seven nodes kill a worker once each, but no task kills three."""
    problem = Deadly(SIZE, range(251, 265, 2), tmp_path)
    with Processes(1) as engine, within():
        outcome = enumerate(problem, Nodes(), engine=engine, coordination=DepthBounded(50))
    assert (outcome.total, outcome.statistics.lost) == (SIZE, 7)


def test_the_task_that_kills_its_worker_is_the_one_that_is_named() -> None:
    """Each node is a task, and many tasks are given at once."""
    with Processes(1) as engine, within(), pytest.raises(SearchError, match=r"begins at 350\b"):
        enumerate(Deadly(SIZE, [350], None), engine=engine, coordination=DepthBounded(50))
