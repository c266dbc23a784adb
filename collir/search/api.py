"""The calls: enumerate, decide, optimise, k_best. One search each, with options by keyword."""

import math
import os
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from collir.search.checked import check as check_problem
from collir.search.checkpoint import Checkpoints, read_checkpoint
from collir.search.coordination import Budget, Coordination, Sequential
from collir.search.coordinator import Coordinator, Observer, State, best_bound, first_task
from collir.search.engines.base import Engine
from collir.search.engines.futures import Futures
from collir.search.engines.local import Local
from collir.search.engines.mpi import Mpi, world_size
from collir.search.engines.mpi_link import LostRankError
from collir.search.engines.processes import Processes
from collir.search.engines.threads import Threads
from collir.search.goals import Fold, Solutions
from collir.search.limits import Interrupt, Limits, Watch
from collir.search.plan import ORDERS, Order, Plan
from collir.search.problem import Node, Number, Problem, SearchError, rank_of, sign
from collir.search.progress import Progress, wanted
from collir.search.results import Decision, Enumeration, Optimum, Solution, Statistics, Status

Total = TypeVar("Total")

EngineName = Literal["auto", "local", "processes", "threads", "mpi"]
ENGINES: tuple[EngineName, ...] = ("auto", "local", "processes", "threads", "mpi")

PAYS = 0.25
"""Seconds that a search with several workers runs in this process before others are started."""

EVERY = 0.25
"""Seconds after which a long task is reported where workers can be lost or a checkpoint is kept."""


class Options(TypedDict, total=False):
    """How to search; without any, alone in this process, to the end.

    Attributes:
        order: ``depth-first`` (branch and bound), or ``best-first``: the best bound next (A*).
        coordination: how the search is divided; by default by budget, if there are several workers.
        workers: how many; None: as many as this process may use cores. By default 1.
        engine: where they run: ``local`` (this process, in turns), ``processes``, ``threads`` (of
            use for kernels, which release the interpreter), ``mpi``, an engine made before (which
            can serve many searches), or an ``Executor``. ``auto``: here, and in processes of their
            own once the search has taken longer than starting them pays for.
        seed: of the turns of ``local``.
        depth_limit: nodes at this depth have no children.
        time_limit, node_limit, memory_limit: seconds, nodes, bytes after which the best so far is
            returned, as it is after SIGINT.
        progress: a line on stderr about how far the search is; None: if stderr is a terminal.
        checkpoint: a file that is written now and then, and at the end of an unfinished search.
        resume: such a file, to go on with. It is a pickle: only read what you trust.
        profile: counts for each depth.
        check: first goes through the whole tree without pruning anything, and raises an error that
            names the node if a bound, an order of children, a key or an objective is wrong.
        slice: nodes that a worker visits between two looks at what others want; None: 2 ms of them.
    """

    order: Order
    coordination: Coordination | None
    workers: int | None
    engine: Engine | Executor | EngineName
    seed: int
    depth_limit: int | None
    time_limit: float | None
    node_limit: int | None
    memory_limit: int | None
    progress: bool | None
    checkpoint: str | Path | None
    resume: str | Path | None
    profile: bool
    check: bool
    slice: int | None


def optimise(
    problem: Problem[Node],
    *,
    better_than: Number | None = None,
    **options: Unpack[Options],
) -> Optimum[Node]:
    """The best solution.

    Args:
        problem: what to search.
        better_than: a value known before: only better solutions are looked for.
        options: how.

    Raises:
        SearchError: the problem or an option is wrong, or workers are lost again and again.
    """
    return k_best(problem, 1, better_than=better_than, **options)


def k_best(
    problem: Problem[Node],
    k: int,
    *,
    better_than: Number | None = None,
    **options: Unpack[Options],
) -> Optimum[Node]:
    """The ``k`` best solutions (nodes), best first; all of them if there are fewer.

    Raises:
        SearchError: the problem or an option is wrong, or workers are lost again and again.
    """
    _whole("k", k, 1)
    known = math.inf
    if better_than is not None:
        known = rank_of(problem, "known value", better_than, problem)
    run = _Run(Plan(problem, "optimise", k=k, known=known), options)
    run.search()
    solutions = run.solutions()
    rank = min(best_bound(run.plan, run.state.open), *(f.rank for f in run.state.found), known)
    status: Status = "feasible" if solutions else "interrupted"
    if not run.reason:
        status = "optimal" if solutions else "infeasible"
    bound = None if status == "infeasible" else sign(problem) * rank
    return Optimum(status, run.statistics(), run.state.profile, solutions, bound)


def decide(
    problem: Problem[Node],
    *,
    target: Number | None = None,
    **options: Unpack[Options],
) -> Decision[Node]:
    """Whether there is a solution whose objective is the target or better, and one that is.

    Args:
        problem: what to search.
        target: None: the problem's own.
        options: how.

    Raises:
        SearchError: the problem or an option is wrong, or workers are lost again and again.
    """
    target = problem.target if target is None else target
    if target is None:
        raise SearchError("decide needs a target: the problem has none of its own")
    rank_of(problem, "target", target, problem)
    run = _Run(Plan(problem, "decide", target=target), options)
    run.search()
    solutions = run.solutions()
    status: Status = "feasible" if solutions else "interrupted" if run.reason else "infeasible"
    solution = solutions[0] if solutions else None
    return Decision(status, run.statistics(), run.state.profile, solution)


@overload
def enumerate(
    problem: Problem[Any], fold: None = None, **options: Unpack[Options]
) -> Enumeration[int]: ...


