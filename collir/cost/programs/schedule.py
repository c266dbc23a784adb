"""The schedule of steps that may overlap, by a simulation of events.

Steps are issued in program order: each one once its operands are ready and once every earlier step
that is waited for has ended. An issued step joins the queue of its stream, and starts when all
steps issued before it on that stream have ended; meanwhile later steps may be issued. There is a
stream for each level of the machine, and one for the work of devices themselves; a collective runs
on the stream of the outermost level it goes through.

Where values are at places, devices of different classes issue different steps: each class issues
those in which it takes part, in program order, and has streams of its own. A step starts when all
of its classes have issued it. All classes share ports and links, as if they were on the same
devices.

Steps that run at the same time share ports and links. If a port is full, all messages that it slows
down are equally fast (max-min fairness). Nothing changes between two events, so a simulation costs
time in proportion to its events, not to the simulated time or the number of devices.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from collir.cost.collectives.phases import Phase
from collir.cost.network.loads import Resource


@dataclass(frozen=True)
class StepTask:
    """A step to be scheduled.

    Attributes:
        phases: the phases of the step, in order.
        stream: the number of its stream; the tasks of one stream run one after the other.
        after: the numbers of the earlier tasks whose results it needs.
        waited: True if all later tasks wait for its end.
        devices: the classes of devices that take part in it; None for all of them.
    """

    phases: tuple[Phase, ...]
    stream: int
    after: tuple[int, ...] = ()
    waited: bool = True
    devices: frozenset[int] | None = None

    def meets(self, other: "StepTask") -> bool:
        """Return whether a device takes part in both tasks."""
        if self.devices is None or other.devices is None:
            return True
        return not self.devices.isdisjoint(other.devices)

    @cached_property
    def time(self) -> float:
        """Seconds that it takes if it runs alone."""
        return math.fsum(phase.time for phase in self.phases)

    @cached_property
    def busy(self) -> dict[Resource, float]:
        """Seconds that it keeps each resource busy."""
        busy: dict[Resource, float] = {}
        for phase in self.phases:
            for resource, part in phase.uses:
                busy[resource] = busy.get(resource, 0.0) + part * phase.time
        return busy

    def loads(self, levels: int) -> tuple[float, ...]:
        """Return the seconds that it keeps the busiest resource of each level busy."""
        busiest = [0.0] * levels
        for (level, _), time in self.busy.items():
            busiest[level] = max(busiest[level], time)
        return tuple(busiest)


TimeSpan = tuple[float, float]
"""The start and the end of a task, in seconds from the first start."""


@dataclass(frozen=True)
class Interval:
    """A stretch of time between two events, in which nothing changes.

    Attributes:
        start, end: seconds from the first start.
        running: for each running task, its phase and its speed (1 is full speed).
    """

    start: float
    end: float
    running: Mapping[int, tuple[Phase, float]]


Observer = Callable[[Interval], None]


@dataclass
class _Running:
    """A running task.

    Attributes:
        shares: True if the task uses resources that others may use too.
        index: the number of its current phase.
        left: the seconds left of the current phase, at full speed.
    """

    phases: tuple[Phase, ...]
    shares: bool
    index: int = 0
    left: float = 0.0

    @property
    def phase(self) -> Phase:
        return self.phases[self.index]

    def rest(self) -> float:
        """Return the seconds left of the task, at full speed."""
        return self.left + math.fsum(phase.time for phase in self.phases[self.index + 1 :])

    def advance(self, seconds: float) -> bool:
        """Run for some seconds at full speed, through phases; return whether the task ends."""
        if seconds >= self.rest() * (1 - 1e-12):
            return True
        while seconds >= self.left and self.index + 1 < len(self.phases):
            seconds -= self.left
            self.index += 1
            self.left = self.phase.time
        self.left -= seconds
        return False

    def advance_in_phase(self, seconds: float) -> bool:
        """Run for some seconds at full speed, at most to the end of the phase; return whether the
        task ends."""
        self.left -= seconds
        if self.left > 1e-12 * self.phase.time:
            return False
        self.index += 1
        if self.index == len(self.phases):
            return True
        self.left = self.phase.time
        return False


def schedule(
    tasks: Sequence[StepTask], as_written: bool = True, watch: Observer | None = None
) -> list[TimeSpan]:
    """Return the time span of every task.

    Args:
        as_written: False if a task whose operands are ready may be issued before earlier tasks that
            still wait for theirs. The order of the starts is then a good order for the program.
        watch: a function that is called with every interval, in order.
    """
    spans: list[TimeSpan] = [(math.inf, math.inf)] * len(tasks)
    running: dict[int, _Running] = {}
    apart = as_written and any(task.devices is not None for task in tasks)
    waiting = (_Apart if apart else _Written if as_written else _Ready)(tasks, spans)
    now = 0.0
    while waiting or running:
        started = waiting.start(running, now)
        for number in started:
            phases = tasks[number].phases
            spans[number] = (now, math.inf if phases else now)
            if phases:
                shares = any(phase.uses for phase in phases)
                running[number] = _Running(phases, shares, 0, phases[0].time)
        if not all(tasks[number].phases for number in started):
            continue  # tasks that take no time have ended already
        # All waiting is for the end of a task, so tasks that share nothing run to the next end.
        if len(running) == 1:
            now, ended = _run_alone(running, now, watch)
        elif watch is None and sum(task.shares for task in running.values()) <= 1:
            now, ended = _run_apart(running, now)
        else:
            now, ended = _run_phase(running, now, watch)
        for number in ended:
            del running[number]
            spans[number] = (spans[number][0], now)
    return spans


def longest_chain(tasks: Sequence[StepTask], times: Sequence[float]) -> float:
    """Return the seconds of the longest chain of tasks, if they took the seconds in ``times``.

    A task follows its operands, the earlier tasks that are waited for, and those of its stream;
    only tasks in which the same devices take part wait for each other.
    """
    classes = _classes(tasks)
    waited = dict.fromkeys(classes, 0.0)
    streams: dict[tuple[int, int], float] = {}
    ends: list[float] = []
    for task, time in zip(tasks, times, strict=True):
        own = [(number, task.stream) for number in task.devices or classes]
        starts = [max(waited[key[0]], streams.get(key, 0.0)) for key in own]
        ends.append(max([*starts, *(ends[number] for number in task.after)]) + time)
        for key in own:
            streams[key] = ends[-1]
            waited[key[0]] = ends[-1] if task.waited else waited[key[0]]
    return max(ends, default=0.0)


def _classes(tasks: Iterable[StepTask]) -> list[int]:
    """Return the classes of devices that take part in tasks; one, if all take part in all."""
    return sorted({number for task in tasks for number in task.devices or ()}) or [0]


class _Written:
    """The tasks not yet started, which are issued in program order and wait for their streams."""

    def __init__(self, tasks: Sequence[StepTask], spans: Sequence[TimeSpan]):
        self.tasks, self.spans = tasks, spans
        self.issued = self.started = 0
        self.awaited: int | None = None
        self.queues: dict[int, deque[int]] = {}

    def __bool__(self) -> bool:
        return self.started < len(self.tasks)

    def start(self, running: Iterable[int], now: float) -> list[int]:
        """Start the tasks that can start now, and return them."""
        while self.issued < len(self.tasks) and self._can_be_issued(now):
            task = self.tasks[self.issued]
            self.queues.setdefault(task.stream, deque()).append(self.issued)
            self.awaited = self.issued if task.waited else None
            self.issued += 1
        busy = {self.tasks[number].stream for number in running}
        started = [q.popleft() for stream, q in self.queues.items() if q and stream not in busy]
        self.started += len(started)
        return started

    def _can_be_issued(self, now: float) -> bool:
        if self.awaited is not None and self.spans[self.awaited][1] > now:
            return False
        return all(self.spans[needed][1] <= now for needed in self.tasks[self.issued].after)


class _Apart:
    """The tasks not yet started, which each class of devices issues in program order.

    A class issues a task once its own operands of the task are ready: a device that receives does
    not wait for what the sender computes. The task joins the queue of its stream on each class.
    """

    def __init__(self, tasks: Sequence[StepTask], spans: Sequence[TimeSpan]):
        self.tasks, self.spans = tasks, spans
        classes = _classes(tasks)
        self.on = [classes if task.devices is None else sorted(task.devices) for task in tasks]
        self.left: dict[int, deque[int]] = {one: deque() for one in classes}
        for number, own in enumerate(self.on):
            for one in own:
                self.left[one].append(number)
        self.awaited: dict[int, int | None] = dict.fromkeys(classes)
        self.queues: dict[tuple[int, int], deque[int]] = {}
        self.started = 0

    def __bool__(self) -> bool:
        return self.started < len(self.tasks)

    def start(self, running: Iterable[int], now: float) -> list[int]:
        """Start the tasks that can start now, and return them."""
        for one, left in self.left.items():
            while left and self._can_be_issued(left[0], one, now):
                number = left.popleft()
                self.queues.setdefault((one, self.tasks[number].stream), deque()).append(number)
                self.awaited[one] = number if self.tasks[number].waited else None
        busy = {key for number in running for key in self._keys(number)}
        heads = {queue[0] for key, queue in self.queues.items() if queue and key not in busy}
        started = [number for number in sorted(heads) if self._can_start(number, busy, now)]
        for number in started:
            for key in self._keys(number):
                self.queues[key].popleft()
        self.started += len(started)
        return started

    def _keys(self, number: int) -> list[tuple[int, int]]:
        """Return the streams of a task, each of a class."""
        return [(one, self.tasks[number].stream) for one in self.on[number]]

    def _can_be_issued(self, number: int, one: int, now: float) -> bool:
        """Return whether a class of devices can issue a task now."""
        awaited = self.awaited[one]
        if awaited is not None and self.spans[awaited][1] > now:
            return False
        needed = (task for task in self.tasks[number].after if one in self.on[task])
        return all(self.spans[task][1] <= now for task in needed)

    def _can_start(self, number: int, busy: set[tuple[int, int]], now: float) -> bool:
        """Return whether a task is the next on all of its streams, and all it needs is there."""
        for key in self._keys(number):
            queue = self.queues.get(key)
            if key in busy or not queue or queue[0] != number:
                return False
        return all(self.spans[task][1] <= now for task in self.tasks[number].after)


class _Ready:
    """The tasks not yet started, which start as soon as possible; ties in program order."""

    def __init__(self, tasks: Sequence[StepTask], spans: Sequence[TimeSpan]):
        self.tasks, self.spans = tasks, spans
        self.left = len(tasks)
        self.under_way: list[int] = []
        self.missing = [len(task.after) for task in tasks]
        self.users: dict[int, list[int]] = {}
        self.ready: dict[int, list[int]] = {}  # a heap of task numbers for each stream
        for number, task in enumerate(tasks):
            for needed in task.after:
                self.users.setdefault(needed, []).append(number)
            if not task.after:
                self._add_ready(number)

    def __bool__(self) -> bool:
        return self.left > 0

    def _add_ready(self, number: int) -> None:
        heapq.heappush(self.ready.setdefault(self.tasks[number].stream, []), number)

    def start(self, running: Iterable[int], now: float) -> list[int]:
        """Start the tasks that can start now, and return them."""
        for ended in [number for number in self.under_way if self.spans[number][1] <= now]:
            self.under_way.remove(ended)
            for user in self.users.get(ended, ()):
                self.missing[user] -= 1
                if not self.missing[user]:
                    self._add_ready(user)
        busy = {self.tasks[number].stream for number in running}
        started: list[int] = []
        if any(self.tasks[number].waited for number in running):
            return started
        heaps = [heap for stream, heap in self.ready.items() if heap and stream not in busy]
        for heap in sorted(heaps):
            started.append(heapq.heappop(heap))
            if self.tasks[started[-1]].waited:
                break
        self.under_way += started
        self.left -= len(started)
        return started


def _run_alone(
    running: dict[int, _Running], now: float, watch: Observer | None
) -> tuple[float, list[int]]:
    """Run the only running task to its end; return its end and its number."""
    ((number, task),) = running.items()
    end = now + task.rest()
    if watch:
        while True:
            phase, until = task.phase, now + task.left
            last = task.advance_in_phase(task.left)
            watch(Interval(now, end if last else until, {number: (phase, 1.0)}))
            if last:
                break
            now = until
    return end, [number]


def _run_apart(running: dict[int, _Running], now: float) -> tuple[float, list[int]]:
    """Run tasks that do not slow each other down until the first ends; return its end and the
    numbers of all tasks that end then."""
    passed = min(task.rest() for task in running.values())
    return now + passed, [n for n, task in running.items() if task.advance(passed)]


def _run_phase(
    running: dict[int, _Running], now: float, watch: Observer | None
) -> tuple[float, list[int]]:
    """Run all tasks to the next end of a phase; return that time and the tasks that end then."""
    speeds = fair_speeds({number: task.phase for number, task in running.items()})
    passed = min(task.left / speeds[number] for number, task in running.items())
    if watch and passed:
        phases = {number: (task.phase, speeds[number]) for number, task in running.items()}
        watch(Interval(now, now + passed, phases))
    ended = [n for n, task in running.items() if task.advance_in_phase(passed * speeds[n])]
    return now + passed, ended


def fair_speeds(phases: Mapping[int, Phase]) -> dict[int, float]:
    """Return the speeds of phases that run at the same time; 1 is full speed.

    They are max-min fair, by progressive filling: the rates of all messages rise together. Once a
    message reaches full speed, or a port is full, that message or all messages through the port
    keep their rates, and the others rise on.
    """
    speeds = dict.fromkeys(phases, 1.0)
    free: dict[Resource, float] = {}
    for phase in phases.values():
        for resource, part in phase.uses:
            free[resource] = free.get(resource, 1.0) - part
    if min(free.values(), default=0.0) >= 0:
        return speeds
    free = dict.fromkeys(free, 1.0)
    rising = {number: phase for number, phase in phases.items() if phase.uses}
    while rising:
        demands = _demands(rising.values())
        limits = {resource: free[resource] / use for resource, use in demands.items() if use}
        rate = min((*limits.values(), *(phase.rate for phase in rising.values())))
        reached = rate * (1 + 1e-12)
        full = {resource for resource, limit in limits.items() if limit <= reached}
        for number, phase in list(rising.items()):
            if phase.rate <= reached or any(resource in full for resource, _ in phase.uses):
                del rising[number]
                speeds[number] = min(1.0, rate / phase.rate)
                for resource, part in phase.uses:
                    free[resource] = max(0.0, free[resource] - speeds[number] * part)
    return speeds


def _demands(phases: Iterable[Phase]) -> dict[Resource, float]:
    """Return the part of each resource that phases use together if every message has a rate of one
    byte per second."""
    demands: dict[Resource, float] = {}
    for phase in phases:
        for resource, part in phase.uses:
            demands[resource] = demands.get(resource, 0.0) + part / phase.rate
    return demands
