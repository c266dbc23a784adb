"""The coordinator: it divides a search among workers and merges their results exactly once.

The coordinator always knows all open tasks: the waiting tasks, and for each worker the tasks it
holds, as last reported. So the tasks of a lost worker are given to another worker, a search can be
written to a file and resumed, and a search that ends early has a bound. Where searching a node
twice would change the answer, a report contains the work done together with the work left.
"""

import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from collir.search.core.board import LAST, WANTED, cut_at, cut_below
from collir.search.core.coordination import DepthBounded, Ordered
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import Number, SearchError, node_text, overrides, rank_of, sign
from collir.search.core.tasks import Counts, RankedSolution, Report, SearchProfile, SearchTask
from collir.search.engines.base import Event, SearchEngine
from collir.search.running.limits import Watch
from collir.search.running.pool import Pool

ATTEMPTS = 3
"""Losses of workers with the same task after which the search fails."""

BATCH = 64
"""The maximum number of tasks given to a worker at once."""

BATCH_SECONDS = 0.002
"""Seconds that a batch of short tasks takes, about."""

TICK = 0.05
"""The maximum number of seconds between two checks of the limits."""


@dataclass
class SearchState:
    """The state of a search: everything that is needed to resume it.

    Attributes:
        open: the unfinished tasks, as last reported.
        solutions: the best solutions so far, best first.
        total: the fold of an enumeration.
    """

    open: list[SearchTask] = field(default_factory=list[SearchTask])
    solutions: list[RankedSolution] = field(default_factory=list[RankedSolution])
    total: Any = None
    counts: Counts = field(default_factory=Counts)
    profile: SearchProfile | None = None
    tasks: int = 0
    lost: int = 0
    seconds: float = 0.0
    next_order: int = 1


class Observer(Protocol):
    """A watcher of a running search, as progress and checkpoints are."""

    def look(self, coordinator: "Coordinator") -> None:
        """Look at the search, if it is time."""
        ...


@dataclass(frozen=True)
class Listener:
    """An observer that passes solutions on."""

    tell: Callable[[RankedSolution], object]

    def look(self, coordinator: "Coordinator") -> None:
        """Tell of the improvements since the last look."""
        for solution in coordinator.improvements:
            self.tell(solution)


