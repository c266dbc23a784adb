"""When the steps of a function run where not all of them are waited for: a simulation by events.

Operations are issued in the order in which they are written: each once its operands are there, and
once every step before it that is waited for has ended. It starts then, or once what was issued
before it on its stream has ended: behind that it is queued, and what is written behind it goes on.
There is a stream for each level of the machine, and one for what devices do by themselves; a
collective runs on that of the outermost level it goes through. Those that run at the same time
share ports and links: where a port is full, all messages that it slows down are equally fast
(max-min fairness). What happens between two events is computed at once, so a simulation costs what
its events do, not what its time or its devices are.
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
        phases: what it does, one after the other.
        stream: what runs on one stream runs one after the other.
        after: the numbers of the tasks that it needs, all before it.
        waited: whether what is written behind it starts after its end only.
    """

    phases: tuple[Phase, ...]
    stream: int
    after: tuple[int, ...] = ()
    waited: bool = True

    @cached_property
    def time(self) -> float:
        """Seconds that it takes alone."""
        return math.fsum(phase.time for phase in self.phases)

    @cached_property
    def busy(self) -> dict[Resource, float]:
        """Seconds that it keeps each resource busy."""
        found: dict[Resource, float] = {}
        for phase in self.phases:
            for resource, part in phase.uses:
                found[resource] = found.get(resource, 0.0) + part * phase.time
        return found

    def loads(self, levels: int) -> tuple[float, ...]:
        """Seconds that it keeps the busiest resource of each level busy, outermost first."""
        found = [0.0] * levels
        for (level, _), time in self.busy.items():
            found[level] = max(found[level], time)
        return tuple(found)


TimeSpan = tuple[float, float]
"""When a task starts and ends; seconds from the first start."""


@dataclass(frozen=True)
class Interval:
    """A time in which nothing changes: what runs (task, phase) and how fast (1 is as alone)."""

    start: float
    end: float
    running: Mapping[int, tuple[Phase, float]]


Observer = Callable[[Interval], None]


@dataclass
class _Running:
    """A task under way: in which phase, the seconds left of that at full speed, and whether there
    is anything that it may have to share."""

    phases: tuple[Phase, ...]
    fair_speeds: bool
    index: int = 0
    left: float = 0.0

    @property
    def phase(self) -> Phase:
        return self.phases[self.index]

    def rest(self) -> float:
        """Seconds that are left at full speed."""
        return self.left + math.fsum(phase.time for phase in self.phases[self.index + 1 :])

    def go_on(self, seconds: float) -> bool:
        """Goes on for so many seconds at full speed, through phases; whether that was all."""
        if seconds >= self.rest() * (1 - 1e-12):
            return True
        while seconds >= self.left and self.index + 1 < len(self.phases):
            seconds -= self.left
            self.index += 1
            self.left = self.phase.time
        self.left -= seconds
        return False

    def done(self, seconds: float) -> bool:
        """Goes on for so many seconds at full speed, at most the phase; whether that was all."""
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
    """When every task runs.

    Args:
        as_written: False if a task may be issued before those written before it, where they have
            to wait for operands and it has not: the order of the starts is then a good one to write
            them in.
        watch: called with every piece of time, in order.
    """
    spans: list[TimeSpan] = [(math.inf, math.inf)] * len(tasks)
    running: dict[int, _Running] = {}
    waiting = (_Written if as_written else _Ready)(tasks, spans)
    now = 0.0
    while waiting or running:
        started = waiting.startable(running, now)
        for number in started:
            phases = tasks[number].phases
            spans[number] = (now, math.inf if phases else now)
            if phases:
                fair_speeds = any(phase.uses for phase in phases)
                running[number] = _Running(phases, fair_speeds, 0, phases[0].time)
        if not all(tasks[number].phases for number in started):
            continue  # what takes no time has ended
        # Whatever waits does so for the end of a task, so what shares nothing runs to its end.
        if len(running) == 1:
            now, ended = _alone(running, now, watch)
        elif watch is None and sum(task.shares for task in running.values()) <= 1:
            now, ended = _apart(running, now)
        else:
            now, ended = _event(running, now, watch)
        for number in ended:
            del running[number]
            spans[number] = (spans[number][0], now)
    return spans


def longest_chain(tasks: Sequence[StepTask], times: Sequence[float]) -> float:
    """The seconds of the longest chain of tasks, if each took as long as ``times`` say: behind its
    operands, what is waited for before it, and what runs before it on its stream."""
    waited = 0.0
    streams: dict[int, float] = {}
    ends: list[float] = []
    for task, time in zip(tasks, times, strict=True):
        before = (waited, streams.get(task.stream, 0.0), *(ends[one] for one in task.after))
        ends.append(max(before) + time)
        streams[task.stream] = ends[-1]
        waited = ends[-1] if task.waited else waited
    return max(ends, default=0.0)


