"""A worker runs tasks a slice at a time, and reports its results and the nodes it gives away."""

import heapq
import math
import time
from collections.abc import Callable

from collir.search.core.board import COUNTERS, CUT, LAST, STOP, WANTED, Board, cut_at
from collir.search.core.coordination import Budget, DepthBounded, Ordered, StackStealing
from collir.search.core.plan import SearchPlan
from collir.search.core.tasks import Counts, Report, ReportState, SearchProfile, SearchTask

SLICE = 0.002
"""Seconds between two looks at the clock and the board."""

KERNEL_SLICE = 0.01
"""``SLICE`` with a kernel, which reads the cut itself and takes time to be resumed."""

BURST = 0.001
"""Seconds for which reports of short tasks are collected."""

GRAIN = 50
"""The time that an automatic budget lasts, in multiples of the time that a report takes."""

SHORTEST = 0.001
"""The least number of seconds that an automatic budget lasts."""

SELDOM = 20
"""The least time between reports of the rest of a task, in multiples of a report's cost."""


class Worker:
    """A queue of tasks, run one after the other; the engine delivers the reports.

    Args:
        plan: the search.
        board: the cells that all workers share.
        index: the number of this worker.

    The engine calls ``publish`` after it has delivered a report, not before: if the worker were
    lost in between, other workers would prune by a solution that nobody knows.
    """

    def __init__(self, plan: SearchPlan, board: Board, index: int = 0):
        self._plan = plan
        self._board = board
        self._index = index
        self._goal = plan.goal()
        self._kernel = plan.kernel()
        self._explorer = plan.explorer(self._goal, board, self._kernel)
        self._queue: list[
            tuple[tuple[int, int], int, SearchTask]
        ] = []  # a heap, the next task first
        self._deepest_first = plan.order == "depth-first" and not plan.ordered
        self._added = 0
        self._running: tuple[int, SearchTask] | None = None
        self._slice = plan.slice or 1
        self._visited = 0
        self.report_cost = 2e-5
        """Seconds that making and sending a report takes, as learned so far."""
        self._speed = (0, 1e-9)  # backtracks and the seconds they took
        self._left = 0.0  # of the budget
        self._granted = 0.0  # when the budget began

    @property
    def busy(self) -> bool:
        """Return whether there are tasks, and more nodes may be visited."""
        waiting = self._running is not None or bool(self._queue)
        return waiting and self._visited < self._plan.most

    def add(self, tasks: list[tuple[int, SearchTask]]) -> None:
        """Add tasks; depth first, the deepest task is run next, and the oldest of equal depth."""
        for ident, task in tasks:
            self._added += 1
            depth = task.depth if self._deepest_first else 0
            heapq.heappush(self._queue, ((-depth, self._added), ident, task))

    def step(self) -> list[Report]:
        """Run a slice of a task; return the reports to deliver."""
        return self._guarded(self._step)

    def _guarded(self, call: Callable[[], list[Report]]) -> list[Report]:
        """Call a method that runs the problem; on an exception, drop the running task.

        The coordinator still has the task as it was last reported. After an exception the state
        here is of no use: a generator may have ended too early.
        """
        try:
            return call()
        except BaseException as error:
            explorer, goal = self._explorer, self._goal
            solutions, _ = list(goal.solutions), goal.take()
            goal.solutions.clear()
            explorer.given_away.clear()
            explorer.counts = Counts()
            explorer.profile = SearchProfile() if explorer.profile is not None else None
            if self._running is None or not isinstance(error, Exception):
                self._running = None
                raise
            ident, self._running = self._running[0], None
            return [Report(ident, "failed", solutions=solutions, error=error)]

    def _step(self) -> list[Report]:
        if self._running is None:
            self._begin()
        started = time.perf_counter()
        explorer = self._explorer
        before = explorer.counts.nodes, explorer.counts.backtracks, explorer.counts.pruned
        limit = max(1, int(min(self._slice, self._plan.most - self._visited)))
        seconds = SLICE if self._plan.slice is None else math.inf
        news = explorer.advance(limit, self._left, seconds)
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
        """Run tasks until a report is urgent, or the search with this number is stopped."""
        reports: list[Report] = []
        end = time.perf_counter() + BURST
        while self.busy and self._board.cells[STOP] < search:
            new = self.step()
            reports += new
            urgent = any(
                report.state != "done" or report.solutions or report.given_away for report in new
            )
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
            if task.order < 0:  # the task that makes all other tasks
                cutoff = coordination.depth
            self._goal = plan.goal()  # later solutions in the order do not count here
            self._goal.threshold = min(self._goal.threshold, task.known)
            self._explorer = plan.explorer(self._goal, self._board, self._kernel)
        self._goal.order = 0
        self._grant()
        self._seconds = 0.0
        self._nodes = 0
        self._reported = time.perf_counter()
        self._explorer.start(task, cutoff)

    def _grant(self) -> None:
        """Begin another budget."""
        self._left, self._granted = self._budget(), time.perf_counter()

    @property
    def _grain(self) -> float:
        """The seconds that an automatic budget lasts."""
        return max(GRAIN * self.report_cost, SHORTEST)

    def _budget(self) -> float:
        coordination = self._plan.coordination
        if not isinstance(coordination, Budget):
            return math.inf
        if coordination.backtracks is not None:
            return coordination.backtracks
        backtracks, seconds = self._speed
        if backtracks < 16:
            return 16
        return max(1, self._grain * backtracks / seconds)

    def _adapt(self, nodes: int, seconds: float) -> None:
        """Choose the number of nodes of the next slice so that it takes about ``SLICE`` seconds."""
        if self._plan.slice is None and nodes:
            nodes_wanted = (KERNEL_SLICE if self._kernel else SLICE) * nodes / max(seconds, 1e-7)
            self._slice = int(min(max(nodes_wanted, self._slice / 4, 1), self._slice * 4 + 1))

    def _reports(self, news: bool, now: float) -> list[Report]:
        explorer = self._explorer
        assert self._running is not None
        if explorer.finished():
            return [self._report("done")]
        if self._running[1].order > self._board.cells[LAST]:
            explorer.start(SearchTask(0, ()), math.inf)  # an earlier task has decided
            return [self._report("done")]
        reports = self._returned() if self._board.cells[WANTED] else []
        self._share(now)
        every = self._plan.every
        late = every is not None and now - self._reported > max(every, SELDOM * self.report_cost)
        if news or explorer.given_away or late:
            kept = every is not None and (late or self._plan.counts)
            reports.append(self._report("running", kept))
        return reports

    def _share(self, now: float) -> None:
        """Give nodes away if the coordination says so."""
        coordination, explorer = self._plan.coordination, self._explorer
        starving = self._board.cells[WANTED] > 0
        if isinstance(coordination, StackStealing):
            if starving:
                explorer.given_away += explorer.share(coordination.chunked)
        elif isinstance(coordination, Budget):
            is_fixed = coordination.backtracks is not None
            if self._left <= 0 or (not is_fixed and now - self._granted > self._grain):
                if starving or is_fixed:
                    explorer.given_away += explorer.share(many=True)
                self._grant()

    def _returned(self) -> list[Report]:
        """Return all tasks that were not begun, for idle workers."""
        reports = [Report(ident, "returned") for _, ident, _ in sorted(self._queue)]
        self._queue.clear()
        return reports

    def stop(self) -> list[Report]:
        """Stop, and return reports that give back all unfinished tasks."""
        reports = self._returned()
        if self._running is not None:
            needless = self._running[1].order > self._board.cells[LAST]
            over = needless or self._explorer.finished()
            reports += self._guarded(lambda: [self._report("done" if over else "returned")])
        return reports

    def _report(self, state: ReportState, kept: bool = False) -> Report:
        assert self._running is not None
        started = time.perf_counter()
        ident, task = self._running
        goal, explorer = self._goal, self._explorer
        cut = self._board.cells[CUT]
        report = Report(
            ident,
            state,
            solutions=[solution for solution in goal.solutions if solution.rank <= cut],
            total=goal.take(),
            given_away=list(explorer.given_away),
            counts=explorer.counts,
            profile=explorer.profile,
        )
        if kept or state == "returned":
            report.kept = explorer.remaining()
        goal.solutions.clear()
        goal.order = 0
        explorer.given_away.clear()
        self._nodes += explorer.counts.nodes
        explorer.counts = Counts()
        if state == "done":
            report.seconds = self._seconds
            if report.profile is not None:
                report.profile.tasks.append((task.depth, self._seconds, self._nodes))
        if explorer.profile is not None:
            explorer.profile = SearchProfile()
        if state != "running":
            self._running = None
        self._reported = time.perf_counter()
        self.cost(self._reported - started)
        return report

    def cost(self, seconds: float) -> None:
        """Learn from the seconds that making or sending a report took."""
        self.report_cost += (2 * seconds - self.report_cost) / 16

    def publish(self) -> None:
        """Publish the cut of the best solution known here, once that was reported."""
        if self._goal.kind != "optimise":
            return
        if self._plan.ordered:  # equal solutions earlier in the order are needed too
            self._board.publish(cut_at(self._goal.threshold))
        else:
            self._board.publish(self._goal.cut())
