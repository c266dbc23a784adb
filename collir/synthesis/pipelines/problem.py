"""The search problem of pipeline schedules: at each decision, a place starts a ready task or waits.

A state has the tasks that have started, in order of time. The next decision is at the place that
can start a task the earliest: one of its tasks that are ready then, or none of them before another
task becomes ready there. So every schedule without needless delay is reached on one path.

Waiting is useless, and dropped, if a ready task would have ended before the place starts another
one: it could have run meanwhile and delayed no task. Of two states with the same tasks and waits,
one is dropped if none of the other's times is later: the end of each place, and each arrival.

Both rules together lose no time. Let V be the least time of all completions of a state that heed
its waits. The completion with this time and the least sum of starts heeds the waits of the next
state on its path; otherwise a task could be moved ahead. So the next state has the same V. A state
that replaces it has no greater V and as few tasks left. By induction, one in time V is found.
"""

import math
from collections.abc import Hashable
from typing import NamedTuple, TypeVar

from collir.layout.pipelines.schedule import Schedule
from collir.layout.pipelines.tasks import Task
from collir.search import Problem
from collir.synthesis.pipelines.bounds import WorkBounds
from collir.synthesis.pipelines.work import PipelineWork

T = TypeVar("T")

SLACK = 1e-9
"""Relative difference of times below which a schedule does not count as better."""


class StartedTasks(NamedTuple):
    """The tasks that have started.

    Attributes:
        counts: number of microbatches that have run each part.
        ends: their ends in seconds.
        clocks: seconds at which each place is free.
        held: what each place keeps.
        passed: for each place, the parts whose task was ready but not started, as bits.
        deadlines: seconds before which the place must start a task, or waiting was useless.
        started: the part of each task that has started, two bytes each.
        bound: lower bound in seconds; infinite if some place cannot go on.
        now: seconds of the next decision, the earliest at which a place can start a task.
        place: the place that decides.
        ready: the parts whose tasks it can start then: B first, then F, then W.
    """

    counts: tuple[int, ...]
    ends: tuple[tuple[float, ...], ...]
    clocks: tuple[float, ...]
    held: tuple[float, ...]
    passed: tuple[int, ...]
    deadlines: tuple[float, ...]
    started: bytes
    bound: float = 0.0
    now: float = math.inf
    place: int = 0
    ready: tuple[int, ...] = ()


