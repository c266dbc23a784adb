"""The schedule of steps that may overlap, by a simulation of events.

Steps are issued in program order: each one once its operands are ready and once every earlier step
that is waited for has ended. An issued step joins the queue of its stream, and starts when all
steps issued before it on that stream have ended; meanwhile later steps may be issued. There is a
stream for each level of the machine, and one for the work of devices themselves; a collective runs
on the stream of the outermost level it goes through. Each class of devices (``classes``) has
streams and an order of issue of its own. A step that several classes take part in starts when it is
first on the streams of all of them. A class issues a step once its own operands are ready: a device
that receives does not wait for what the sender computes.

Steps that run at the same time share ports and links. If a port is full, all messages that it slows
down are equally fast (max-min fairness). Nothing changes between two events, so a simulation costs
time in proportion to its events, not to the simulated time or the number of devices.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

from collir.cost.collectives.phases import Phase
from collir.cost.network.loads import Resource

N = TypeVar("N", float, Fraction)

_SCARCE = 1e-4
"""The part of a resource below which its rest is computed exactly."""


@dataclass(frozen=True)
class StepTask:
    """A step to be scheduled.

    Attributes:
        phases: the phases of the step, in order.
        stream: the number of its stream; the tasks of one stream run one after the other.
        after: the numbers of the earlier tasks whose results it needs.
        waited: True if all later tasks of its classes wait for its end.
        on: the numbers of the classes of devices that take part in it.
    """

    phases: tuple[Phase, ...]
    stream: int
    after: tuple[int, ...] = ()
    waited: bool = True
    on: tuple[int, ...] = (0,)

    @property
    def streams(self) -> "list[Stream]":
        """The streams of its classes."""
        return [(device_class, self.stream) for device_class in self.on]

    @cached_property
    def time(self) -> float:
        """Seconds that it takes if it runs alone."""
        return math.fsum(phase.time for phase in self.phases)

    @property
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
        for resource, time in self.busy.items():
            busiest[resource.level] = max(busiest[resource.level], time)
        return tuple(busiest)


Stream = tuple[int, int]
"""A class of devices, and the number of one of its streams."""

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


class Moment:
    """The state of a schedule in program order, between two events.

    Attributes:
        now: seconds from the first start.
        spans: the time span of every task; infinite where it has not started or ended.
    """

    def __init__(
        self,
        now: float,
        spans: Sequence[TimeSpan],
        waiting: "_Written",
        running: Mapping[int, _Running],
    ):
        self.now, self.spans = now, spans
        self._waiting, self._running = waiting, running

    def issued(self) -> "Iterator[tuple[int, int | None, int | None]]":
        """Yield for each class of devices the next task that it issues, and the task that it waits
        for (or None)."""
        for device_class, issue in self._waiting.classes.items():
            left = issue.issued < len(issue.tasks)
            last = issue.awaited
            awaits = last is not None and self.spans[last][1] > self.now
            following = issue.tasks[issue.issued] if left else None
            yield device_class, following, last if awaits else None

    def queues(self) -> "Iterator[tuple[Stream, Sequence[int]]]":
        """Yield the tasks that wait for each stream, in order."""
        for stream, queue in sorted(self._waiting.queues.items()):
            if queue:
                yield stream, tuple(queue)

    def run(self) -> Iterator[tuple[int, int, float]]:
        """Yield the tasks that run, each with the number of its phase and the seconds left of it at
        full speed."""
        for number, task in self._running.items():
            yield number, task.index, task.left


def schedule(
    tasks: Sequence[StepTask],
    as_written: bool = True,
    watch: Observer | None = None,
    at: Callable[[Moment], bool] | None = None,
) -> list[TimeSpan]:
    """Return the time span of every task.

    Args:
        as_written: False if a task whose operands are ready may be issued before earlier tasks that
            still wait for theirs. The order of the starts is then a good order for the program.
        watch: a function that is called with every interval, in order.
        at: a function that is called between events, in order; the schedule ends where it returns
            True. Only for tasks that are issued as they are written.
    """
    spans: list[TimeSpan] = [(math.inf, math.inf)] * len(tasks)
    running: dict[int, _Running] = {}
    waiting = (_Written if as_written else _Ready)(tasks, spans)
    shared = _Shared()
    now = 0.0
    ended: list[int] = []
    while waiting or running:
        if at and isinstance(waiting, _Written) and at(Moment(now, spans, waiting, running)):
            break
        started = waiting.start(running, ended, now)
        ended = []
        for number in started:
            phases = tasks[number].phases
            spans[number] = (now, math.inf if phases else now)
            if phases:
                shares = any(phase.uses for phase in phases)
                running[number] = _Running(phases, shares, 0, phases[0].time)
            else:
                ended.append(number)
        if ended:
            continue  # these tasks take no time
        # All waiting is for the end of a task, so tasks that share nothing run to the next end.
        if len(running) == 1:
            now, ended = _run_alone(running, now, watch)
        elif watch is None and sum(task.shares for task in running.values()) <= 1:
            now, ended = _run_apart(running, now)
        else:
            now, ended = _run_phase(running, shared, now, watch)
        for number in ended:
            del running[number]
            spans[number] = (spans[number][0], now)
    return spans


def longest_chain(tasks: Sequence[StepTask], times: Sequence[float]) -> float:
    """Return the seconds of the longest chain of tasks, if they took the seconds in ``times``.

    A task follows its operands, and on each class of devices the earlier tasks that are waited for
    or are on its stream.
    """
    waited: dict[int, float] = {}
    streams: dict[Stream, float] = {}
    ends: list[float] = []
    for task, time in zip(tasks, times, strict=True):
        starts = [ends[number] for number in task.after]
        starts += [waited.get(device_class, 0.0) for device_class in task.on]
        starts += [streams.get(stream, 0.0) for stream in task.streams]
        ends.append(max(starts) + time)
        streams |= dict.fromkeys(task.streams, ends[-1])
        waited |= dict.fromkeys(task.on, ends[-1]) if task.waited else {}
    return max(ends, default=0.0)


class _Issue:
    """The tasks of a class of devices, in the order in which it issues them.

    Attributes:
        tasks: their numbers.
        issued: how many have been issued.
        awaited: the last task issued, if it is waited for.
    """

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.issued = 0
        self.awaited: int | None = None


class _Written:
    """The tasks not yet started, which are issued in program order and wait for their streams.

    A task waits for the end of others, so only tasks that wait for just ended ones are tried.
    """

    def __init__(self, tasks: Sequence[StepTask], spans: Sequence[TimeSpan]):
        self.tasks, self.spans = tasks, spans
        self.started = 0
        self.queues: dict[Stream, deque[int]] = {}
        self.busy: set[Stream] = set()
        self.behind: dict[int, list[int]] = {}  # the tasks that wait for the results of a task
        self.classes: dict[int, _Issue] = {}
        for number, task in enumerate(tasks):
            for device_class in task.on:
                self.classes.setdefault(device_class, _Issue()).tasks.append(number)

    def __bool__(self) -> bool:
        return self.started < len(self.tasks)

    def start(self, running: Iterable[int], ended: Iterable[int], now: float) -> list[int]:
        """Start the tasks that can start now, and return them."""
        freed = [stream for number in ended for stream in self.tasks[number].streams]
        self.busy.difference_update(freed)
        heads = {self.queues[stream][0] for stream in freed if self.queues[stream]}
        heads.update(waiting for number in ended for waiting in self.behind.pop(number, ()))
        classes = {c for number in ended for c in self.tasks[number].on}
        for device_class in classes if self.started else self.classes:
            heads.update(self._issue(device_class, self.classes[device_class], now))
        started = [number for number in sorted(heads) if self._is_ready(number, now)]
        for number in started:
            for stream in self.tasks[number].streams:
                self.queues[stream].popleft()
                self.busy.add(stream)
        self.started += len(started)
        return started

    def _is_ready(self, number: int, now: float) -> bool:
        """Return whether a task is the first on all its streams, and its operands are there."""
        for stream in self.tasks[number].streams:
            queue = self.queues.get(stream)
            if not queue or queue[0] != number or stream in self.busy:
                return False
        for needed in reversed(self.tasks[number].after):  # the last ones end last
            if self.spans[needed][1] > now:
                self.behind.setdefault(needed, []).append(number)
                return False
        return True

    def _issue(self, device_class: int, issue: _Issue, now: float) -> Iterator[int]:
        """Issue the tasks that a class can issue now, and yield the ones that are first on a
        stream."""
        while issue.issued < len(issue.tasks):
            number = issue.tasks[issue.issued]
            task = self.tasks[number]
            if issue.awaited is not None and self.spans[issue.awaited][1] > now:
                return
            for needed in reversed(task.after):  # the last ones end last
                if self.spans[needed][1] > now and device_class in self.tasks[needed].on:
                    return
            queue = self.queues.setdefault((device_class, task.stream), deque())
            queue.append(number)
            issue.awaited = number if task.waited else None
            issue.issued += 1
            if queue[0] == number:
                yield number


class _Ready:
    """The tasks not yet started, which start as soon as possible; ties in program order."""

    def __init__(self, tasks: Sequence[StepTask], spans: Sequence[TimeSpan]):
        self.tasks, self.spans = tasks, spans
        self.left = len(tasks)
        self.under_way: list[int] = []
        self.missing = [len(task.after) for task in tasks]
        self.users: dict[int, list[int]] = {}
        self.ready: dict[tuple[Stream, ...], list[int]] = {}  # heaps of numbers, by streams
        for number, task in enumerate(tasks):
            for needed in task.after:
                self.users.setdefault(needed, []).append(number)
            if not task.after:
                self._add_ready(number)

    def __bool__(self) -> bool:
        return self.left > 0

    def _add_ready(self, number: int) -> None:
        heapq.heappush(self.ready.setdefault(tuple(self.tasks[number].streams), []), number)

    def start(self, running: Iterable[int], _: Iterable[int], now: float) -> list[int]:
        """Start the tasks that can start now, and return them."""
        for ended in [number for number in self.under_way if self.spans[number][1] <= now]:
            self.under_way.remove(ended)
            for user in self.users.get(ended, ()):
                self.missing[user] -= 1
                if not self.missing[user]:
                    self._add_ready(user)
        busy = {stream for number in running for stream in self.tasks[number].streams}
        waiting = {c for n in running if self.tasks[n].waited for c in self.tasks[n].on}
        started: list[int] = []
        for heap in sorted(heap for heap in self.ready.values() if heap):
            task = self.tasks[heap[0]]
            if busy.isdisjoint(task.streams) and waiting.isdisjoint(task.on):
                started.append(heapq.heappop(heap))
                busy.update(task.streams)
                waiting.update(task.on if task.waited else ())
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
    running: dict[int, _Running], shared: "_Shared", now: float, watch: Observer | None
) -> tuple[float, list[int]]:
    """Run all tasks to the next end of a phase; return that time and the tasks that end then."""
    speeds = shared.speeds({number: task.phase for number, task in running.items()})
    passed = min([task.left / speeds[number] for number, task in running.items()])
    if watch and passed:
        phases = {number: (task.phase, speeds[number]) for number, task in running.items()}
        watch(Interval(now, now + passed, phases))
    ended = [n for n, task in running.items() if task.advance_in_phase(passed * speeds[n])]
    return now + passed, ended


class _Shared:
    """The resources shared by the running phases, and the speeds of these.

    When a phase begins or ends, only the speeds of phases that share resources with it, or full
    resources with such phases, change.
    """

    def __init__(self) -> None:
        self.phases: dict[int, Phase] = {}
        self.users: dict[Resource, dict[int, float]] = {}
        self.known: dict[int, float] = {}

    def speeds(self, phases: Mapping[int, Phase]) -> Mapping[int, float]:
        """Return the speeds of the phases that run now; see ``fair_speeds``."""
        changed: set[Resource] = set()
        for number, phase in [*self.phases.items()]:
            if phases.get(number) is not phase:
                del self.phases[number], self.known[number]
                for resource, _ in phase.uses:
                    self.users[resource].pop(number, None)
                    changed.add(resource)
        for number, phase in phases.items():
            if number not in self.phases:
                self.phases[number], self.known[number] = phase, 1.0
                for resource, part in phase.uses:
                    users = self.users.setdefault(resource, {})
                    users[number] = users.get(number, 0.0) + part
                    changed.add(resource)
        self.known |= fair_speeds(self._connected(changed))
        return self.known

    def _connected(self, resources: set[Resource]) -> dict[int, Phase]:
        """Return the phases that use some resources, and the phases connected to them by full
        resources."""
        connected: dict[int, Phase] = {}
        left, seen = [*resources], set(resources)
        while left:
            for number in self.users[left.pop()]:
                if number not in connected:
                    phase = connected[number] = self.phases[number]
                    for resource, _ in phase.uses:
                        if resource not in seen and sum(self.users[resource].values()) > 1:
                            seen.add(resource)
                            left.append(resource)
        return connected


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
    rates = _fair_rates(phases, float, 1e-12)
    exact = None if rates else _fair_rates(phases, Fraction, Fraction(0))
    return speeds | {n: float(speed) for n, speed in (rates or exact or {}).items()}


def _fair_rates(
    phases: Mapping[int, Phase], number: Callable[[float], N], tolerance: N
) -> dict[int, N] | None:
    """Return the fair speeds of the phases that use resources; None where the precision of the
    numbers is too low, as almost nothing is left of a resource."""
    one = number(1.0)
    speeds: dict[int, N] = {}
    rising = {n: phase for n, phase in phases.items() if phase.uses}
    uses = {
        n: [(resource, number(part)) for resource, part in phase.uses]
        for n, phase in rising.items()
    }
    free = {resource: one for parts in uses.values() for resource, _ in parts}
    while rising:
        demands: dict[Resource, N] = {}
        for n, phase in rising.items():
            for resource, part in uses[n]:
                use = part / number(phase.rate)
                demands[resource] = demands[resource] + use if resource in demands else use
        if tolerance and any(free[resource] < _SCARCE for resource in demands):
            return None
        limits = {resource: free[resource] / use for resource, use in demands.items() if use}
        rate = min((*limits.values(), *(number(phase.rate) for phase in rising.values())))
        reached = rate * (1 + tolerance)
        full = {resource for resource, limit in limits.items() if limit <= reached}
        for n, phase in list(rising.items()):
            if phase.rate <= reached or any(resource in full for resource, _ in uses[n]):
                del rising[n]
                speeds[n] = min(one, rate / number(phase.rate))
                for resource, part in uses[n]:
                    free[resource] = max(0 * one, free[resource] - speeds[n] * part)
    return speeds
