"""The schedule of programs with loops: iterations are simulated until they recur.

The state of a simulation at the end of an iteration is what every class of devices does next, and
what is under way. If the state is the same, but for the number of the iteration, as it was some
iterations before, then all that follows is the same, as long as there are iterations. So the
iterations in between are left out, as many times as they fit, and all that follows is that much
later. The result is that of a simulation of all iterations.

A class of devices waits for all of its own steps before a loop and at the end of each iteration, as
the emitted code does. It does not wait for other classes: a stage of a pipeline may be some
iterations ahead of the next stage.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collir.cost.network.loads import Resource
from collir.cost.programs.schedule import (
    Interval,
    Moment,
    StepTask,
    TimeSpan,
    longest_chain,
    schedule,
)

MOST_TASKS = 200_000
"""The most tasks that are simulated one by one."""

_FIRST_TRY, _LAST_TRY = 8, 512
"""The fewest and the most iterations that are simulated to see whether they recur."""


@dataclass(frozen=True)
class Repeated:
    """A loop in a program.

    Attributes:
        times: the number of iterations.
        body: the program of an iteration; its tasks name their predecessors within the body.
        on: the classes of devices that take part in it.
    """

    times: int
    body: "tuple[Node, ...]"
    on: tuple[int, ...]


Node = StepTask | Repeated
"""A part of a program; a task names its predecessors by their places in the program."""


@dataclass(frozen=True)
class Placed:
    """A task in the list that is simulated.

    Attributes:
        task: the task, with the numbers of its predecessors in the list.
        path: its place in the program: in that of the function, in the body of a loop there, and
            so on; that of a loop for the tasks of no time with which the loop and iterations end.
        iterations: the numbers of the iterations in the list of the loops around it, from 0,
            outermost first.
        skipped: the iterations of the outermost loop that are left out before it.
    """

    task: StepTask
    path: tuple[int, ...]
    iterations: tuple[int, ...]
    skipped: int = 0

    @property
    def of_all(self) -> tuple[int, ...]:
        """The numbers of the iterations among all that run."""
        if not self.iterations:
            return ()
        return self.iterations[0] + self.skipped, *self.iterations[1:]


@dataclass(frozen=True)
class _Listed:
    """A loop of the function in the list.

    Attributes:
        first: the number of the first task of the first iteration.
        length: the tasks of an iteration.
        count: the iterations in the list.
    """

    first: int
    length: int
    count: int

    @property
    def end(self) -> int:
        """The number behind the last task."""
        return self.first + self.length * self.count

    def holds(self, number: int) -> bool:
        """Return whether a task is one of an iteration."""
        return self.first <= number < self.end

    def iteration(self, number: int) -> range:
        """Return the numbers of the tasks of an iteration."""
        first = self.first + number * self.length
        return range(first, first + self.length)


@dataclass(frozen=True)
class Cut:
    """Iterations that are left out of a simulation.

    Attributes:
        place: the place of the loop in the program of the function.
        done: the iterations that all classes have ended at the time of the cut.
        skipped: the number of iterations that are left out.
        seconds: the time that they take.
    """

    place: int
    done: int
    skipped: int
    seconds: float


class TooManyError(Exception):
    """The iterations of a loop do not recur, and are too many to be simulated one by one."""

    def __init__(self) -> None:
        super().__init__(
            f"iterations have more than {MOST_TASKS} steps, which are simulated one by one, as "
            "stages do not come into step with each other: let fewer iterations run"
        )


class _List:
    """The tasks of a program in a list, with some of the iterations of its loops.

    Attributes:
        placed: the tasks, in order.
        loops: the loops of the function by their places, not those inside of loops.

    Raises:
        TooManyError: there are more than ``MOST_TASKS`` tasks.
    """

    def __init__(self, nodes: Sequence[Node], counts: Mapping[int, int]):
        self.counts = counts
        self.placed: list[Placed] = []
        self.loops: dict[int, _Listed] = {}
        self._unwaited: dict[int, list[int]] = {}
        self._add_all(nodes, (), ())

    @property
    def tasks(self) -> list[StepTask]:
        """The tasks alone."""
        return [placed.task for placed in self.placed]

    def _add_all(
        self, nodes: Sequence[Node], outer: tuple[int, ...], iterations: tuple[int, ...]
    ) -> None:
        """Add the tasks of a program; ``outer`` is the path of the loop that it is the body of."""
        numbers: dict[int, int] = {}
        for place, node in enumerate(nodes):
            path = (*outer, place)
            if isinstance(node, Repeated):
                count = node.times if outer else self.counts[place]
                listed = self._add_loop(node, path, iterations, count)
                self.loops |= {} if outer else {place: listed}
                continue
            # Each class has waited for its part in what loops make where they end.
            after = tuple(numbers[needed] for needed in node.after if needed in numbers)
            numbers[place] = len(self.placed)
            self._add(replace(node, after=after), path, iterations)

    def _add(self, task: StepTask, path: tuple[int, ...], iterations: tuple[int, ...]) -> None:
        number = len(self.placed)
        if number >= MOST_TASKS:
            raise TooManyError
        if not task.waited:
            for device_class in task.on:
                self._unwaited.setdefault(device_class, []).append(number)
        self.placed.append(Placed(task, path, iterations))

    def _add_loop(
        self, loop: Repeated, path: tuple[int, ...], iterations: tuple[int, ...], count: int
    ) -> _Listed:
        self._wait(loop, path, iterations)
        first = len(self.placed)
        for number in range(count):
            inner = (*iterations, number)
            self._add_all(loop.body, path, inner)
            self._wait(loop, path, inner)
        return _Listed(first, (len(self.placed) - first) // count, count)

    def _wait(self, loop: Repeated, path: tuple[int, ...], iterations: tuple[int, ...]) -> None:
        """Add a task of no time for each class of a loop, behind all that is under way on it."""
        for device_class in loop.on:
            after = tuple(self._unwaited.pop(device_class, ()))
            after = tuple(n for n in after if device_class in self.placed[n].task.on)
            self._add(StepTask((), 0, after, True, (device_class,)), path, iterations)


@dataclass(frozen=True)
class LeftOut:
    """Iterations that were left out, in time.

    Attributes:
        start: the seconds after which they run.
        use: the part of each resource that they use on average.
    """

    cut: Cut
    start: float
    use: Mapping[Resource, float]


@dataclass(frozen=True)
class Timeline:
    """The schedule of a program with loops.

    Attributes:
        placed: the tasks that were simulated, if there are loops.
        spans: the time span of each.
        simulated: the time span of each in the simulation, which has not what is left out.
        intervals: the intervals between events; one for each cut has no tasks.
        cuts: the iterations that were left out, in order of time.
        busy: the seconds that each resource is busy, those of the iterations left out too; None if
            there are no loops.
        whole: the places of loops of which all iterations were simulated, as they do not recur.
    """

    placed: Sequence[Placed]
    spans: Sequence[TimeSpan]
    simulated: Sequence[TimeSpan]
    intervals: Sequence[Interval]
    cuts: Sequence[LeftOut]
    busy: Mapping[Resource, float] | None
    whole: tuple[int, ...]

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
    counts = {place: min(loop.times, _FIRST_TRY) for place, loop in loops.items()}
    cuts: list[Cut] = []
    for place, loop in loops.items():
        counts[place] = loop.times
        if cut := _cut(nodes, counts, place, loop.times):
            counts[place] -= cut.skipped
            cuts.append(cut)
    recur = {cut.place for cut in cuts}
    whole = tuple(p for p, loop in loops.items() if p not in recur and loop.times > _FIRST_TRY)
    return _scheduled(_List(nodes, counts), cuts, whole)


def straight_timeline(tasks: Sequence[StepTask]) -> Timeline:
    """Return the schedule of tasks; none of them is listed as placed in a program with loops."""
    intervals: list[Interval] = []
    spans = schedule(tasks, watch=intervals.append)
    return Timeline((), spans, spans, intervals, (), None, ())


def busy_seconds(tasks: Iterable[StepTask]) -> dict[Resource, float]:
    """Return the seconds that tasks keep each resource busy."""
    busy: dict[Resource, float] = {}
    for task in tasks:
        for resource, time in task.busy.items():
            busy[resource] = busy.get(resource, 0.0) + time
    return busy


def _cut(nodes: Sequence[Node], counts: Mapping[int, int], place: int, times: int) -> Cut | None:
    """Return the iterations of a loop to leave out; None if none were found that recur."""
    count = _FIRST_TRY
    while count < times and count <= _LAST_TRY:
        listed = _List(nodes, {**counts, place: count})
        # A class that is past later loops, of which not all iterations are listed, would still be
        # in them.
        later = [
            (listed.loops[other], node.on)
            for other, node in enumerate(nodes)
            if isinstance(node, Repeated) and other > place and counts[other] < node.times
        ]
        watch = _Watch(listed.loops[place], listed.tasks, later)
        schedule(listed.tasks, at=watch)
        if watch.found:
            before, done, begun, seconds = watch.found
            period = done - before
            least = max(done, begun + 1)
            periods = (times - least) // period
            return Cut(place, done, periods * period, periods * seconds) if periods > 0 else None
        count *= 4
    return None


class _Watch:
    """The states of a simulation where the iterations of a loop end, until one recurs.

    Attributes:
        found: the numbers of iterations that all classes had ended at the first state and at the
            one that is equal, the number that any class had begun then, and the seconds between.
    """

    def __init__(
        self,
        loop: _Listed,
        tasks: Sequence[StepTask],
        later: Sequence[tuple[_Listed, Sequence[int]]],
    ):
        """Watch a loop.

        Args:
            later: the loops behind it of which not all iterations are listed, with their classes.
        """
        self.loop, self.later = loop, later
        self.on = {c for number in loop.iteration(0) for c in tasks[number].on}
        self.next = loop.first
        self.known: dict[object, list[tuple[int, float, list[float]]]] = {}
        self.found: tuple[int, int, int, float] | None = None

    def __call__(self, moment: Moment) -> bool:
        """Look at a moment; return whether the simulation may end."""
        done = _ended(self.loop, self.next)
        while self.next < self.loop.end and moment.spans[self.next][1] <= moment.now:
            self.next += 1
        if (new := _ended(self.loop, self.next)) == done:
            return False
        begun = self._begun(moment)
        if begun is None:
            return False
        key, left = self._state(moment, self.loop.first + new * self.loop.length)
        for before, time, other in self.known.get(key, ()):
            exact = 1e-9 * (moment.now - time)
            if all(abs(a - b) <= exact for a, b in zip(left, other, strict=True)):
                self.found = before, new, begun, moment.now - time
                return True
        self.known.setdefault(key, []).append((new, moment.now, left))
        return False

    def _begun(self, moment: Moment) -> int | None:
        """Return how many iterations some class has begun; None if a class is past the last that
        is listed, of this loop or a later one."""
        for device_class, number, _ in moment.issued():
            for loop, on in self.later:
                if device_class in on and (number is None or number >= loop.end):
                    return None
        following = [number for c, number, _ in moment.issued() if c in self.on]
        if any(number is None or number >= self.loop.end for number in following):
            return None
        furthest = max(number for number in following if number is not None)
        return max(0, furthest - self.loop.first) // self.loop.length + 1

    def _state(self, moment: Moment, base: int) -> tuple[object, list[float]]:
        """Return what each class does next and what is under way, with the tasks of the loop
        counted from a number; and the seconds left of what runs."""

        def relative(number: int | None) -> tuple[int, int]:
            if number is None:
                return 0, 0
            return (1, number - base) if self.loop.holds(number) else (2, number)

        issued = [(c, relative(number), relative(last)) for c, number, last in moment.issued()]
        queues = [(s, tuple(map(relative, numbers))) for s, numbers in moment.queues()]
        running = sorted((relative(number), index, left) for number, index, left in moment.run())
        under_way = [(number, index) for number, index, _ in running]
        key = (tuple(issued), tuple(queues), tuple(under_way))
        return key, [left for _, _, left in running]


def _ended(loop: _Listed, number: int) -> int:
    """Return the iterations that have ended, if all tasks before a number have."""
    return (number - loop.first) // loop.length


class _Mark:
    """The time of a cut in the simulation of what is left, and the tasks that have started then."""

    def __init__(self, cut: Cut, loop: _Listed):
        self.cut, self.loop = cut, loop
        self.next, self.time = loop.first, math.inf
        self.started = frozenset[int]()

    def look(self, moment: Moment) -> None:
        """Look at a moment, which may be the one of the cut."""
        if self.time < math.inf:
            return
        while moment.spans[self.next][1] <= moment.now:
            self.next += 1
            if _ended(self.loop, self.next) == self.cut.done:
                self.time = moment.now
                spans = enumerate(moment.spans)
                self.started = frozenset(n for n, (start, _) in spans if start <= moment.now)
                return


def _scheduled(listed: _List, cuts: Sequence[Cut], whole: tuple[int, ...]) -> Timeline:
    """Return the schedule of a list of tasks, with the time of what is left out of it."""
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
    placed: list[Placed] = []
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
    return Timeline(placed, spans, simulated, moved, left_out, busy, whole)


Bound = float | Sequence["Bound"]
"""A lower bound of the seconds of a task; those of the tasks of a loop."""


def least_time(nodes: Sequence[Node], bounds: Sequence[Bound]) -> float:
    """Return a lower bound of the time of a program, from bounds of its tasks.

    It is the longest chain of them; in a loop, the longest of each class for itself.
    """
    tasks, times = list[StepTask](), list[float]()
    numbers: dict[int, int] = {}
    for place, (node, bound) in enumerate(zip(nodes, bounds, strict=True)):
        if isinstance(bound, float | int):
            assert isinstance(node, StepTask)
            numbers[place] = len(tasks)
            after = tuple(numbers[n] for n in node.after if n in numbers)
            tasks.append(replace(node, after=after))
            times.append(bound)
        else:
            assert isinstance(node, Repeated)
            for device_class in node.on:
                waited = tuple(n for n, task in enumerate(tasks) if device_class in task.on)
                tasks.append(StepTask((), 0, waited, True, (device_class,)))
                body, inner = _alone(node.body, bound, device_class)
                times.append(node.times * least_time(body, inner))
    return longest_chain(tasks, times)


def _alone(
    nodes: Sequence[Node], bounds: Sequence[Bound], device_class: int
) -> tuple[list[Node], list[Bound]]:
    """Return the part of a program that one class of devices takes part in."""
    kept = [place for place, node in enumerate(nodes) if device_class in node.on]
    new = {place: number for number, place in enumerate(kept)}
    alone: list[Node] = []
    for node in (nodes[place] for place in kept):
        if isinstance(node, StepTask):
            after = tuple(new[n] for n in node.after if n in new)
            alone.append(replace(node, after=after, on=(device_class,)))
        else:
            alone.append(replace(node, on=(device_class,)))
    return alone, [bounds[place] for place in kept]


def _moved(intervals: Sequence[Interval], marks: Sequence[_Mark]) -> Iterator[Interval]:
    """Yield intervals at their times, and one without tasks for each cut."""
    left, shift = list(marks), 0.0
    for interval in intervals:
        while left and interval.start >= left[0].time:
            mark = left.pop(0)
            yield Interval(mark.time + shift, mark.time + shift + mark.cut.seconds, {})
            shift += mark.cut.seconds
        yield replace(interval, start=interval.start + shift, end=interval.end + shift)
