"""Schedules to begin a search with: the named rules, and lists by priority."""

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple

from collir.layout.pipelines.rules import RULES, ScheduleRule
from collir.layout.pipelines.schedule import Schedule, problems
from collir.layout.pipelines.tasks import Task
from collir.synthesis.pipelines.work import PipelineWork, WorkTables


class ScheduleCandidate(NamedTuple):
    """A schedule that fits the memory.

    Attributes:
        name: the rule that it is from.
        time: seconds.
    """

    name: str
    schedule: Schedule
    time: float


def candidates(work: PipelineWork) -> Iterator[ScheduleCandidate]:
    """Yield the schedules of the named rules, and those by priorities, that fit the memory."""
    for rule in RULES.values():
        if (schedule := rule_schedule(work, rule)) is not None:
            run = work.run(schedule)
            if work.fits(run):
                yield ScheduleCandidate(rule.name, schedule, run.time)
    for name, priority in PRIORITIES.items():
        if (schedule := priority_schedule(work, priority)) is not None:
            yield ScheduleCandidate(name, schedule, work.run(schedule).time)


def rule_schedule(work: PipelineWork, rule: ScheduleRule) -> Schedule | None:
    """Return the schedule of a rule for this work; None if the rule does not suit it.

    A rule suits if it has the chunks at the same places, and its schedule does not deadlock.
    """
    chunk_places = {chunk: place for (_, chunk), place in work.graph.places.items()}
    chunks = max(1, len(chunk_places) // max(1, work.places))
    size = (work.places, work.microbatches * rule.directions, chunks, work.splits_backward)
    if rule.problems(*size):
        return None
    if chunk_places != dict(enumerate(rule.chunk_places(work.places, chunks))):
        return None
    schedule = rule.schedule(*size).only(work.graph.places)
    return None if problems(schedule, work.graph) else schedule


Priority = Callable[[WorkTables, int, int], tuple[float, ...]]
"""A function from the number of a part and a microbatch to their rank; the lowest starts first."""


def _by_kind(kinds: str) -> Priority:
    """Return the priority of kinds in an order, of early microbatches, and of late chunks."""

    def priority(tables: WorkTables, part: int, microbatch: int) -> tuple[float, ...]:
        kind, chunk = tables.parts[part]
        return kinds.index(kind), microbatch, -chunk if kind == "F" else chunk

    return priority


PRIORITIES: dict[str, Priority] = {
    "backward first": _by_kind("BFW"),
    "backward and weights first": _by_kind("BWF"),
    "forward first": _by_kind("FBW"),
    "critical path first": lambda tables, part, microbatch: (-tables.tail[part], microbatch),
    "early microbatches first": lambda tables, part, microbatch: (microbatch, -tables.tail[part]),
}
"""The priorities by their names."""


def priority_schedule(work: PipelineWork, priority: Priority) -> Schedule | None:
    """Return the schedule in which each place always starts the ready task of the lowest rank.

    Each place keeps room for the oldest microbatch that has forward tasks left there, so that the
    schedule does not deadlock where there is room for one microbatch.

    Returns: None if it deadlocks.
    """
    lists = _Lists(work, priority)
    lists.run()
    if any(count < work.microbatches for count in lists.counts):
        return None
    orders = tuple(map(tuple, lists.orders))
    return Schedule(orders, work.microbatches, work.splits_backward)


class _Lists:
    """The run of a schedule that is made as it runs, in order of time."""

    def __init__(self, work: PipelineWork, priority: Priority):
        self._tables, self._priority = work.tables, priority
        self._microbatches = work.microbatches
        self.orders: list[list[Task]] = [[] for _ in range(work.places)]
        self.counts = [0] * len(self._tables.parts)
        self._ends: list[list[float]] = [[] for _ in self._tables.parts]
        self._free = list(work.limits)
        self._clocks = [0.0] * work.places
        self._events = [(0.0, place) for place in range(work.places)]

    def run(self) -> None:
        while self._events:
            now, place = heapq.heappop(self._events)
            if self._clocks[place] > now:
                continue
            ready = [n for n in self._tables.of_place[place] if self._can_start(n, now)]
            if ready:
                self._start(min(ready, key=self._rank), place, now)

    def _rank(self, part: int) -> tuple[float, ...]:
        return self._priority(self._tables, part, self.counts[part])

    def _can_start(self, part: int, now: float) -> bool:
        microbatch, ends = self.counts[part], self._ends
        if microbatch == self._microbatches:
            return False
        for needed, send in self._tables.needs[part]:
            if len(ends[needed]) <= microbatch or ends[needed][microbatch] + send > now:
                return False
        return not self._tables.reserved[part] or self._has_room(part)

    def _has_room(self, part: int) -> bool:
        tables, counts, microbatch = self._tables, self.counts, self.counts[part]
        place = tables.place[part]
        forward = [n for n in tables.of_place[place] if tables.reserved[n]]
        oldest = min(counts[n] for n in forward)
        reserved = sum(tables.reserved[n] for n in forward if counts[n] == oldest)
        needed = tables.reserved[part] + (reserved if microbatch > oldest else 0.0)
        return needed <= self._free[place]

    def _start(self, part: int, place: int, now: float) -> None:
        tables = self._tables
        self.orders[place].append(Task(*tables.parts[part], self.counts[part]))
        self.counts[part] += 1
        self._free[place] += max(0.0, tables.released[part]) - tables.reserved[part]
        end = self._clocks[place] = now + tables.duration[part]
        self._ends[part].append(end)
        heapq.heappush(self._events, (end, place))
        for user, send in tables.users[part]:
            heapq.heappush(self._events, (end + send, tables.place[user]))
