"""Engines serve many searches, report their names, and free their resources."""

import itertools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness.hanging import HANG, within
from support.search.problems import Deadly, Endless, Heap, Tree, Walks

from collir.search import (
    Budget,
    Coordination,
    DepthBounded,
    Local,
    Nodes,
    Options,
    Ordered,
    Processes,
    SearchError,
    StackStealing,
    Threads,
    decide,
    enumerate,
    k_best,
    optimise,
)
from collir.search.core import worker
from collir.search.core.plan import SearchPlan
from collir.search.engines.futures import Futures
from collir.search.running import run
from collir.search.running.coordinator import first_task


@pytest.fixture(autouse=True)
def no_hang() -> Generator[None]:
    with within():
        yield


DIVIDED: list[Coordination] = [DepthBounded(3), StackStealing(), Budget(1), Budget(), Ordered(2)]


def four_ways(options: Options) -> None:
    """Run every kind of search on a tree with known answers."""
    problem = Heap(300, 3)
    for coordination in DIVIDED:
        options["coordination"] = coordination
        outcome = k_best(problem, 4, **options)
        assert [solution.value for solution in outcome.solutions] == problem.most(4)
        (best,) = problem.most()
        assert decide(problem, target=best, **options).status == "feasible"
        assert decide(problem, target=best + 1, **options).status == "infeasible"
        counted = enumerate(problem, Nodes(), **options)
        assert counted.total == counted.statistics.nodes == 300


def test_one_engine_serves_many_searches_and_can_start_again_after_it_was_closed() -> None:
    engine = Processes(2)
    for _ in range(2):
        four_ways(Options(engine=engine))
        pids = engine.pids
        assert len(pids) == 2
        engine.close()
        assert engine.pids == []
        assert not {child.pid for child in multiprocessing.active_children()} & set(pids)
    engine.close()


def test_processes_that_are_spawned() -> None:
    with Processes(1, "spawn") as engine:
        four_ways(Options(engine=engine))


def test_threads_are_gone_after_each_search() -> None:
    before = threading.active_count()
    engine = Threads(3)
    four_ways(Options(engine=engine))
    assert threading.active_count() == before


def test_an_executor_stays_open() -> None:
    with ThreadPoolExecutor(2) as executor:
        four_ways(Options(engine=executor, workers=2))
        four_ways(Options(engine=Futures(executor)))
        assert executor.submit(len, "abc").result() == 3


class Inline(Executor):
    """An executor that runs its calls at once."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_an_executor_of_ones_own_that_runs_all_at_once() -> None:
    four_ways(Options(engine=Inline()))
    four_ways(Options(engine=Inline(), workers=3))


@pytest.mark.turns
def test_the_names_of_engines() -> None:
    for name in ("local", "processes", "threads"):
        options = Options(engine=name, workers=2)
        four_ways(options)
        statistics = optimise(Heap(20), **options).statistics
        assert (statistics.engine, statistics.workers) == (name, 2)


def test_a_short_search_starts_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default engine is this process until the search has taken some time."""
    monkeypatch.setattr(run, "PAYS", HANG)
    statistics = optimise(Heap(50), workers=2).statistics
    assert statistics.engine == "local"


def test_a_long_search_goes_on_in_processes() -> None:
    problem = Heap(1200, seconds=0.0005)
    outcome = enumerate(problem, Nodes(), workers=2)
    assert (outcome.total, outcome.statistics.nodes) == (1200, 1200)
    assert (outcome.statistics.engine, outcome.statistics.workers) == ("processes", 2)


def test_more_workers_than_nodes() -> None:
    for size in (1, 2, 3):
        with Processes(4) as processes:
            for engine in (processes, Local(9), Threads(8)):
                for coordination in DIVIDED:
                    outcome = enumerate(
                        Heap(size), Nodes(), engine=engine, coordination=coordination
                    )
                    assert outcome.total == size
                    best = optimise(Heap(size), engine=engine, coordination=coordination)
                    assert [solution.value for solution in best.solutions] == Heap(size).most()