class SchedulingProblem(Problem[StartedTasks]):
    """The schedules of a work; the objective is the time in seconds.

    Attributes:
        slack: relative difference of times below which a schedule does not count as better.
    """

    sense = "min"
    sorted_by_bound = True

    def __init__(self, work: PipelineWork, slack: float = SLACK):
        self.slack = slack
        self._work, self._tables = work, work.tables
        self._bounds = WorkBounds(work)
        self._limits = work.limits
        self._all = work.microbatches
        self._by_kind = ["BFW".index(kind) for kind, _ in self._tables.parts]

    def root(self) -> StartedTasks:
        """Return the state in which no task has started."""
        places, parts = self._work.places, len(self._tables.parts)
        return self._bounded(
            StartedTasks(
                (0,) * parts,
                ((),) * parts,
                (0.0,) * places,
                (0.0,) * places,
                (0,) * places,
                (math.inf,) * places,
                b"",
            )
        )

    def children(self, node: StartedTasks) -> list[StartedTasks]:
        """Return the states after the next decision, the best bound first, then by kind."""
        if not node.ready or node.bound == math.inf:
            return []
        children = [self._started(node, part) for part in node.ready]
        if (waiting := self._waiting(node)) is not None:
            children.append(waiting)
        return sorted(children, key=lambda child: child.bound)

    def bound(self, node: StartedTasks) -> float:
        """Return a lower bound in seconds, raised by ``slack``."""
        return node.bound * (1 + self.slack)

    def objective(self, node: StartedTasks) -> float | None:
        """Return the seconds of a schedule in which all tasks have started."""
        return max(node.clocks) if min(node.counts) == self._all else None

    def key(self, node: StartedTasks) -> Hashable:
        """Return the tasks that have started and the tasks that were passed over."""
        return node.counts, node.passed

    def cost(self, node: StartedTasks) -> tuple[float, ...]:
        """Return the times that matter later: ends of places, deadlines, and arrivals."""
        now, clocks = node.now, node.clocks
        if now < math.inf:
            clocks = [now if now > clock else clock for clock in clocks]
        tables, counts = self._tables, node.counts
        arrivals = [
            max(clocks[tables.place[part]], node.ends[needed][microbatch] + send)
            for part, needs in enumerate(tables.needs)
            for needed, send in needs
            for microbatch in range(counts[part], counts[needed])
        ]
        return (*clocks, *(-deadline for deadline in node.deadlines), *arrivals)

    def show(self, node: StartedTasks) -> Schedule:
        """Return the schedule."""
        return schedule_of(self._work, node)

    # --- decisions --------------------------------------------------------------------------

    def _has_room(self, node: StartedTasks, part: int, place: int) -> bool:
        tables = self._tables
        kept = tables.acquired[part] - min(0.0, tables.released[part])
        return not kept or node.held[place] + kept <= self._limits[place]

    def _started(self, node: StartedTasks, part: int) -> StartedTasks:
        """Return the state after the next task of a part has started."""
        tables = self._tables
        place, end = node.place, node.now + tables.duration[part]
        change = tables.acquired[part] - tables.released[part]
        return self._bounded(
            StartedTasks(
                _with(node.counts, part, node.counts[part] + 1),
                _with(node.ends, part, (*node.ends[part], end)),
                _with(node.clocks, place, end),
                _with(node.held, place, node.held[place] + change),
                _with(node.passed, place, 0),
                _with(node.deadlines, place, math.inf),
                node.started + part.to_bytes(2, "big"),
            )
        )

    def _waiting(self, node: StartedTasks) -> StartedTasks | None:
        """Return the state in which a place starts none of its ready tasks next; None if useless.

        A task that keeps nothing new could run before another one starts, if it ends by then.
        """
        tables, place, ready = self._tables, node.place, node.ready
        unlimited = self._limits[place] == math.inf
        movable = [
            node.now + tables.duration[part]
            for part in ready
            if unlimited or (not tables.acquired[part] and tables.released[part] >= 0)
        ]
        passed = node.passed[place] | sum(1 << part for part in ready)
        if all(
            passed >> part & 1 or node.counts[part] == self._all for part in tables.of_place[place]
        ):
            return None
        deadline = min([node.deadlines[place], *movable])
        waiting = node._replace(
            passed=_with(node.passed, place, passed),
            deadlines=_with(node.deadlines, place, deadline),
        )
        return self._bounded(waiting)

    def _bounded(self, node: StartedTasks) -> StartedTasks:
        """Return a state with its bound and its next decision."""
        bounds, counts, tables = self._bounds, node.counts, self._tables
        earliest, exact = bounds.earliest(counts, node.ends, node.clocks)
        best, now, decides, ready = max(node.clocks), math.inf, 0, list[int]()
        for place, parts in enumerate(tables.of_place):
            free, passed, done = math.inf, node.passed[place], True
            for part in parts:
                if counts[part] == self._all:
                    continue
                done = False
                if passed >> part & 1 or not self._has_room(node, part, place):
                    continue
                start = earliest[part]
                if start < free:
                    free = start
                if exact[part] and start <= now:
                    if start < now:
                        now, decides, ready = start, place, [part]
                    elif place == decides:
                        ready.append(part)
            if done:
                continue
            if free >= node.deadlines[place]:
                return node._replace(bound=math.inf)
            bound = bounds.place_bound(place, counts, earliest, free, node.held[place])
            if bound > best:
                best = bound
        if not ready and min(counts) < self._all:
            best = math.inf
        ready.sort(key=self._by_kind.__getitem__)
        return node._replace(bound=best, now=now, place=decides, ready=tuple(ready))


def schedule_of(work: PipelineWork, node: StartedTasks) -> Schedule:
    """Return the schedule of a state in which all tasks have started."""
    tables = work.tables
    counts = [0] * len(tables.parts)
    orders: list[list[Task]] = [[] for _ in range(work.places)]
    for first in range(0, len(node.started), 2):
        part = int.from_bytes(node.started[first : first + 2], "big")
        orders[tables.place[part]].append(Task(*tables.parts[part], counts[part]))
        counts[part] += 1
    return Schedule(tuple(map(tuple, orders)), work.microbatches, work.splits_backward)


def _with(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])
