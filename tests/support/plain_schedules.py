"""Collectives that run at the same time, the plain way: in exact fractions, from event to event."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

from collir.cost.schedule import Span, Task


def use_of(task: Task, level: int) -> Fraction:
    """Of a level's busiest port, what a task takes at full speed."""
    if not task.time:
        return Fraction(0)
    return min(Fraction(1), Fraction(task.loads[level]) / Fraction(task.time))


def shares(tasks: Sequence[Task]) -> list[Fraction]:
    """How fast each of some tasks goes beside the others.

    All speeds rise together; those that use a full port stay where they are, all others go on, up
    to full speed.
    """
    levels = range(max((len(task.loads) for task in tasks), default=0))
    uses = [[use_of(task, level) for level in levels] for task in tasks]
    speeds = [Fraction(0) for _ in tasks]
    rising = set(range(len(tasks)))
    while rising:
        steps = [1 - speeds[one] for one in rising]
        for level in levels:
            used = sum((speeds[one] * uses[one][level] for one in range(len(tasks))), Fraction(0))
            pull = sum((uses[one][level] for one in rising), Fraction(0))
            if pull:
                steps.append((1 - used) / pull)
        step = min(steps)
        for one in rising:
            speeds[one] += step
        for level in levels:
            used = sum((speeds[one] * uses[one][level] for one in range(len(tasks))), Fraction(0))
            if used == 1:
                rising -= {one for one in rising if uses[one][level]}
        rising = {one for one in rising if speeds[one] < 1}
    return speeds


def earliest(tasks: Sequence[Task], number: int, spans: Sequence[Sequence[Fraction]]) -> Fraction:
    """When a task may start, from the spans of those before it, all of which are known."""
    task = tasks[number]
    found = Fraction(0)
    for other in range(number):
        found = max(found, spans[other][0])
        if tasks[other].waited or tasks[other].stream == task.stream or other in task.after:
            found = max(found, spans[other][1])
    return found


def simulated(tasks: Sequence[Task]) -> list[tuple[Fraction, Fraction]]:
    """When tasks start and end, as they are written.

    One more task at a time: it starts when ``earliest`` says so, and those before it go on beside
    it. What they have done until then stays as it was, so each prefix of the tasks is followed from
    event to event until the next one starts.
    """
    left = {number: Fraction(task.time) for number, task in enumerate(tasks)}
    starts: dict[int, Fraction] = {}
    ends: dict[int, Fraction] = {}
    now = Fraction(0)
    for number in range(len(tasks)):
        needs = [
            other
            for other in starts
            if tasks[other].waited
            or tasks[other].stream == tasks[number].stream
            or other in tasks[number].after
        ]
        while any(other not in ends for other in needs):
            now = _one_event(tasks, now, left, starts, ends)
        starts[number] = now
    while len(ends) < len(tasks):
        now = _one_event(tasks, now, left, starts, ends)
    return [(starts[number], ends[number]) for number in range(len(tasks))]


def _one_event(
    tasks: Sequence[Task],
    now: Fraction,
    left: dict[int, Fraction],
    starts: Iterable[int],
    ends: dict[int, Fraction],
) -> Fraction:
    """Lets time pass until some task that has started ends; returns when that is."""
    running = [number for number in starts if number not in ends]
    speeds = dict(zip(running, shares([tasks[number] for number in running]), strict=True))
    passed = min(left[number] / speeds[number] for number in running)
    for number in running:
        left[number] -= passed * speeds[number]
        if not left[number]:
            ends[number] = now + passed
    return now + passed


def work_done(tasks: Sequence[Task], spans: Sequence[Span], scale: float) -> list[float]:
    """How many of its seconds each task gets done between its start and its end, if these are its
    spans; what is shorter than ``scale`` is no time."""
    times = sorted({time for span in spans for time in span})
    done = [0.0 for _ in tasks]
    for begin, end in pairwise(times):
        if end - begin <= scale:
            continue
        middle = (begin + end) / 2
        running = [n for n, (start, stop) in enumerate(spans) if start < middle < stop]
        for number, speed in zip(running, shares([tasks[n] for n in running]), strict=True):
            done[number] += float(speed) * (end - begin)
    return done
