"""Real workers of a search in simulated time: any number of workers on a single core."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from measure import own

from collir.search.core import worker as worker_module
from collir.search.core.board import Board
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import Problem
from collir.search.core.tasks import Report, SearchTask
from collir.search.core.worker import Worker
from collir.search.engines.base import Event

LATENCY = 20e-6
"""Seconds that a message travels."""


@dataclass(frozen=True)
class Line:
    """The cost of a message: seconds for the message, and for each task or report in it."""

    message: float
    each: float

    def seconds(self, number: int) -> float:
        """Return the cost of a message with ``number`` tasks or reports."""
        return self.message + number * self.each


@dataclass(frozen=True)
class Costs:
    """CPU seconds of sending and receiving tasks and reports, and of a step without nodes."""

    tasks_out: Line
    tasks_in: Line
    reports_out: Line
    reports_in: Line
    step: float


class Clock:
    """The clock of the running worker, in place of the module ``time``."""

    now = 0.0

    def perf_counter(self) -> float:
        """Return the simulated seconds."""
        return self.now


class Timed(Problem[Any]):
    """A problem whose nodes take simulated seconds to expand."""

    def __init__(self, problem: Problem[Any], clock: Clock, seconds: float):
        self.problem, self.clock, self.seconds = problem, clock, seconds
        self.sense, self.sorted_by_bound = problem.sense, problem.sorted_by_bound
        self.dominance, self.target = problem.dominance, problem.target
        self.root, self.objective = problem.root, problem.objective
        self._children = problem.children

    def children(self, node: Any) -> Iterator[Any]:
        """Return the children of a node, and advance the clock."""
        self.clock.now += self.seconds
        return iter(self._children(node))


class TimedWithBound(Timed):
    """A timed problem with a bound."""

    def bound(self, node: Any) -> Any:
        """Return the bound of the problem."""
        return self.problem.bound(node)


class Simulated:
    """An engine in simulated time, with real workers, for the real coordinator.

    The coordinator takes the CPU seconds that its code takes here. What it writes into the board is
    seen by all at once; messages take ``LATENCY``.

    Args:
        workers: how many.
        costs: of messages.
        shared: the coordinator is on the core of worker 0. While both have something to do, each
            is half as fast.
    """

    durable = False

    def __init__(self, workers: int, clock: Clock, costs: Costs, shared: bool):
        self.workers = workers
        self.board = Board(workers)
        self._clock, self._costs, self._shared = clock, costs, shared
        self._sent = 0
        self._events: list[tuple[float, int, int, list[Report] | None]] = []
        self._running = [False] * workers
        self._inbox: list[list[tuple[float, list[tuple[int, SearchTask]]]]] = [
            [] for _ in range(workers)
        ]
        self.now = 0.0
        self.busy = 0.0
        """The seconds in which the coordinator worked."""

    def start(self, plan: SearchPlan) -> None:
        """Make the workers, and start the time."""
        self.board.reset()
        self._crew = [Worker(plan, self.board, index) for index in range(self.workers)]
        self._mark = own()

    def _charge(self, more: float = 0.0) -> None:
        """Add the time that the coordinator has worked since the last call."""
        seconds = own() - self._mark + more
        charged = seconds * (2 if self._shared and self._running[0] else 1)
        self._delay = seconds if charged > seconds else 0.0
        self.now += charged
        self.busy += charged
        self._mark = own()

    def _at(self, when: float, worker: int, reports: list[Report] | None = None) -> None:
        self._sent += 1
        heapq.heappush(self._events, (when, self._sent, worker, reports))

    def submit(self, worker: int, tasks: list[tuple[int, SearchTask]]) -> None:
        """Send tasks to a worker."""
        self._charge(self._costs.tasks_out.seconds(len(tasks)))
        arrival = self.now + LATENCY + self._costs.tasks_in.seconds(len(tasks))
        self._inbox[worker].append((arrival, tasks))
        if not self._running[worker]:
            self._running[worker] = True
            self._at(arrival, worker)
        self._mark = own()

    def _run(self, when: float, index: int) -> None:
        """Run a worker until it has something to report."""
        clock, worker, inbox = self._clock, self._crew[index], self._inbox[index]
        clock.now = when
        while inbox and inbox[0][0] <= when:
            worker.add(inbox.pop(0)[1])
        if worker.busy:
            reports = worker.burst(1)
            clock.now += self._costs.step
            if not index and self._shared:
                clock.now += self._delay
                self._delay = 0.0
            if reports:
                sending = self._costs.reports_out.seconds(len(reports))
                clock.now += sending
                self._at(clock.now + LATENCY, index, reports)
                worker.publish()
                worker.cost(sending / len(reports))
        if worker.busy:
            self._at(clock.now, index)
        elif inbox:
            self._at(max(clock.now, inbox[0][0]), index)
        else:
            self._running[index] = False

    def wait(self, seconds: float) -> list[Event]:
        """Return all events that have come by now, or the next event."""
        self._charge()
        events: list[Event] = []
        while self._events and (self._events[0][0] <= self.now or not events):
            if len(events) >= self.workers:
                break
            when, _, index, reports = heapq.heappop(self._events)
            if reports is None:
                self._run(when, index)
                continue
            self.now = max(self.now, when)
            events.append(Event(index, reports))
        self._mark = own()
        for event in events:
            given_away = sum(len(report.given_away) for report in event.reports)
            self._charge(self._costs.reports_in.seconds(len(event.reports) + given_away))
        return events

    def stop(self) -> list[Event]:
        """Return the seconds that are left."""
        self._charge()
        return [Event(index, worker.stop()) for index, worker in enumerate(self._crew)]

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def memory(self) -> int:
        """Return 0: the memory is not simulated."""
        return 0


def simulated_time(clock: Clock) -> Any:
    """Replace the clock of the workers; return the module that they used before."""
    before = worker_module.time
    worker_module.time = clock  # pyright: ignore[reportAttributeAccessIssue]
    return before
