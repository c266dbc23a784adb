"""The schedule of programs with loops, without the recurring iterations that are left out."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from collir.cost.network.loads import Resource
from collir.cost.programs.loops import ListedLoop, Node, PlacedTask, Repeated, TaskList
from collir.cost.programs.repetition import FIRST_TRY, SkippedIterations, recurring_iterations
from collir.cost.programs.schedule import Interval, Moment, StepTask, TimeSpan, schedule


@dataclass(frozen=True)
class LeftOut:
    """Iterations that were left out, in time.

    Attributes:
        start: the seconds after which they run.
        use: the part of each resource that they use on average.
    """

    cut: SkippedIterations
    start: float
    use: Mapping[Resource, float]


@dataclass(frozen=True)
class Timeline:
    """The schedule of a program with loops.

    Attributes:
        placed: the tasks that were simulated, if there are loops.
        spans: the time span of each.
        simulated: the time span of each in the simulation, without the iterations left out.
        cuts: the iterations that were left out, in order of time.
        busy: the seconds that each resource is busy, with iterations left out; None without loops.
        whole: the places of loops whose iterations were all simulated, as they do not recur.
        recorded: a function that returns ``intervals``; it is called when they are first needed.
    """

    placed: Sequence[PlacedTask]
    spans: Sequence[TimeSpan]
    simulated: Sequence[TimeSpan]
    cuts: Sequence[LeftOut]
    busy: Mapping[Resource, float] | None
    whole: tuple[int, ...]
    recorded: Callable[[], Sequence[Interval]]

    @cached_property
    def intervals(self) -> Sequence[Interval]:
        """The intervals between events; one for each cut has no tasks."""
        return self.recorded()

    @property
    def time(self) -> float:
        """The end of the last task."""
        return max((end for _, end in self.spans), default=0.0)

    @property
    def outer_spans(self) -> list[TimeSpan]:
        """The time span of every task and loop of the program itself, in order."""
        if not self.placed:
            return list(self.spans)
        spans: dict[int, TimeSpan] = {}
        for placed, (start, end) in zip(self.placed, self.spans, strict=True):
            first, last = spans.get(placed.path[0], (start, end))
            spans[placed.path[0]] = min(first, start), max(last, end)
        return [span for _, span in sorted(spans.items())]


def timeline(nodes: Sequence[Node]) -> Timeline:
    """Return the schedule of a program.

    Raises:
        TooManyError: iterations that do not recur are too many to be simulated one by one.
    """
    loops = {place: node for place, node in enumerate(nodes) if isinstance(node, Repeated)}
    if not loops:
        return straight_timeline([node for node in nodes if isinstance(node, StepTask)])
    counts = {place: min(loop.times, FIRST_TRY) for place, loop in loops.items()}
    cuts: list[SkippedIterations] = []
    for place, loop in loops.items():
        counts[place] = loop.times
        if cut := recurring_iterations(nodes, counts, place, loop.times):
            counts[place] -= cut.skipped
            cuts.append(cut)
    recur = {cut.place for cut in cuts}
    whole = tuple(p for p, loop in loops.items() if p not in recur and loop.times > FIRST_TRY)
    return _scheduled(TaskList(nodes, counts), cuts, whole)


def straight_timeline(tasks: Sequence[StepTask]) -> Timeline:
    """Return the schedule of the tasks of a program without loops."""
    spans = schedule(tasks, watch=_ignore)
    return Timeline((), spans, spans, (), None, (), partial(_intervals, tasks))


def _ignore(_: Interval) -> None:
    """Ignore an interval."""


def _intervals(tasks: Sequence[StepTask]) -> list[Interval]:
    intervals: list[Interval] = []
    _ = schedule(tasks, watch=intervals.append)
    return intervals


def busy_seconds(tasks: Iterable[StepTask]) -> dict[Resource, float]:
    """Return the seconds that tasks keep each resource busy."""
    busy: dict[Resource, float] = {}
    for task in tasks:
        for resource, time in task.busy.items():
            busy[resource] = busy.get(resource, 0.0) + time
    return busy


class _Mark:
    """The time of a cut in the simulation of listed tasks, and the tasks started by then."""

    def __init__(self, cut: SkippedIterations, loop: ListedLoop):
        self.cut, self.loop = cut, loop
        self.next, self.time = loop.first, math.inf
        self.started = frozenset[int]()

    def look(self, moment: Moment) -> None:
        """Look at a moment, which may be the one of the cut."""
        if self.time < math.inf:
            return
        while moment.spans[self.next][1] <= moment.now:
            self.next += 1
            if self.loop.ended(self.next) == self.cut.done:
                self.time = moment.now
                spans = enumerate(moment.spans)
                self.started = frozenset(n for n, (start, _) in spans if start <= moment.now)
                return


def _scheduled(
    listed: TaskList, cuts: Sequence[SkippedIterations], whole: tuple[int, ...]
) -> Timeline:
    """Return the schedule of listed tasks, with the time of the iterations left out."""
    tasks = listed.tasks
    marks = [_Mark(cut, listed.loops[cut.place]) for cut in cuts]
    intervals: list[Interval] = []

    def at(moment: Moment) -> bool:
        for mark in marks:
            mark.look(moment)
        return False

    simulated = schedule(tasks, watch=intervals.append, at=at if marks else None)
    marks.sort(key=lambda mark: mark.time)
    spans: list[TimeSpan] = []
    placed: list[PlacedTask] = []
    for number, (start, end) in enumerate(simulated):
        past = [mark for mark in marks if number not in mark.started]
        shift = math.fsum(mark.cut.seconds for mark in past)
        spans.append((start + shift, end + shift))
        skipped = sum(mark.cut.skipped for mark in past if mark.loop.holds(number))
        placed.append(replace(listed.placed[number], skipped=skipped))
    busy = busy_seconds(tasks)
    left_out: list[LeftOut] = []
    for number, mark in enumerate(marks):
        start = mark.time + math.fsum(earlier.cut.seconds for earlier in marks[:number])
        use: dict[Resource, float] = {}
        for inner in mark.loop.iteration(0):
            for resource, time in tasks[inner].busy.items():
                time *= mark.cut.skipped
                busy[resource] += time
                use[resource] = use.get(resource, 0.0) + time / mark.cut.seconds
        left_out.append(LeftOut(mark.cut, start, use))
    moved = list(_moved(intervals, marks))
    return Timeline(placed, spans, simulated, left_out, busy, whole, lambda: moved)


def _moved(intervals: Sequence[Interval], marks: Sequence[_Mark]) -> Iterator[Interval]:
    """Yield intervals at their times, and one without tasks for each cut."""
    left, shift = list(marks), 0.0
    for interval in intervals:
        while left and interval.start >= left[0].time:
            mark = left.pop(0)
            yield Interval(mark.time + shift, mark.time + shift + mark.cut.seconds, {})
            shift += mark.cut.seconds
        yield replace(interval, start=interval.start + shift, end=interval.end + shift)
