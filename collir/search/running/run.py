"""The run of a search: its options become a plan, an engine and observers."""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from collir.search.core.checked import check as check_problem
from collir.search.core.coordination import Budget, Coordination, Sequential, coordination_of
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import Problem, SearchError, sign
from collir.search.core.tasks import RankedSolution
from collir.search.engines.base import SearchEngine
from collir.search.engines.futures import Futures
from collir.search.engines.local import Local
from collir.search.engines.mpi import Mpi, world_size
from collir.search.engines.mpi_link import LostRankError
from collir.search.engines.processes import Processes
from collir.search.engines.threads import Threads
from collir.search.running.checkpoint import EVERY, Checkpoints, read_checkpoint
from collir.search.running.coordinator import (
    Coordinator,
    Listener,
    Observer,
    SearchState,
    first_task,
)
from collir.search.running.limits import Interrupt, Limits, Watch
from collir.search.running.options import EngineName, Options, check_options
from collir.search.running.progress import Progress, progress_enabled
from collir.search.running.results import SearchOutcome, Solution, Statistics, keep_outcome

Result = TypeVar("Result", bound=SearchOutcome)

PAYS = 0.25
"""Seconds that an ``auto`` search runs in this process before workers are started."""

SAID = 0.25
"""Seconds after which a long task is reported if workers can be lost or checkpoints are written."""


