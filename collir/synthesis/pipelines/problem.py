"""The search problem of pipeline schedules: which ready task a place starts next, or to wait.

A state has the tasks that have started, in order of time. The next decision is at the place that
can start a task the earliest: one of its tasks that are ready then, or none of them before another
task becomes ready there. So every schedule without needless delay is reached on one path.

Waiting is dropped where a task that was ready would have ended before the place starts another: it
could have run meanwhile. Of two states with the same tasks and waits one is dropped if no time of
the other is later: the end of each place, each arrival, and the sum of all starts. The sum makes
both rules compatible: a schedule is dropped only for one whose starts sum up to less, or for one
that goes through a state visited before.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from collir.layout.pipelines.schedule import Schedule
from collir.layout.pipelines.tasks import Task
from collir.search import Problem
from collir.synthesis.pipelines.bounds import Bounds
from collir.synthesis.pipelines.work import PipelineWork

T = TypeVar("T")

SLACK = 1e-9
"""Relative difference of times below which a schedule does not count as better."""


class State(NamedTuple):
    """The tasks that have started.

    Attributes:
        counts: number of microbatches that have run each part.
        ends: their ends in seconds.
        clocks: seconds at which each place is free.
        held: what each place keeps.
        passed: for each place, the parts whose task was ready but not started, as bits.
        deadlines: seconds before which the place starts a task if waiting is of use.
        starts: sum of the starts of all tasks in seconds.
        started: the part of each task that has started, two bytes each.
        bound: lower bound in seconds.
    """

    counts: tuple[int, ...]
    ends: tuple[tuple[float, ...], ...]
    clocks: tuple[float, ...]
    held: tuple[float, ...]
    passed: tuple[int, ...]
    deadlines: tuple[float, ...]
    starts: float
    started: bytes
    bound: float


class SchedulingProblem(Problem[State]):
    """The schedules of a work; the objective is the time in seconds.

    Attributes:
        slack: relative difference of times below which a schedule does not count as better.
    """

    sense = "min"
    sorted_by_bound = True

    def __init__(self, work: PipelineWork, slack: float = SLACK):
        self.slack = slack
        self._work, self._tables = work, work.tables
        self._bounds = Bounds(work)
        self._limits = work.limits
        self._all = work.microbatches

    def root(self) -> State:
        """Return the state in which no task has started."""
        places, parts = self._work.places, len(self._tables.parts)
        return self._bounded(
            State(
                (0,) * parts,
                ((),) * parts,
                (0.0,) * places,
                (0.0,) * places,
                (0,) * places,
                (math.inf,) * places,
                0.0,
                b"",
                0.0,
            )
        )

    def children(self, node: State) -> list[State]:
        """Return the states after the next decision, the best bound first, then by kind."""
        now, place, ready = self._decision(node)
        if not ready or now >= node.deadlines[place]:
            return []
        children = [self._started(node, part, now) for part in ready]
        if (waiting := self._waiting(node, place, now, ready)) is not None:
            children.append(waiting)
        return sorted(children, key=lambda child: child.bound)

    def bound(self, node: State) -> float:
        """Return a lower bound in seconds, raised by ``slack``."""
        return node.bound * (1 + self.slack)

    def objective(self, node: State) -> float | None:
        """Return the seconds of a schedule in which all tasks have started."""
        return max(node.clocks) if min(node.counts) == self._all else None

    def key(self, node: State) -> Hashable:
        """Return the tasks that have started and those that were passed over."""
        return node.counts, node.passed

    def cost(self, node: State) -> tuple[float, ...]:
        """Return the times that matter later: ends of places, arrivals, and the sum of starts."""
        now = self._decision(node)[0]
        clocks = node.clocks if now == math.inf else [max(now, clock) for clock in node.clocks]
        tables, counts = self._tables, node.counts
        arrivals = [
            max(clocks[tables.place[part]], node.ends[needed][microbatch] + send)
            for part, needs in enumerate(tables.needs)
            for needed, send in needs
            for microbatch in range(counts[part], counts[needed])
        ]
        return (node.starts, *clocks, *(-d for d in node.deadlines), *arrivals)

    def show(self, node: State) -> Schedule:
        """Return the schedule."""
        return schedule_of(self._work, node)

    # --- decisions --------------------------------------------------------------------------

    def _decision(self, node: State) -> tuple[float, int, list[int]]:
        """Return the earliest time at which a place can start a task, the place, and the parts.

        The parts are ordered by kind: B first, then F, then W.
        """
        now, at, ready = math.inf, 0, list[int]()
        for place, parts in enumerate(self._tables.of_place):
            passed = node.passed[place]
            for part in parts:
                if passed >> part & 1 or (start := self._ready(node, part, place)) > now:
                    continue
                if start < now:
                    now, at, ready = start, place, [part]
                elif place == at and start < math.inf:
                    ready.append(part)
        return now, at, sorted(ready, key=lambda part: "BFW".index(self._tables.parts[part][0]))

    def _ready(self, node: State, part: int, place: int) -> float:
        """Return when the next task of a part can start; infinite if that is not known yet."""
        microbatch = node.counts[part]
        if microbatch == self._all or not self._has_room(node, part, place):
            return math.inf
        start = node.clocks[place]
        for needed, send in self._tables.needs[part]:
            if node.counts[needed] <= microbatch:
                return math.inf
            start = max(start, node.ends[needed][microbatch] + send)
        return start

    def _has_room(self, node: State, part: int, place: int) -> bool:
        tables = self._tables
        kept = tables.acquired[part] - min(0.0, tables.released[part])
        return not kept or node.held[place] + kept <= self._limits[place]

    def _started(self, node: State, part: int, now: float) -> State:
        """Return the state after the next task of a part has started."""
        tables = self._tables
        place, end = tables.place[part], now + tables.duration[part]
        change = tables.acquired[part] - tables.released[part]
        return self._bounded(
            State(
                _with(node.counts, part, node.counts[part] + 1),
                _with(node.ends, part, (*node.ends[part], end)),
                _with(node.clocks, place, end),
                _with(node.held, place, node.held[place] + change),
                _with(node.passed, place, 0),
                _with(node.deadlines, place, math.inf),
                node.starts + now,
                node.started + part.to_bytes(2, "big"),
                0.0,
            )
        )

    def _waiting(self, node: State, place: int, now: float, ready: Sequence[int]) -> State | None:
        """Return the state in which a place starts none of some tasks next; None if it is useless.

        A task that keeps nothing new could run before another one starts, if it ends by then.
        """
        tables = self._tables
        unlimited = self._limits[place] == math.inf
        movable = [
            now + tables.duration[part]
            for part in ready
            if unlimited or (not tables.acquired[part] and tables.released[part] >= 0)
        ]
        deadline = min([node.deadlines[place], *movable])
        passed = node.passed[place] | sum(1 << part for part in ready)
        waiting = node._replace(
            passed=_with(node.passed, place, passed),
            deadlines=_with(node.deadlines, place, deadline),
        )
        earliest = self._bounds.earliest(node.counts, node.ends, node.clocks)
        if any(earliest[part] < deadline for part in self._not_passed(waiting, place)):
            return self._bounded(waiting)
        return None

    def _not_passed(self, node: State, place: int) -> Iterator[int]:
        """Yield the parts of a place that may start next, now or later."""
        return (
            part
            for part in self._tables.of_place[place]
            if node.counts[part] < self._all
            and not node.passed[place] >> part & 1
            and self._has_room(node, part, place)
        )

    def _bounded(self, node: State) -> State:
        """Return a state with its bound, infinite where a place cannot go on."""
        bounds, counts = self._bounds, node.counts
        earliest = bounds.earliest(counts, node.ends, node.clocks)
        best = max(node.clocks)
        for place, parts in enumerate(self._tables.of_place):
            free = node.clocks[place]
            if any(counts[part] < self._all for part in parts):
                next_parts = self._not_passed(node, place)
                free = min((earliest[part] for part in next_parts), default=math.inf)
                if free >= node.deadlines[place]:
                    free = math.inf
                if free == math.inf:
                    return node._replace(bound=math.inf)
            bound = bounds.place_bound(place, counts, earliest, free, node.held[place])
            best = max(best, bound)
        return node._replace(bound=best)


def schedule_of(work: PipelineWork, node: State) -> Schedule:
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
