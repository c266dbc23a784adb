"""Simulation of collectives that share a machine, in exact fractions, from event to event."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from collir.cost.collectives.phases import Phase
from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.programs.schedule import StepTask


def even_phase(time: float, loads: Sequence[float], rate: float = 1.0) -> Phase:
    """Return a phase without latency.

    Args:
        time: seconds of the phase.
        loads: seconds that it keeps the port of each level busy.
        rate: bytes per second of a message.
    """
    uses = tuple(
        (Resource(n, ResourceKind.PORT), min(1.0, load / time))
        for n, load in enumerate(loads)
        if load
    )
    return Phase(transfer=time, uses=uses, rate=rate)


def use_of(phase: Phase, resource: Resource) -> Fraction:
    """Return the fraction of a resource that a phase uses at full speed."""
    return sum((Fraction(part) for used, part in phase.uses if used == resource), Fraction(0))


def shares(phases: Sequence[Phase]) -> list[Fraction]:
    """Return the speeds of phases that run at the same time, relative to each running alone.

    The rates of all messages rise together. A message stops rising when a port that it uses is
    full, or at full speed. A phase that uses no port runs at full speed.
    """
    resources = sorted({resource for phase in phases for resource, _ in phase.uses})
    uses = [[use_of(phase, resource) for resource in resources] for phase in phases]
    rates = [Fraction(phase.rate) for phase in phases]
    speeds = [Fraction(0) if any(use) else Fraction(1) for use in uses]
    rising = {n for n in range(len(phases)) if any(uses[n])}

    def used(resource: int) -> Fraction:
        return sum((speeds[n] * uses[n][resource] for n in range(len(phases))), Fraction(0))

    while rising:
        steps = [(1 - speeds[n]) * rates[n] for n in rising]
        for resource in range(len(resources)):
            pull = sum((uses[n][resource] / rates[n] for n in rising), Fraction(0))
            if pull:
                steps.append((1 - used(resource)) / pull)
        step = min(steps)
        for n in rising:
            speeds[n] += step / rates[n]
        for resource in range(len(resources)):
            if used(resource) == 1:
                rising -= {n for n in rising if uses[n][resource]}
        rising = {n for n in rising if speeds[n] < 1}
    return speeds


def simulated(tasks: Sequence[StepTask]) -> list[tuple[Fraction, Fraction]]:
    """Return the start and end of every task, issued as they are written.

    A task is issued when all tasks before it are issued, and those of them that are waited for or
    that it needs have ended. It starts when it is issued and all tasks issued before it on its
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
            awaited = {n for n in issued if tasks[n].waited} | set(tasks[number].after)
            if any(n not in ends for n in awaited):
                break
            issued.append(number)
        for number in issued:
            ahead = [n for n in issued[:number] if tasks[n].stream == tasks[number].stream]
            if number not in starts and all(n in ends for n in ahead):
                starts[number] = now
        now = _advance(tasks, now, left, starts, ends)
    return [(starts[number], ends[number]) for number in range(len(tasks))]


def _advance(
    tasks: Sequence[StepTask],
    now: Fraction,
    left: dict[int, list[tuple[Phase, Fraction]]],
    starts: Iterable[int],
    ends: dict[int, Fraction],
) -> Fraction:
    """Advance to the end of the first running phase; return its time."""
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