class _Written:
    """Tasks that are issued in the order in which they are written, to wait for their streams."""

    def __init__(self, tasks: Sequence[StepTask], spans: Sequence[TimeSpan]):
        self.tasks, self.spans = tasks, spans
        self.issued = self.started = 0
        self.awaited: int | None = None
        self.queues: dict[int, deque[int]] = {}

    def __bool__(self) -> bool:
        return self.started < len(self.tasks)

    def startable(self, running: Iterable[int], now: float) -> list[int]:
        """What can start now; it is taken to."""
        while self.issued < len(self.tasks) and self._can_be_issued(now):
            task = self.tasks[self.issued]
            self.queues.setdefault(task.stream, deque()).append(self.issued)
            self.awaited = self.issued if task.waited else None
            self.issued += 1
        busy = {self.tasks[number].stream for number in running}
        found = [q.popleft() for stream, q in self.queues.items() if q and stream not in busy]
        self.started += len(found)
        return found

    def _can_be_issued(self, now: float) -> bool:
        if self.awaited is not None and self.spans[self.awaited][1] > now:
            return False
        return all(self.spans[one][1] <= now for one in self.tasks[self.issued].after)


class _Ready:
    """Tasks that start as soon as they can, those written first before others."""

    def __init__(self, tasks: Sequence[StepTask], spans: Sequence[TimeSpan]):
        self.tasks, self.spans = tasks, spans
        self.left = len(tasks)
        self.under_way: list[int] = []
        self.missing = [len(task.after) for task in tasks]
        self.users: dict[int, list[int]] = {}
        self.ready: dict[int, list[int]] = {}  # on each stream, those written first in front
        for number, task in enumerate(tasks):
            for one in task.after:
                self.users.setdefault(one, []).append(number)
            if not task.after:
                self._is_ready(number)

    def __bool__(self) -> bool:
        return self.left > 0

    def _is_ready(self, number: int) -> None:
        heapq.heappush(self.ready.setdefault(self.tasks[number].stream, []), number)

    def startable(self, running: Iterable[int], now: float) -> list[int]:
        """What can start now; it is taken to."""
        for number in [one for one in self.under_way if self.spans[one][1] <= now]:
            self.under_way.remove(number)
            for user in self.users.get(number, ()):
                self.missing[user] -= 1
                if not self.missing[user]:
                    self._is_ready(user)
        busy = {self.tasks[number].stream for number in running}
        found: list[int] = []
        if any(self.tasks[number].waited for number in running):
            return found
        first = [queue for stream, queue in self.ready.items() if queue and stream not in busy]
        for queue in sorted(first):
            found.append(heapq.heappop(queue))
            if self.tasks[found[-1]].waited:
                break
        self.under_way += found
        self.left -= len(found)
        return found


def _alone(
    running: dict[int, _Running], now: float, watch: Observer | None
) -> tuple[float, list[int]]:
    """Until the one task that runs ends: when that is, and which it is."""
    ((number, task),) = running.items()
    end = now + task.rest()
    if watch:
        while True:
            phase, until = task.phase, now + task.left
            last = task.done(task.left)
            watch(Interval(now, end if last else until, {number: (phase, 1.0)}))
            if last:
                break
            now = until
    return end, [number]


def _apart(running: dict[int, _Running], now: float) -> tuple[float, list[int]]:
    """Until the next of some tasks ends, of which none slows another down."""
    passed = min(task.rest() for task in running.values())
    return now + passed, [n for n, task in running.items() if task.go_on(passed)]


def _event(
    running: dict[int, _Running], now: float, watch: Observer | None
) -> tuple[float, list[int]]:
    """Until the next phase ends: when that is, and which tasks end then."""
    speeds = fair_speeds({number: task.phase for number, task in running.items()})
    passed = min(task.left / speeds[number] for number, task in running.items())
    if watch and passed:
        at = {number: (task.phase, speeds[number]) for number, task in running.items()}
        watch(Interval(now, now + passed, at))
    ended = [n for n, task in running.items() if task.done(passed * speeds[n])]
    return now + passed, ended


def fair_speeds(phases: Mapping[int, Phase]) -> dict[int, float]:
    """How fast phases go that run at the same time: 1 is as fast as alone.

    The rates of all messages rise together, until one is as fast as alone, or a port is full: then
    those that use it stay as they are (max-min fairness, by progressive filling).
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
        pull = _pull(rising.values())
        fullest = {resource: free[resource] / one for resource, one in pull.items() if one}
        rate = min((*fullest.values(), *(phase.rate for phase in rising.values())))
        most = rate * (1 + 1e-12)
        full = {resource for resource, one in fullest.items() if one <= most}
        for number, phase in list(rising.items()):
            if phase.rate <= most or any(resource in full for resource, _ in phase.uses):
                del rising[number]
                speeds[number] = min(1.0, rate / phase.rate)
                for resource, part in phase.uses:
                    free[resource] = max(0.0, free[resource] - speeds[number] * part)
    return speeds


def _pull(phases: Iterable[Phase]) -> dict[Resource, float]:
    """What phases use of each resource together, for one byte per second of every message."""
    pull: dict[Resource, float] = {}
    for phase in phases:
        for resource, part in phase.uses:
            pull[resource] = pull.get(resource, 0.0) + part / phase.rate
    return pull