class SearchRun:
    """A search and its options."""

    def __init__(self, plan: SearchPlan, options: Options):
        check_options(options)
        if not isinstance(plan.problem, Problem):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SearchError(f"a problem is made from a subclass of Problem, not {plan.problem!r}")
        if plan.fold is not None and not _is_fold(plan.fold):
            raise SearchError(f"a fold has empty, add and merge; {plan.fold!r} has not")
        self._options = options
        engine = options.get("engine", "auto")
        if isinstance(engine, Executor):
            engine = Futures(engine, options.get("workers"))
        self._engine: SearchEngine | EngineName = engine
        self._workers = self._count()
        self._limits = Limits(
            options.get("time_limit"), options.get("node_limit"), options.get("memory_limit")
        )
        self.plan = replace(
            plan,
            order=options.get("order", "depth-first"),
            coordination=self._coordination(),
            depth_limit=options.get("depth_limit"),
            profile=options.get("profile", False),
            slice=options.get("slice"),
        )
        self.reason = ""
        self._name = ""
        self._coordinator: Coordinator | None = None

    def _count(self) -> int:
        """Return the number of workers: that of an engine object, of MPI, or of the options."""
        if self._engine == "mpi":
            return max(1, world_size() - 1)
        if not isinstance(self._engine, str):
            return self._engine.workers
        workers = self._options.get("workers", 1)
        return _cores() if workers is None else workers

    def _coordination(self) -> Coordination:
        """Return the coordination of the options."""
        coordination = self._options.get("coordination")
        if isinstance(coordination, str):
            return coordination_of(coordination)
        return coordination or (Sequential() if self._workers == 1 else Budget())

    def search(self, outcome: Callable[[], Result]) -> Result:
        """Run the search and return its outcome; an exception carries the outcome so far."""
        try:
            self._anywhere()
        except BaseException as error:
            if self._coordinator is not None:
                self.reason = "error"
                with contextlib.suppress(Exception):  # the problem may raise again
                    keep_outcome(error, outcome())
            raise
        return outcome()

    def _anywhere(self) -> None:
        """Run the search; with MPI on rank 0, for which the other ranks work."""
        if self._engine == "mpi":
            with Mpi() as engine:
                self._engine = engine
                self._together(engine)
        elif isinstance(self._engine, Mpi):
            self._together(self._engine)
        else:
            self._search()

    def _together(self, engine: Mpi) -> None:
        """Run the search on rank 0, and copy its result to all ranks."""

        def search() -> tuple[SearchState, str, str, int]:
            try:
                self._search()
            except LostRankError as error:
                path = self._options.get("checkpoint")
                if path is None or not Path(path).exists():
                    raise
                text = f"{error}; {path} holds what was known"
                raise LostRankError(text, error.rank) from None
            return self.state, self.reason, self._name, self._workers_used

        self.state, self.reason, self._name, self._workers_used = engine.together(search)

    def _search(self) -> None:
        options, plan = self._options, self.plan
        if options.get("check", False):
            check_problem(plan.problem, plan.depth_limit)
        if (path := options.get("resume")) is not None:
            self.state = read_checkpoint(path, plan)
        else:
            self.state = SearchState(
                [first_task(plan)], total=plan.fold.empty() if plan.fold else None
            )
        observers: list[Observer] = []
        checkpoints = None
        if (path := options.get("checkpoint")) is not None:
            checkpoints = Checkpoints(path, plan, options.get("checkpoint_every", EVERY))
            observers.append(checkpoints)
        progress = Progress() if progress_enabled(options.get("progress")) else None
        if progress is not None:
            observers.append(progress)
        if (tell := options.get("on_solution")) is not None:
            observers.append(Listener(lambda solution: tell(self._shown(solution))))
        interrupt = Interrupt()
        with interrupt.listening():
            try:
                state = self.state
                watch = Watch(self._limits, interrupt, state.seconds, state.counts.nodes)
                self._run(watch, tuple(observers))
            except BaseException as error:
                begun = self._coordinator is not None and self._coordinator.consistent
                if checkpoints is not None and begun and checkpoints.keep(self.state):
                    error.add_note(f"{options.get('checkpoint')} holds what was known")
                raise
            finally:
                if progress is not None:
                    progress.close()
            if checkpoints is not None and self.reason:
                checkpoints.keep(self.state)

    def _run(self, watch: Watch, observers: tuple[Observer, ...]) -> None:
        """Run the search on its engine; with ``auto``, first in this process."""
        if self._engine == "auto" and self._workers > 1:
            self._on(Local(), watch.until(PAYS), observers)
            if self.reason != "time limit" or watch.left() <= 0:
                return
        engine, ours = self._made()
        try:
            self._on(engine, watch, observers)
        finally:
            if ours:
                engine.close()

    def _on(self, engine: SearchEngine, watch: Watch, observers: tuple[Observer, ...]) -> None:
        plan = replace(self.plan, most=watch.nodes_left(self.state.counts.nodes))
        if engine.durable or "checkpoint" in self._options:
            plan = replace(plan, every=min(SAID, self._options.get("checkpoint_every", SAID)))
        self._name = type(engine).__name__.lower()
        self._workers_used = engine.workers
        self.reason = ""
        self._coordinator = Coordinator(plan, engine, watch, self.state, observers)
        try:
            self.reason = self._coordinator.run()
        finally:
            self.state.seconds = watch.seconds
        for observer in observers:
            if isinstance(observer, Listener):  # solutions of the last reports
                observer.look(self._coordinator)

    def _made(self) -> tuple[SearchEngine, bool]:
        """Return the engine, and whether this run must close it."""
        engine, workers = self._engine, self._workers
        if not isinstance(engine, str):
            return engine, False
        if engine == "processes" or (engine == "auto" and workers > 1):
            return Processes(workers), True
        if engine == "threads":
            return Threads(workers), True
        return Local(workers, self._options.get("seed", 0)), True

    def solutions(self) -> tuple[Solution[Any], ...]:
        """Return the solutions found, best first."""
        best = self.state.solutions
        if self._coordinator is not None and self._coordinator.unkept:
            best = sorted(best + self._coordinator.unkept, key=lambda solution: solution.rank)
        return tuple(map(self._shown, best[: self.plan.k]))

    def _shown(self, solution: RankedSolution) -> Solution[Any]:
        problem = self.plan.problem
        return Solution(sign(problem) * solution.rank, solution.node, problem.show(solution.node))

    def statistics(self) -> Statistics:
        """Return the statistics of the search."""
        state = self.state
        return Statistics(
            **asdict(state.counts),
            tasks=state.tasks,
            lost=state.lost,
            seconds=state.seconds,
            engine=self._name,
            workers=self._workers_used,
            reason=self.reason,
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_fold(fold: object) -> bool:
    made = not isinstance(fold, type)
    return made and all(hasattr(fold, name) for name in ("empty", "add", "merge"))
