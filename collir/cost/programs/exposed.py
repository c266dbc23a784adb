"""The time of a device, divided into computing, sending without computing, and waiting."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.layout import Mesh

_ROUNDING = 1e-9
"""The part of a time that is an error of rounding."""


@dataclass
class Sending:
    """The collectives of one kind over the same axes: their seconds, and the seconds of these in
    which the device does not compute."""

    total: float = 0.0
    exposed: float = 0.0


@dataclass
class Spent:
    """The time of a device, divided by use.

    Attributes:
        time: seconds from the first step to the last.
        compute: seconds in which it computes.
        sending: the collectives, by kind and axes, such as ``all_reduce over model``.
    """

    time: float
    compute: float = 0.0
    sending: dict[str, Sending] = field(default_factory=dict[str, Sending])

    @property
    def exposed(self) -> float:
        """The seconds in which it sends and does not compute."""
        return sum(each.exposed for each in self.sending.values())

    @property
    def idle(self) -> float:
        """The seconds in which it waits for others, or for its host."""
        idle = self.time - self.compute - self.exposed
        return idle if idle > _ROUNDING * self.time else 0.0

    def add(self, other: "Spent", times: float = 1.0) -> None:
        """Add the time of a part, without its total."""
        self.compute += times * other.compute
        for name, sending in other.sending.items():
            own = self.sending.setdefault(name, Sending())
            own.total += times * sending.total
            own.exposed += times * sending.exposed


def spent(simulation: Simulation, place: int = 0) -> Spent:
    """Return how a device of a class spends the time of a program.

    Sends between the stages of a pipeline are part of its waiting.
    """
    total = Spent(simulation.time)
    inner: dict[int, tuple[Spent, float]] = {}
    busy: list[tuple[float, float]] = []
    sent: list[tuple[float, float, str]] = []
    for step, (start, end) in zip(simulation.steps, simulation.spans, strict=True):
        if place not in step.task.on:
            continue
        body = step.loop or step.pipelined
        if body is not None:
            times = float(step.loop.times) if step.loop else 1.0
            known, count = inner.get(id(body), (None, 0.0))
            inner[id(body)] = known or spent(body.body), count + times
            busy.append((start, end))
        elif step.sent is None:
            total.compute += end - start
            busy.append((start, end))
        elif not step.of_pipeline:
            sent.append((start, end, _name(step, simulation.mesh)))
    for part, times in inner.values():
        total.add(part, times)
    _add_exposed(total, sorted(busy), sorted(sent))
    return total


def _name(step: SimulatedStep, mesh: Mesh) -> str:
    assert step.sent is not None
    axes = dict.fromkeys(mesh.by_name[sub].axis for sub in step.sent.collective.axes)
    return f"{step.kind} over {', '.join(axes)}"


def _add_exposed(
    found: Spent, busy: Sequence[tuple[float, float]], sent: Iterable[tuple[float, float, str]]
) -> None:
    """Add collectives. If several run at the same time, the first one counts."""
    ends = [end for _, end in busy]
    until = 0.0
    for start, end, name in sent:
        own = found.sending.setdefault(name, Sending())
        own.total += end - start
        at = max(start, until)
        until = max(until, end)
        number = bisect_right(ends, at)
        while at < end:
            following = busy[number] if number < len(busy) else (end, end)
            own.exposed += max(0.0, min(following[0], end) - at)
            at, number = max(at, following[1]), number + 1
