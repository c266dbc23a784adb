"""A worker: it runs tasks a slice at a time, and says what it has done and what it gives away."""

import heapq
import math
import time
from collections.abc import Callable

from collir.search.core.board import COUNTERS, CUT, LAST, STOP, WANTED, Board, cut_at
from collir.search.core.coordination import Budget, DepthBounded, Ordered, StackStealing
from collir.search.core.plan import Plan
from collir.search.core.tasks import Counts, Profile, Report, State, Task

SLICE = 0.002
"""Seconds between two looks at the clock and the board."""

KERNEL_SLICE = 0.01
"""The same where a kernel runs, which sees the cut itself: taking up what it leaves costs time."""

BURST = 0.001
"""Seconds for which reports of short tasks are collected."""

GRAIN = 50
"""A task runs this many times as long as its report takes before a budget chosen by us is spent."""

SHORTEST = 0.001
"""Seconds that such a budget lasts at least."""

SELDOM = 20
"""A report of all that is left is made no more often than this many times what it costs."""


class Worker:
    """Runs the tasks of a queue, one after the other; whoever drives it passes its reports on.

    Args:
        plan: the search.
        board: what all workers see.
        index: which worker this is.

    After a report was delivered, and not before, ``publish`` tells all what was found: were the
    worker lost in between, nobody would know the solution that others prune by.
    """

    def __init__(self, plan: Plan, board: Board, index: int = 0):
        self._plan = plan
        self._board = board
        self._index = index
        self._goal = plan.goal()
        self._kernel = plan.kernel()
        self._explorer = plan.explorer(self._goal, board, self._kernel)
        self._queue: list[tuple[tuple[int, int], int, Task]] = []  # a heap: the next one first
        self._deepest_first = plan.order == "depth-first" and not plan.ordered
        self._added = 0
        self._running: tuple[int, Task] | None = None
        self._slice = plan.slice or 1
        self._visited = 0
        self.report_cost = 2e-5
        """Seconds that making and sending a report takes, as learned so far."""
        self._speed = (0, 1e-9)  # backtracks and the seconds they took
        self._left = 0.0  # of the budget

    @property
    def busy(self) -> bool:
        """Whether there is something to do, and nodes may still be visited."""
        waiting = self._running is not None or bool(self._queue)
        return waiting and self._visited < self._plan.most

    def add(self, tasks: list[tuple[int, Task]]) -> None:
        """More tasks: depth first the deepest is next, of equal ones that which came first."""
        for ident, task in tasks:
            self._added += 1
            depth = task.depth if self._deepest_first else 0
            heapq.heappush(self._queue, ((-depth, self._added), ident, task))

    def step(self) -> list[Report]:
        """Runs a slice of a task; the reports to deliver, if any."""
        return self._guarded(self._step)

    def _guarded(self, call: Callable[[], list[Report]]) -> list[Report]:
        """Calls what runs the problem; an exception drops the task as far as it is not reported.

        The coordinator still has the task as it was reported last. What an exception leaves here
        (a generator that has ended too early) says nothing of what there is to do.
        """
        try:
            return call()
        except BaseException as error:
            explorer, goal = self._explorer, self._goal
            found, _ = list(goal.found), goal.take()
            goal.found.clear()
            explorer.given.clear()
            explorer.counts = Counts()
            explorer.profile = Profile() if explorer.profile is not None else None
            if self._running is None or not isinstance(error, Exception):
                self._running = None
                raise
            ident, self._running = self._running[0], None
            return [Report(ident, "failed", found=found, error=error)]

    def _step(self) -> list[Report]:
        if self._running is None:
            self._begin()
        started = time.perf_counter()
        explorer = self._explorer
        before = explorer.counts.nodes, explorer.counts.backtracks, explorer.counts.pruned
        limit = max(1, int(min(self._slice, self._plan.most - self._visited)))
        news = explorer.advance(limit, self._left)
        now = time.perf_counter()
        visited = explorer.counts.nodes - before[0]
        backtracks = explorer.counts.backtracks - before[1]
        self._visited += visited
        self._board.cells[COUNTERS + self._index] = self._visited
        self._left -= backtracks
        self._speed = (self._speed[0] + backtracks, self._speed[1] + now - started)
        self._seconds += now - started
        self._adapt(visited + explorer.counts.pruned - before[2], now - started)
        return self._reports(news, now)

    def burst(self, search: int) -> list[Report]:
        """Runs tasks until there is something to tell, or the search of this number is stopped."""
        reports: list[Report] = []
        end = time.perf_counter() + BURST
        while self.busy and self._board.cells[STOP] < search:
            new = self.step()
            reports += new
            urgent = any(report.state != "done" or report.found or report.given for report in new)
            if urgent or time.perf_counter() > end:
                break
        return reports

    def _begin(self) -> None:
        _, ident, task = heapq.heappop(self._queue)
        self._running = ident, task
        plan, cutoff = self._plan, math.inf
        coordination = plan.coordination
        if isinstance(coordination, DepthBounded) and task.depth < coordination.depth:
            cutoff = task.depth + len(task.levels)
        elif isinstance(coordination, Ordered):
            if task.order < 0:  # the task that makes all others
                cutoff = coordination.depth
            self._goal = plan.goal()  # what came later in the order says nothing here
            self._goal.threshold = min(self._goal.threshold, task.known)
            self._explorer = plan.explorer(self._goal, self._board, self._kernel)
        self._goal.order = 0
        self._left = self._budget()
        self._seconds = 0.0
        self._nodes = 0
        self._reported = time.perf_counter()
        self._explorer.start(task, cutoff)

    def _budget(self) -> float:
        coordination = self._plan.coordination
        if not isinstance(coordination, Budget):
            return math.inf
        if coordination.backtracks is not None:
            return coordination.backtracks
        backtracks, seconds = self._speed
        if backtracks < 16:
            return 16
        grain = max(GRAIN * self.report_cost, SHORTEST)
        return max(1, grain * backtracks / seconds)

    def _adapt(self, nodes: int, seconds: float) -> None:
        """Chooses the nodes of the next slice so that it takes about as long as it should."""
        if self._plan.slice is None and nodes:
            wanted = (KERNEL_SLICE if self._kernel else SLICE) * nodes / max(seconds, 1e-7)
            self._slice = int(min(max(wanted, self._slice / 4, 1), self._slice * 4 + 1))

    def _reports(self, news: bool, now: float) -> list[Report]:
        explorer = self._explorer
        assert self._running is not None
        if explorer.finished():
            return [self._report("done")]
        if self._running[1].order > self._board.cells[LAST]:
            explorer.start(Task(0, ()), math.inf)  # something earlier has decided
            return [self._report("done")]
        reports = self._returned() if self._board.cells[WANTED] else []
        self._share()
        every = self._plan.every
        late = every is not None and now - self._reported > max(every, SELDOM * self.report_cost)
        if news or explorer.given or late:
            kept = every is not None and (late or self._plan.counts)
            reports.append(self._report("running", kept))
        return reports

    def _share(self) -> None:
        """Gives nodes away if the coordination says so."""
        coordination, explorer = self._plan.coordination, self._explorer
        wanted = self._board.cells[WANTED] > 0
        if isinstance(coordination, StackStealing):
            if wanted:
                explorer.given += explorer.share(coordination.chunked)
        elif isinstance(coordination, Budget) and self._left <= 0:
            if wanted or coordination.backtracks is not None:
                explorer.given += explorer.share(everything=True)
            self._left = self._budget()

    def _returned(self) -> list[Report]:
        """All tasks not begun, for those who have nothing to do."""
        reports = [Report(ident, "returned") for _, ident, _ in sorted(self._queue)]
        self._queue.clear()
        return reports

    def stop(self) -> list[Report]:
        """Ends: everything that is left is given back."""
        reports = self._returned()
        if self._running is not None:
            needless = self._running[1].order > self._board.cells[LAST]
            over = needless or self._explorer.finished()
            reports += self._guarded(lambda: [self._report("done" if over else "returned")])
        return reports

    def _report(self, state: State, kept: bool = False) -> Report:
        assert self._running is not None
        started = time.perf_counter()
        ident, task = self._running
        goal, explorer = self._goal, self._explorer
        cut = self._board.cells[CUT]
        report = Report(
            ident,
            state,
            found=[found for found in goal.found if found.rank <= cut],
            total=goal.take(),
            given=list(explorer.given),
            counts=explorer.counts,
            profile=explorer.profile,
        )
        if kept or state == "returned":
            report.kept = explorer.remaining()
        goal.found.clear()
        goal.order = 0
        explorer.given.clear()
        self._nodes += explorer.counts.nodes
        explorer.counts = Counts()
        if state == "done":
            report.seconds = self._seconds
            if report.profile is not None:
                report.profile.tasks.append((task.depth, self._seconds, self._nodes))
        if explorer.profile is not None:
            explorer.profile = Profile()
        if state != "running":
            self._running = None
        self._reported = time.perf_counter()
        self.cost(self._reported - started)
        return report

    def cost(self, seconds: float) -> None:
        """Learns what a report has cost to make or to send."""
        self.report_cost += (2 * seconds - self.report_cost) / 16

    def publish(self) -> None:
        """Tells all workers how good a solution is known, once it was reported."""
        if self._goal.kind != "optimise":
            return
        if self._plan.ordered:  # equal solutions earlier in the order are wanted too
            self._board.publish(cut_at(self._goal.threshold))
        else:
            self._board.publish(self._goal.cut())
