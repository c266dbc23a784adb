"""Collectives that run at the same time, the plain way: in exact fractions, from event to event."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from collir.cost.collectives.phases import Phase
from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.programs.schedule import StepTask


def even_phase(time: float, loads: Sequence[float], rate: float = 1.0) -> Phase:
    """A phase of so many seconds, with those that it keeps the port of each level busy, and the
    bytes per second of a message."""
    uses = tuple(
        ((n, ResourceKind.PORT), min(1.0, load / time)) for n, load in enumerate(loads) if load
    )
    return Phase(transfer=time, uses=uses, rate=rate)


def use_of(phase: Phase, resource: Resource) -> Fraction:
    """Of a resource, what a phase takes at full speed."""
    return sum((Fraction(part) for one, part in phase.uses if one == resource), Fraction(0))


def shares(phases: Sequence[Phase]) -> list[Fraction]:
    """How fast each of some phases goes beside the others.

    The rates of all messages rise together; those that use a full port stay where they are, all
    others go on, up to full speed. What uses nothing is as fast as alone.
    """
    resources = sorted({one for phase in phases for one, _ in phase.uses})
    levels = range(len(resources))
    uses = [[use_of(phase, one) for one in resources] for phase in phases]
    rates = [Fraction(phase.rate) for phase in phases]
    speeds = [Fraction(0) if any(use) else Fraction(1) for use in uses]
    rising = {one for one in range(len(phases)) if any(uses[one])}
    while rising:
        steps = [(1 - speeds[one]) * rates[one] for one in rising]
        for level in levels:
            used = sum((speeds[one] * uses[one][level] for one in range(len(phases))), Fraction(0))
            pull = sum((uses[one][level] / rates[one] for one in rising), Fraction(0))
            if pull:
                steps.append((1 - used) / pull)
        step = min(steps)
        for one in rising:
            speeds[one] += step / rates[one]
        for level in levels:
            used = sum((speeds[one] * uses[one][level] for one in range(len(phases))), Fraction(0))
            if used == 1:
                rising -= {one for one in rising if uses[one][level]}
        rising = {one for one in rising if speeds[one] < 1}
    return speeds


def simulated(tasks: Sequence[StepTask]) -> list[tuple[Fraction, Fraction]]:
    """When tasks start and end, as they are written.

    One is issued when all before it are, those of them that are waited for have ended, and so have
    those that it needs; it starts when it is issued, and all that were issued before it on its
    stream have ended.
    """
    left = {
        number: [(p, Fraction(p.time)) for p in task.phases] for number, task in enumerate(tasks)
    }
    issued: list[int] = []
    starts: dict[int, Fraction] = {}
    ends: dict[int, Fraction] = {}
    now = Fraction(0)
    while len(ends) < len(tasks):
        while len(issued) < len(tasks):
            number = len(issued)
            awaited = {one for one in issued if tasks[one].waited} | set(tasks[number].after)
            if any(one not in ends for one in awaited):
                break
            issued.append(number)
        for number in issued:
            ahead = [one for one in issued[:number] if tasks[one].stream == tasks[number].stream]
            if number not in starts and all(one in ends for one in ahead):
                starts[number] = now
        now = _one_event(tasks, now, left, starts, ends)
    return [(starts[number], ends[number]) for number in range(len(tasks))]


def _one_event(
    tasks: Sequence[StepTask],
    now: Fraction,
    left: dict[int, list[tuple[Phase, Fraction]]],
    starts: Iterable[int],
    ends: dict[int, Fraction],
) -> Fraction:
    """Lets time pass until some phase that has started ends; returns when that is."""
    running = [number for number in starts if number not in ends]
    if empty := [number for number in running if not left[number]]:
        ends.update(dict.fromkeys(empty, now))
        return now
    speeds = dict(zip(running, shares([left[number][0][0] for number in running]), strict=True))
    passed = min(left[number][0][1] / speeds[number] for number in running)
    for number in running:
        phase, rest = left[number].pop(0)
        if rest := rest - passed * speeds[number]:
            left[number].insert(0, (phase, rest))
        elif not left[number]:
            ends[number] = now + passed
    return now + passed
