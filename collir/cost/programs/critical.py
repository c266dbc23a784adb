"""Why a simulated function takes as long as it does: its critical path, and where its time goes."""

from collections.abc import Iterator
from dataclasses import dataclass

from collir.cost.collectives.phases import Phase
from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.programs.schedule import Interval
from collir.cost.programs.simulation import Simulation


@dataclass(frozen=True)
class CriticalStep:
    """A step of the critical path.

    Attributes:
        number: which step.
        waited_for: the step at whose end it starts; None of the first.
        why: what that has of it: its ``operand``, its ``stream``, or that it is written before it
            and waited for (``order``).
    """

    number: int
    waited_for: int | None
    why: str


def critical_path(simulation: Simulation) -> list[CriticalStep]:
    """The steps that follow each other without a gap from the start to the end, in order.

    No step of it can take less without the function taking less, unless another path is as long.
    """
    spans, steps = simulation.spans, simulation.steps
    if not steps:
        return []
    number = max(range(len(spans)), key=lambda one: spans[one][1])
    found: list[CriticalStep] = []
    while True:
        link = _before(simulation, number)
        found.append(link)
        if link.waited_for is None:
            return found[::-1]
        number = link.waited_for


def _before(simulation: Simulation, number: int) -> CriticalStep:
    spans, steps = simulation.spans, simulation.steps
    start, task = spans[number][0], steps[number].task
    for one in task.after:
        if spans[one][1] == start:
            return CriticalStep(number, one, "operand")
    for one in range(number - 1, -1, -1):
        other = steps[one].task
        if spans[one][1] == start and (other.waited or other.stream == task.stream):
            return CriticalStep(number, one, "stream" if other.stream == task.stream else "order")
    # It starts when one does that is written before it, and waits for what that waits for.
    for one in range(number - 1, -1, -1):
        if spans[one][0] == start > 0:
            return CriticalStep(number, _before(simulation, one).waited_for, "order")
    return CriticalStep(number, None, "")


@dataclass(frozen=True)
class TimeShare:
    """Time on the critical path.

    Attributes:
        cause: ``latency``, ``transfer``, ``reduction``, ``local`` (steps that send nothing), or
            ``shared``: what steps that run beside it take of ports and links.
        resource: of what, if it has a place on the machine; of latency the part is a port.
    """

    cause: str
    resource: Resource | None
    time: float


def time_shares(simulation: Simulation) -> list[TimeShare]:
    """Where the time goes, the most first; together all of it."""
    on_path = {link.number for link in critical_path(simulation)}
    found: dict[tuple[str, Resource | None], float] = {}
    for piece in simulation.pieces:
        for number in on_path & piece.running.keys():
            phase, speed = piece.running[number]
            time = piece.end - piece.start
            for cause, resource, part in _causes(
                phase, speed, simulation.steps[number].sent is None
            ):
                found[cause, resource] = found.get((cause, resource), 0.0) + time * part
            if speed < 1:
                key = "shared", _fullest(piece, phase)
                found[key] = found.get(key, 0.0) + time * (1 - speed)
    each = (TimeShare(*key, time) for key, time in found.items() if time)
    return sorted(each, key=lambda one: -one.time)


def _causes(
    phase: Phase, speed: float, local: bool
) -> Iterator[tuple[str, Resource | None, float]]:
    done = speed / phase.time
    level = None if phase.level is None else (phase.level, ResourceKind.PORT)
    yield "latency", level, done * phase.latency
    yield "transfer", phase.narrowest, done * phase.transfer
    yield "local" if local else "reduction", None, done * phase.work


def _fullest(piece: Interval, phase: Phase) -> Resource | None:
    """Of what a phase uses, what is used up by all that runs."""
    used = dict.fromkeys((resource for resource, _ in phase.uses), 0.0)
    for other, speed in piece.running.values():
        for resource, part in other.uses:
            if resource in used:
                used[resource] += part * speed
    return max(used, key=lambda one: used[one], default=None)