def test_turns_are_the_same_for_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With slices of a fixed number of nodes, the speed of the clock does not matter."""
    seen: set[str] = set()
    for tick in (1e-7, 1e-3):
        clock = itertools.count()

        def now(clock: Iterator[int] = clock, tick: float = tick) -> float:
            return next(clock) * tick

        monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=now))
        outcome = optimise(
            Heap(200, 3), engine=Local(3, 5), coordination=Budget(1), slice=2, profile=True
        )
        assert outcome.profile is not None
        tasks = [(depth, nodes) for depth, _, nodes in outcome.profile.tasks]
        seen.add(str((outcome.best, outcome.statistics.nodes, outcome.statistics.tasks, tasks)))
    assert len(seen) == 1


def test_seeds_make_a_difference() -> None:
    problem = Tree([i // 3 for i in range(200)], [1] * 201)
    orders = {
        str(
            enumerate(
                problem,
                Nodes(),
                engine=Local(3, seed),
                coordination=Budget(1),
                profile=True,
                slice=1,
            ).profile
        )
        for seed in range(4)
    }
    assert len(orders) > 1


def test_a_search_in_a_thread_of_its_own() -> None:
    """A search runs without signals where they cannot be caught."""
    results: list[int] = []

    def search() -> None:
        results.append(enumerate(Heap(100), Nodes()).total)
        with Processes(2) as engine:
            results.append(enumerate(Heap(100), Nodes(), engine=engine).total)

    thread = threading.Thread(target=search)
    thread.start()
    thread.join(HANG)
    assert results == [100, 100]


def test_two_engines_at_the_same_time() -> None:
    with Processes(2) as first, Processes(1) as second:
        for _ in range(3):
            four_ways(Options(engine=first))
            four_ways(Options(engine=second))


class Nested(Heap):
    """A problem that runs another search to expand a node."""

    def objective(self, node: int) -> int:
        outcome = optimise(Heap(node + 1))
        assert outcome.best is not None
        return int(outcome.best.value)


def test_a_search_inside_a_search() -> None:
    with Processes(2) as engine:
        outcome = optimise(Nested(30), engine=engine, coordination=Budget(1))
        assert outcome.best is not None and outcome.best.value == Heap(30).most()[0]


class Heavy(Heap):
    """A problem of many megabytes."""

    def __init__(self) -> None:
        super().__init__(200)
        self.weight = bytes(8_000_000)


def test_a_problem_of_many_megabytes_travels() -> None:
    with Processes(2) as engine:
        for _ in range(3):
            assert enumerate(Heavy(), Nodes(), engine=engine, coordination=Budget(1)).total == 200


def test_a_search_that_is_cut_off_leaves_nothing_for_the_next_one() -> None:
    """Late reports of a stopped search do not count for the next search."""
    with Processes(3) as engine:
        for turn in range(8):
            cut = optimise(Endless(), engine=engine, coordination=Budget(1), node_limit=200 + turn)
            assert cut.statistics.reason == "node limit"
            outcome = enumerate(Heap(400), Nodes(), engine=engine, coordination=StackStealing())
            assert outcome.total == outcome.statistics.nodes == 400
            hit = decide(Heap(400), target=900, engine=engine, coordination=Budget(1))
            assert hit.status == "feasible"


@pytest.mark.turns
def test_workers_at_a_long_node_are_not_waited_for_long() -> None:
    """Stuck workers are replaced when other workers have the answer, or at a limit."""
    with Processes(2) as engine:
        with within():
            outcome = optimise(Heap(9, seconds=2 * HANG), engine=engine, time_limit=0.3)
        assert outcome.statistics.reason == "time limit"
        assert enumerate(Heap(50), Nodes(), engine=engine).total == 50


def test_the_memory_of_workers_counts() -> None:
    with Processes(2) as engine:
        optimise(Heap(9), engine=engine)
        assert engine.memory() > Local(1).memory()


def test_an_engine_of_several_workers_divides_the_search_by_itself() -> None:
    with ThreadPoolExecutor(3) as executor:
        for engine in (Local(3), Threads(3), executor):
            outcome = enumerate(Heap(2000, seconds=0.0001), Nodes(), engine=engine)
            assert outcome.statistics.tasks > 1


def test_an_executor_whose_process_dies_is_a_clear_error() -> None:
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor,
        pytest.raises(SearchError, match=r"died|lost|ended|terminated"),
    ):
        optimise(Deadly(50, [7], None), engine=executor, workers=1)


def test_a_worker_that_is_given_a_task_tells_of_it_all_once() -> None:
    """The reports of a task add up for every size of slice."""
    for step in (1, 2, 7, None):
        plan = SearchPlan(Heap(100), "enumerate", fold=Nodes(), slice=step, every=0.0)
        engine = Local(1)
        engine.start(plan)
        engine.submit(0, [(1, first_task(plan))])
        total = nodes = 0
        state = ""
        while state != "done":
            for event in engine.wait(1):
                for report in event.reports:
                    assert report.ident == 1
                    total, nodes, state = (
                        total + report.total,
                        nodes + report.counts.nodes,
                        report.state,
                    )
        assert total == nodes == 100


def test_states_with_keys_are_kept_apart_by_search() -> None:
    """States reached in a search do not count in the next search on the same engine."""
    problem = Walks({0: [(1, (1,))], 1: [(0, (0,)), (2, (0,))]}, 2)
    with Processes(2) as processes:
        for engine in (processes, Local(2), Threads(2)):
            for _ in range(3):
                outcome = optimise(problem, engine=engine, coordination=Budget(1))
                assert outcome.best is not None and outcome.best.value == 1


class Held(Nodes):
    """The number of nodes, whose search waits at its first report until it may go on."""

    def __init__(self) -> None:
        self.is_merging, self.may_go_on = threading.Event(), threading.Event()

    def merge(self, total: int, other: int) -> int:
        self.is_merging.set()
        assert self.may_go_on.wait(HANG)
        return super().merge(total, other)

    def __reduce__(self) -> tuple[type[Nodes], tuple[()]]:
        """Travel to workers as a fold that waits for nothing."""
        return Nodes, ()


@pytest.mark.turns
@pytest.mark.parametrize("make", [lambda: Local(2), lambda: Threads(2), lambda: Processes(2)])
def test_an_engine_is_at_one_search_at_a_time(make: Any) -> None:
    """Another thread that uses a busy engine gets an error, since both totals would be wrong."""
    engine = make()
    errors: list[SearchError] = []
    totals: list[int] = []
    fold = Held()
    first = threading.Thread(
        target=lambda: totals.append(enumerate(Heap(300), fold, engine=engine).total)
    )
    first.start()
    assert fold.is_merging.wait(HANG)
    try:
        enumerate(Heap(20), Nodes(), engine=engine)
    except SearchError as error:
        errors.append(error)
    fold.may_go_on.set()
    first.join()
    assert totals == [300]
    assert len(errors) == 1 and "at another search" in str(errors[0])
    assert enumerate(Heap(20), Nodes(), engine=engine).total == 20
    engine.close()


def test_an_engine_of_no_workers_is_refused() -> None:
    wrong: Any
    for wrong in (0, -1, "2", 1.5):
        for kind in (Local, Threads, Processes):
            with pytest.raises(SearchError, match="workers"):
                kind(wrong)


class NoKernel(Heap):
    """A problem whose kernel cannot be made."""

    def kernel(self, kind: Any, fold: object) -> Any:
        raise ValueError("kernel broken")


def test_the_error_of_one_search_is_not_raised_by_the_next() -> None:
    with Processes(2) as engine:
        for _ in range(3):
            with pytest.raises(SearchError, match="kernel broken"):
                enumerate(NoKernel(50), Nodes(), engine=engine)
            assert enumerate(Heap(50), Nodes(), engine=engine).total == 50


def test_a_worker_that_an_unnamed_signal_kills_is_replaced() -> None:
    with Processes(1) as engine:
        enumerate(Heap(20), Nodes(), engine=engine)
        os.kill(engine.pids[0], 40)
        time.sleep(0.05)
        assert enumerate(Heap(300), Nodes(), engine=engine).total == 300


def test_workers_that_cannot_start_are_named_as_that() -> None:
    script = "from collir.search import Nodes, Processes, enumerate\n"
    script += "from support.search.problems import Heap\n"
    script += "enumerate(Heap(50), Nodes(), engine=Processes(1, 'spawn'))\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "unguarded.py"
        path.write_text(script)
        ended = subprocess.run(
            [sys.executable, str(path)],
            capture_output=True,
            text=True,
            timeout=HANG,
        )
    assert ended.returncode == 1
    assert "SearchError: workers could not start: guard what a script does" in ended.stderr