@overload
def enumerate(
    problem: Problem[Any], fold: Fold[Total], **options: Unpack[Options]
) -> Enumeration[Total]: ...


def enumerate(
    problem: Problem[Any], fold: Fold[Any] | None = None, **options: Unpack[Options]
) -> Enumeration[Any]:
    """A fold of all nodes: by default, how many are solutions. Bounds and keys are not used.

    Raises:
        SearchError: the problem or an option is wrong, or workers are lost again and again.
    """
    if options.get("order", "depth-first") != "depth-first":
        raise SearchError("an enumeration visits all nodes: its order is depth-first")
    folded: Fold[Any] = Solutions() if fold is None else fold
    run = _Run(Plan(problem, "enumerate", fold=folded), options)
    run.search()
    status: Status = "interrupted" if run.reason else "complete"
    return Enumeration(status, run.statistics(), run.state.profile, run.state.total)


class _Run:
    """One search, with what its options ask for."""

    def __init__(self, plan: Plan, options: Options):
        self._options = options
        self._engine = options.get("engine", "auto")
        self._workers = self._count()
        self._limits = Limits(
            options.get("time_limit"), options.get("node_limit"), options.get("memory_limit")
        )
        for name in ("depth_limit", "slice"):
            if (value := options.get(name)) is not None:
                _whole(name, value, 1 if name == "slice" else 0)
        order = options.get("order", "depth-first")
        if order not in ORDERS:
            raise SearchError(f"the order is one of {', '.join(ORDERS)}, not {order!r}")
        self.plan = replace(
            plan,
            order=order,
            coordination=options.get("coordination")
            or (Sequential() if self._workers == 1 else Budget()),
            depth_limit=options.get("depth_limit"),
            profile=options.get("profile", False),
            slice=options.get("slice"),
        )
        self.reason = ""
        self._name = ""

    def _count(self) -> int:
        """How many workers; with MPI, what the launcher has started decides."""
        if self._engine == "mpi":
            return max(1, world_size() - 1)
        if isinstance(self._engine, Mpi):
            return self._engine.workers
        workers = self._options.get("workers", 1)
        if workers is None:
            return _cores()
        _whole("workers", workers, 1)
        return workers

    def search(self) -> None:
        """Runs it; with MPI, on rank 0, for which the others work."""
        if self._engine == "mpi":
            with Mpi() as engine:
                self._engine = engine
                self._together(engine)
        elif isinstance(self._engine, Mpi):
            self._together(self._engine)
        else:
            self._search()

    def _together(self, engine: Mpi) -> None:
        """Runs it on rank 0, and takes over on all ranks what came out."""

        def search() -> tuple[State, str, str, int]:
            try:
                self._search()
            except LostRankError as error:
                path = self._options.get("checkpoint")
                if path is None or not Path(path).exists():
                    raise
                text = f"{error}; {path} holds what was known a while before"
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
            self.state = State([first_task(plan)], total=plan.fold.empty() if plan.fold else None)
        observers: list[Observer] = []
        checkpoints = None
        if (path := options.get("checkpoint")) is not None:
            checkpoints = Checkpoints(path, plan)
            observers.append(checkpoints)
        progress = Progress() if wanted(options.get("progress")) else None
        if progress is not None:
            observers.append(progress)
        interrupt = Interrupt()
        with interrupt.listening():
            try:
                state = self.state
                watch = Watch(self._limits, interrupt, state.seconds, state.counts.nodes)
                self._run(watch, tuple(observers))
            finally:
                if progress is not None:
                    progress.close()
                if checkpoints is not None and self.reason:
                    checkpoints.write(self.state)

    def _run(self, watch: Watch, observers: tuple[Observer, ...]) -> None:
        """Runs it on the engine asked for; with ``auto`` first here, and there if it pays."""
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

    def _on(self, engine: Engine, watch: Watch, observers: tuple[Observer, ...]) -> None:
        plan = replace(self.plan, most=watch.nodes_left(self.state.counts.nodes))
        if engine.durable or "checkpoint" in self._options:
            plan = replace(plan, every=EVERY)
        self._name = type(engine).__name__.lower()
        self._workers_used = engine.workers
        coordinator = Coordinator(plan, engine, watch, self.state, observers)
        self.reason = coordinator.run()
        self.state.seconds = watch.seconds

    def _made(self) -> tuple[Engine, bool]:
        """The engine, and whether it is ours to close."""
        engine, workers = self._engine, self._workers
        if isinstance(engine, Executor):
            return Futures(engine, self._options.get("workers")), True
        if not isinstance(engine, str):
            return engine, False
        if engine == "processes" or (engine == "auto" and workers > 1):
            return Processes(workers), True
        if engine == "threads":
            return Threads(workers), True
        if engine in ("local", "auto"):
            return Local(workers, self._options.get("seed", 0)), True
        raise SearchError(f"the engine is one of {', '.join(ENGINES)}, not {engine!r}")

    def solutions(self) -> tuple[Solution[Any], ...]:
        """What was found, best first."""
        problem = self.plan.problem
        return tuple(
            Solution(sign(problem) * found.rank, found.node, problem.show(found.node))
            for found in self.state.found
        )

    def statistics(self) -> Statistics:
        """What it took."""
        state = self.state
        return Statistics(
            state.counts.nodes,
            state.counts.pruned,
            state.counts.dominated,
            state.counts.backtracks,
            state.counts.deepest,
            state.tasks,
            state.lost,
            state.seconds,
            self._name,
            self._workers_used,
            self.reason,
        )


def _whole(what: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SearchError(f"{what} must be a whole number of at least {least}, not {value!r}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
