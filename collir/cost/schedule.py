"""When the collectives of a function run where not all of them are waited for.

Operations start in the order in which they are written: each once its operands are there, once what
ran before it on its stream has ended, and once every collective before it that is waited for has.
There is a stream for each level of the machine; a collective runs on that of the outermost level
it goes through. Those that run at the same time share the ports: each is slowed down by the same
factor as the others until a port is used up, then the others go on alone (max-min fairness).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collir.cost.collective import Collective
from collir.cost.group import Group
from collir.machine import LinkKind


@dataclass(frozen=True)
class Task:
    """A collective to be scheduled.

    Attributes:
        time: seconds that it takes alone.
        loads: seconds that its bytes keep the busiest port of each level busy, outermost first.
        stream: what runs on one stream runs one after the other.
        after: the numbers of the tasks that it needs, all before it.
        waited: whether what is written behind it starts after its end only.
    """

    time: float
    loads: tuple[float, ...]
    stream: int
    after: tuple[int, ...] = ()
    waited: bool = True

    def use(self, level: int) -> float:
        """Of a level's busiest port, what it uses when nothing slows it down; 0 to 1."""
        return min(1.0, self.loads[level] / self.time) if self.time else 0.0


def task_of(
    collective: Collective,
    time: float,
    port_bytes: Sequence[float],
    after: Iterable[int] = (),
    waited: bool = True,
) -> Task:
    """The task of a collective of which a cost model says what it takes alone.

    On levels that are not plain switches it is taken to need all links for all of its time.
    """
    group = Group.of(collective.mesh, collective.axes, collective.at_root)
    loads: list[float] = []
    for level, port, size in zip(group.levels, group.ports, port_bytes, strict=True):
        plain = level.kind is LinkKind.SWITCH and level.taper == 1
        loads.append(min(time, size / port) if plain or not size else time)
    stream = min((digit.level for digit in group.digits), default=0)
    return Task(time, tuple(loads), stream, tuple(after), waited)


Span = tuple[float, float]
"""When a task starts and ends; seconds from the first start."""


def schedule(tasks: Sequence[Task], as_written: bool = True) -> list[Span]:
    """When every task runs.

    Args:
        as_written: False if a task may start before those written before it, where they have to
            wait and it has not: the order of the starts is then a good one to write them in.
    """
    spans: list[Span] = [(math.inf, math.inf)] * len(tasks)
    left: dict[int, float] = {}
    waiting = list(range(len(tasks)))[::-1]
    now = 0.0
    while waiting or left:
        for number in _startable(tasks, waiting, left, spans, now, as_written):
            if waiting[-1] == number:
                waiting.pop()
            else:
                waiting.remove(number)
            spans[number] = (now, math.inf)
            left[number] = tasks[number].time
        speeds = _speeds({number: tasks[number] for number in left})
        passed = min(left[number] / speeds[number] for number in left)
        now += passed
        for number in list(left):
            left[number] -= passed * speeds[number]
            if left[number] <= 1e-12 * tasks[number].time:
                del left[number]
                spans[number] = (spans[number][0], now)
    return spans


def _startable(
    tasks: Sequence[Task],
    waiting: Sequence[int],
    running: Iterable[int],
    spans: Sequence[Span],
    now: float,
    as_written: bool,
) -> list[int]:
    """What can start now, of those ``waiting`` (the next one last)."""
    streams = {tasks[number].stream for number in running}
    if any(tasks[number].waited for number in running):
        return []
    found: list[int] = []
    for number in reversed(waiting):
        task = tasks[number]
        if task.stream not in streams and all(spans[one][1] <= now for one in task.after):
            found.append(number)
            streams.add(task.stream)
            if task.waited:
                break
        elif as_written:
            break
    return found


def _speeds(running: dict[int, Task]) -> dict[int, float]:
    """How fast tasks go that run at the same time: 1 is as fast as alone."""
    speeds: dict[int, float] = {}
    levels = range(max((len(task.loads) for task in running.values()), default=0))
    free = [1.0] * len(levels)
    active = dict(running)
    while active:
        uses = [sum(task.use(level) for task in active.values()) for level in levels]
        full = [level for level in levels if uses[level] > free[level]]
        speed = min((free[level] / uses[level] for level in full), default=1.0)
        slowed = {level for level in full if free[level] / uses[level] <= speed * (1 + 1e-12)}
        held = [n for n, task in active.items() if any(task.use(level) for level in slowed)]
        for number in held or list(active):
            speeds[number] = speed
            task = active.pop(number)
            for level in levels:
                free[level] = max(0.0, free[level] - speed * task.use(level))
    return speeds
