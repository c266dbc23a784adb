"""Divides a search among workers, and puts together what they find: each part exactly once.

All that is left to do is known here at any time: tasks that nobody has, and for each worker the
tasks given to it, as it last reported them. So a lost worker's tasks are given to another, a search
can be written to a file and go on later, and a search that ends early says how far it may be from
the best. Where a node searched twice would spoil the answer, reports say what was done and what is
left together.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

from collir.search.core.board import LAST, WANTED, cut_at, cut_below
from collir.search.core.coordination import DepthBounded, Ordered
from collir.search.core.plan import Plan
from collir.search.core.problem import Number, SearchError, has, rank_of, shown, sign
from collir.search.core.tasks import Counts, Found, Profile, Report, Task
from collir.search.engines.base import Engine, Event
from collir.search.running.limits import Watch
from collir.search.running.pool import Pool

ATTEMPTS = 3
"""Workers that may be lost with a task before it is blamed."""

BATCH = 64
"""Tasks given to a worker at once, at most."""

BATCH_SECONDS = 0.002
"""Short tasks are given in batches that take about so long."""

TICK = 0.05
"""Seconds between two looks at the limits, at most."""


@dataclass
class State:
    """How far a search is: all that is needed to go on with it.

    Attributes:
        open: tasks not finished, as far as they are known here.
        found: the best solutions so far, best first.
        total: of an enumeration.
    """

    open: list[Task] = field(default_factory=list[Task])
    found: list[Found] = field(default_factory=list[Found])
    total: Any = None
    counts: Counts = field(default_factory=Counts)
    profile: Profile | None = None
    tasks: int = 0
    lost: int = 0
    seconds: float = 0.0
    next_order: int = 1


class Observer(Protocol):
    """Is told now and then how far a search is: progress, checkpoints."""

    def look(self, coordinator: "Coordinator") -> None:
        """Looks, if it is time."""
        ...


class Coordinator:
    """One search on one engine, from a state to the end or to a limit."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        watch: Watch,
        state: State,
        observers: tuple[Observer, ...] = (),
    ):
        self.plan = plan
        self.engine = engine
        self.watch = watch
        self.state = state
        self._observers = observers
        self._pool = Pool(self._rank, not plan.ordered and plan.order == "depth-first")
        self._made = 0
        self._held: list[dict[int, Task]] = [{} for _ in range(engine.workers)]
        self._hungry = set(range(engine.workers))  # those that may have too few tasks
        self._attempts: dict[int, int] = {}
        self._task_seconds = (0, 0.0)
        self._decided = False
        self._stopped = False
        self._error: Exception | None = None
        self.unkept: list[Found] = []
        """Solutions that are not in the state, because tasks in it will find them again."""
        self.whole = True
        """Whether the state is that of one moment: not once a change of it was broken off."""

    # What there is to do.

    def _rank(self, task: Task) -> tuple[float, ...]:
        """What decides which task a worker without any is given: place, best bound, or depth."""
        if self.plan.ordered:
            return (task.order,)
        if self.plan.order == "best-first":
            return (best_bound(self.plan, [task]),)
        return (task.depth,)

    def _put(self, task: Task, ident: int | None = None, maker: int | None = None) -> None:
        coordination = self.plan.coordination
        if isinstance(coordination, DepthBounded) and task.size > 1:
            for piece in task.pieces():
                self._put(piece, maker=maker)
            return
        if ident is None:
            self._made += 1
            ident = self._made
        self._pool.put(ident, task, maker)

    def _open(self) -> list[Task]:
        """All tasks not finished, as far as they are known here."""
        return [*self._pool, *(task for held in self._held for task in held.values())]

    def snapshot(self) -> State:
        """The state now."""
        self.state.open = self._open()
        self.state.seconds = self.watch.seconds
        return self.state

    def visited(self) -> float:
        """Nodes visited so far, those not yet reported included."""
        return max(self.state.counts.nodes, self._before + self.engine.board.visited())

    # The search.

    def run(self) -> str:
        """Searches to the end or to a limit; returns why it ended early, or ""."""
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
        finally:
            try:
                last = engine.stop()
                engine.board.release()  # not if that failed: workers may still be at this search
                self._stopped = True
                for event in last:
                    self._take(event)
            finally:
                state.open = self._open()
        if self._error is not None and not self._decided:
            raise self._error
        return reason if state.open and not self._decided else ""

    def _unfinished(self) -> bool:
        """Whether there are tasks that are not done."""
        return bool(self._pool) or any(self._held)

    def _limit(self) -> str:
        visited = self.visited()
        begun = visited > self._before  # workers that are being started have nothing to return yet
        memory = self.engine.memory() if begun and self.watch.memory_due() else None
        return self.watch.reason(visited, memory)

    def _dispatch(self) -> None:
        """Gives tasks to workers that have too few; the pool is shared evenly, in its order."""
        number, seconds = self._task_seconds
        batch = 1
        if number and self.plan.slice is None:  # else all is as the seed of an engine decides
            batch = int(min(max(BATCH_SECONDS * number / max(seconds, 1e-9), 1), BATCH))
        workers = self.engine.workers
        for index in sorted(self._hungry, key=lambda index: len(self._held[index])):
            if not self._pool:
                break
            held = self._held[index]
            plenty = len(self._pool) > 4 * workers * batch  # then the next batch waits there
            if len(held) <= (batch // 2 if plenty else 0):
                share = -(-len(self._pool) // workers)
                if tasks := self._next(index, min(batch, share)):
                    self.engine.submit(index, tasks)
            self._hungry.discard(index)
        idle = 0 if self._pool else sum(1 for index in self._hungry if not self._held[index])
        self.engine.board.set(WANTED, float(idle) if workers > 1 else 0.0)

    def _next(self, worker: int, many: int) -> list[tuple[int, Task]]:
        """The next tasks of the pool, for a worker; one that a worker was lost with goes alone."""
        tasks: list[tuple[int, Task]] = []
        held = self._held[worker]
        while self._pool and len(tasks) < many:
            ident = self._pool.first(worker)
            alone = ident in self._attempts
            if alone and held:
                break
            self.whole = False
            task = self._pool.take(ident)
            if self.plan.ordered:
                task = task._replace(known=self._known_before(task))
            held[ident] = task
            self.whole = True
            tasks.append((ident, task))
            if alone:
                break
        return tasks

    def _known_before(self, task: Task) -> Number:
        """The rank of the last of ``k`` solutions found in places before a task's."""
        ranks = [found.rank for found in self.state.found if found.order < 2 * task.order + 1]
        full = self.plan.kind == "optimise" and len(ranks) == self.plan.k
        return ranks[-1] if full else math.inf

    def _take(self, event: Event) -> None:
        """Takes what has come from a worker."""
        held = self._held[event.worker]
        self._hungry.add(event.worker)
        for report in event.reports:
            self._error = self._error or report.error
            self.whole = False
            self._merge(report, event.worker)
            self.whole = True
        if event.lost is not None:
            self._lost(held, event.lost)

    def _lost(self, held: dict[int, Task], why: str) -> None:
        """Takes back what a lost worker had: suspects all; what it had alone is to blame."""
        self.state.lost += not self._stopped  # one that did not stop in time is no loss
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
                    f"{shown(node)}: it may need more memory than there is, or a kernel may crash"
                )

    def _merge(self, report: Report, worker: int) -> None:
        """Adds what was done, and takes over what is given."""
        state, held = self.state, self._held[worker]
        task = held[report.ident]
        state.counts.add(report.counts)
        if report.profile is not None:
            state.profile = state.profile or Profile()
            state.profile.add(report.profile)
        if self.plan.fold is not None and report.total is not None:
            state.total = self.plan.fold.merge(state.total, report.total)
        base = state.next_order if task.order < 0 else task.order
        if report.state == "failed" and self.plan.counts:
            self.unkept += report.found  # the task will find them again
        else:
            self._solutions(report.found, base, task.order < 0)
        for depth, node in report.given:
            order = 0
            if task.order < 0:
                order, state.next_order = state.next_order, state.next_order + 1
            self._put(Task(depth, ([node],), order), maker=worker)
        state.tasks += len(report.given)
        self._attempts.pop(report.ident, None)  # it got further
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

    def _solutions(self, found: list[Found], base: int, making: bool) -> None:
        """Keeps the best solutions; an order, where there is one, decides between equal ones.

        What the task that makes all others (``making``) finds stands before those made after it.
        """
        if not found:
            return
        state, plan = self.state, self.plan
        for rank, order, node in found:
            place = 2 * (base + order) if making else 2 * base + 1
            state.found.append(Found(rank, place if plan.ordered else 0, node))
        if plan.kind == "decide":
            state.found.sort(key=lambda one: one.order)
            del state.found[1:]
            if plan.ordered:  # something earlier may reach the target too
                self._only_before(state.found[0].order)
            else:
                self._decided = True
                self.engine.board.set(LAST, -math.inf)  # what is left need not be said
            return
        state.found.sort(key=lambda one: (one.rank, one.order))
        del state.found[plan.k :]
        self._publish()

    def _only_before(self, place: int) -> None:
        """Forgets the tasks whose place is after this one."""
        self._pool.keep(lambda task: 2 * task.order + 1 <= place)
        self.engine.board.set(LAST, place / 2)

    def _publish(self) -> None:
        """Tells the workers how good a solution must be to be worth looking for."""
        plan, board = self.plan, self.engine.board
        if plan.kind == "decide":
            assert plan.target is not None
            board.publish(cut_at(sign(plan.problem) * plan.target))
        elif plan.kind == "optimise":
            cut = math.inf
            if len(self.state.found) == plan.k:
                worst = self.state.found[-1].rank
                cut = cut_at(worst) if plan.ordered else cut_below(worst)
            if plan.known < math.inf:
                cut = min(cut, cut_below(plan.known))
            board.publish(cut)


def best_bound(plan: Plan, tasks: list[Task]) -> Number:
    """The rank that nothing in these tasks is better than."""
    nodes = (node for task in tasks for level in task.levels for node in level)
    if not has(plan.problem, "bound"):
        return -math.inf if any(True for _ in nodes) else math.inf
    ranks = (rank_of(plan.problem, "bound", plan.problem.bound(node), node) for node in nodes)
    return min(ranks, default=math.inf)


def first_task(plan: Plan) -> Task:
    """The whole search as a task."""
    return Task(0, ([plan.problem.root()],), -1 if isinstance(plan.coordination, Ordered) else 0)