class Coordinator:
    """A search on one engine, from a state to the end or to a limit."""

    def __init__(
        self,
        plan: SearchPlan,
        engine: SearchEngine,
        watch: Watch,
        state: SearchState,
        observers: tuple[Observer, ...] = (),
    ):
        self.plan = plan
        self.engine = engine
        self.watch = watch
        self.state = state
        self._observers = observers
        self._pool = Pool(self._rank, not plan.ordered and plan.order == "depth-first")
        self._made = 0
        self._held: list[dict[int, SearchTask]] = [{} for _ in range(engine.workers)]
        self._hungry = set(range(engine.workers))  # workers that may have too few tasks
        self._attempts: dict[int, int] = {}
        self._task_seconds = (0, 0.0)
        self._decided = False
        self._stopped = False
        self._error: Exception | None = None
        self.improvements: list[RankedSolution] = []
        """Solutions since the observers' last look that were among the best when they came."""
        self.unkept: list[RankedSolution] = []
        """Solutions outside the state, because open tasks will find them again."""
        self.consistent = True
        """True while the state is consistent: not during a change, nor after one that failed."""

    # The open tasks.

    def _rank(self, task: SearchTask) -> tuple[float, ...]:
        """Return the priority of a task for a worker without own tasks: place, bound, or depth."""
        if self.plan.ordered:
            return (task.order,)
        if self.plan.order == "best-first":
            return (best_bound(self.plan, [task]),)
        return (task.depth,)

    def _put(self, task: SearchTask, ident: int | None = None, maker: int | None = None) -> None:
        coordination = self.plan.coordination
        if isinstance(coordination, DepthBounded) and task.size > 1:
            for piece in task.pieces():
                self._put(piece, maker=maker)
            return
        if ident is None:
            self._made += 1
            ident = self._made
        self._pool.put(ident, task, maker)

    def _open(self) -> list[SearchTask]:
        """Return all unfinished tasks, as last reported."""
        return [*self._pool, *(task for held in self._held for task in held.values())]

    def snapshot(self) -> SearchState:
        """Return the current state."""
        self.state.open = self._open()
        self.state.seconds = self.watch.seconds
        return self.state

    def visited(self) -> float:
        """Return the number of nodes visited so far, including those not yet reported."""
        return max(self.state.counts.nodes, self._before + self.engine.board.visited())

    # The search.

    def run(self) -> str:
        """Search to the end or to a limit; return the reason of an early end, or ""."""
        plan, engine, state = self.plan, self.engine, self.state
        self._before = state.counts.nodes
        for task in state.open:
            self._put(task)
        state.tasks += len(state.open)
        reason = ""
        engine.board.claim()
        try:
            engine.start(plan)
        except BaseException:
            engine.board.release()
            raise
        try:
            self._publish()
            while not (reason or self._decided or self._error) and self._unfinished():
                self._dispatch()
                for event in engine.wait(min(TICK, self.watch.left())):
                    self._take(event)
                reason = self._limit()
                for observer in self._observers:
                    observer.look(self)
                self.improvements.clear()
        finally:
            try:
                last = engine.stop()
                engine.board.release()  # not after an error: workers may still run this search
                self._stopped = True
                for event in last:
                    self._take(event)
            finally:
                state.open = self._open()
        if self._error is not None and not self._decided:
            raise self._error
        return reason if state.open and not self._decided else ""

    def _unfinished(self) -> bool:
        """Return whether there are unfinished tasks."""
        return bool(self._pool) or any(self._held)

    def _limit(self) -> str:
        visited = self.visited()
        begun = visited > self._before  # starting workers have nothing to return yet
        memory = self.engine.memory() if begun and self.watch.memory_due() else None
        return self.watch.reason(visited, memory)

    def _dispatch(self) -> None:
        """Send tasks of the pool, shared evenly and in its order, to workers that have too few."""
        number, seconds = self._task_seconds
        batch = 1
        if number and self.plan.slice is None:  # a fixed slice makes a reproducible search
            batch = int(min(max(BATCH_SECONDS * number / max(seconds, 1e-9), 1), BATCH))
        workers = self.engine.workers
        for index in sorted(self._hungry, key=lambda index: len(self._held[index])):
            if not self._pool:
                break
            held = self._held[index]
            plenty = len(self._pool) > 4 * workers * batch  # workers then keep a batch in reserve
            if len(held) <= (batch // 2 if plenty else 0):
                share = -(-len(self._pool) // workers)
                if tasks := self._next(index, min(batch, share)):
                    self.engine.submit(index, tasks)
            self._hungry.discard(index)
        idle = 0 if self._pool else sum(1 for index in self._hungry if not self._held[index])
        self.engine.board.set(WANTED, float(idle) if workers > 1 else 0.0)

    def _next(self, worker: int, many: int) -> list[tuple[int, SearchTask]]:
        """Take the next tasks for a worker; a task that a worker was lost with is sent alone."""
        tasks: list[tuple[int, SearchTask]] = []
        held = self._held[worker]
        while self._pool and len(tasks) < many:
            ident = self._pool.first(worker)
            alone = ident in self._attempts
            if alone and held:
                break
            self.consistent = False
            task = self._pool.take(ident)
            if self.plan.ordered:
                task = task._replace(known=self._known_before(task))
            held[ident] = task
            self.consistent = True
            tasks.append((ident, task))
            if alone:
                break
        return tasks

    def _known_before(self, task: SearchTask) -> Number:
        """Return the rank of the worst of ``k`` solutions in places before that of a task."""
        ranks = [s.rank for s in self.state.solutions if s.order < 2 * task.order + 1]
        full = self.plan.kind == "optimise" and len(ranks) == self.plan.k
        return ranks[-1] if full else math.inf

    def _take(self, event: Event) -> None:
        """Process the reports or the loss of a worker."""
        held = self._held[event.worker]
        self._hungry.add(event.worker)
        for report in event.reports:
            self._error = self._error or report.error
            self.consistent = False
            self._merge(report, event.worker)
            self.consistent = True
        if event.lost is not None:
            self._lost(held, event.lost)

    def _lost(self, held: dict[int, SearchTask], why: str) -> None:
        """Put the tasks of a lost worker back; count the loss against a task that it held alone."""
        self.state.lost += not self._stopped  # a worker that did not stop in time is no loss
        tasks = dict(held)
        held.clear()
        for ident, task in tasks.items():
            self._put(task, ident)
        if self._stopped:
            return
        for ident, task in tasks.items():
            self._attempts[ident] = self._attempts.get(ident, 0) + (len(tasks) == 1)
            if self._attempts[ident] >= ATTEMPTS:
                node = next((node for level in task.levels for node in level), None)
                raise SearchError(
                    f"{ATTEMPTS} workers were lost with the same task ({why}), which begins at "
                    f"{node_text(node)}: it may need more memory than there is, "
                    "or a kernel may crash"
                )

    def _merge(self, report: Report, worker: int) -> None:
        """Add the results of a report, and put the nodes it gives away into the pool."""
        state, held = self.state, self._held[worker]
        task = held[report.ident]
        state.counts.add(report.counts)
        if report.profile is not None:
            state.profile = state.profile or SearchProfile()
            state.profile.add(report.profile)
        if self.plan.fold is not None and report.total is not None:
            state.total = self.plan.fold.merge(state.total, report.total)
        base = state.next_order if task.order < 0 else task.order
        if report.state == "failed" and self.plan.counts:
            self.unkept += report.solutions  # the task will find them again
        else:
            self._solutions(report.solutions, base, task.order < 0)
        for depth, node in report.given_away:
            order = 0
            if task.order < 0:
                order, state.next_order = state.next_order, state.next_order + 1
            self._put(SearchTask(depth, ([node],), order), maker=worker)
        state.tasks += len(report.given_away)
        self._attempts.pop(report.ident, None)  # the task got further
        if report.state in ("running", "failed"):
            if report.kept is not None:
                held[report.ident] = report.kept
            return
        del held[report.ident]
        if report.state == "done" or (report.kept is not None and not report.kept.size):
            number, seconds = self._task_seconds
            self._task_seconds = (number + 1, seconds + report.seconds)
        else:
            self._put(report.kept if report.kept is not None else task, report.ident, worker)

    def _solutions(self, solutions: list[RankedSolution], base: int, making: bool) -> None:
        """Keep the best solutions; among equal ones the order decides, if there is one.

        Solutions of the task that makes all other tasks (``making``) precede solutions of later
        tasks.
        """
        if not solutions:
            return
        state, plan = self.state, self.plan
        for rank, order, node in solutions:
            place = 2 * (base + order) if making else 2 * base + 1
            solution = RankedSolution(rank, place if plan.ordered else 0, node)
            insort(state.solutions, solution, key=self._merit)
            dropped = state.solutions.pop() if len(state.solutions) > plan.k else None
            if dropped is not solution:
                self.improvements.append(solution)
        if plan.kind == "decide":
            if plan.ordered:  # an earlier solution may reach the target too
                self._only_before(state.solutions[0].order)
            else:
                self._decided = True
                self.engine.board.set(LAST, -math.inf)  # reports need no rest any more
            return
        self._publish()

    def _merit(self, solution: RankedSolution) -> tuple[Number, int]:
        """Return the key by which solutions are sorted, best first."""
        return (0 if self.plan.kind == "decide" else solution.rank, solution.order)

    def _only_before(self, place: int) -> None:
        """Drop the tasks after a place."""
        self._pool.keep(lambda task: 2 * task.order + 1 <= place)
        self.engine.board.set(LAST, place / 2)

    def _publish(self) -> None:
        """Publish the cut: the greatest rank that the workers must still search."""
        plan, board = self.plan, self.engine.board
        if plan.kind == "decide":
            assert plan.target is not None
            board.publish(cut_at(sign(plan.problem) * plan.target))
        elif plan.kind == "optimise":
            cut = math.inf
            if len(self.state.solutions) == plan.k:
                worst = self.state.solutions[-1].rank
                cut = cut_at(worst) if plan.ordered else cut_below(worst)
            if plan.known < math.inf:
                cut = min(cut, cut_below(plan.known))
            board.publish(cut)


def best_bound(plan: SearchPlan, tasks: list[SearchTask]) -> Number:
    """Return the best rank that the bounds of some tasks allow."""
    nodes = (node for task in tasks for level in task.levels for node in level)
    if not overrides(plan.problem, "bound"):
        return -math.inf if any(True for _ in nodes) else math.inf
    ranks = (rank_of(plan.problem, "bound", plan.problem.bound(node), node) for node in nodes)
    return min(ranks, default=math.inf)


def first_task(plan: SearchPlan) -> SearchTask:
    """Return the complete search as a task."""
    return SearchTask(
        0, ([plan.problem.root()],), -1 if isinstance(plan.coordination, Ordered) else 0
    )
