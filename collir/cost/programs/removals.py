"""The time of a function without some of its collectives."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from collir.cost.programs.local_steps import copied_bytes
from collir.cost.programs.simulation import SimulatedStep, Simulation

Path = tuple[int, ...]
"""The number of a step in its function, or of the loops that it is in and its own, outermost
first."""


@dataclass(frozen=True)
class RemovableCollective:
    """A collective of a function.

    Attributes:
        times: how often it runs, in all loops that it is in.
    """

    path: Path
    step: SimulatedStep
    times: int

    @property
    def alone(self) -> float:
        """Seconds of all of its runs, each alone."""
        return self.times * self.step.task.time


def collectives(simulation: Simulation) -> list[RemovableCollective]:
    """Return the collectives of a function and of its loops that send, in order."""
    return [*_collectives(simulation, (), 1)]


def _collectives(simulation: Simulation, path: Path, times: int) -> Iterator[RemovableCollective]:
    for number, step in enumerate(simulation.program):
        here = (*path, number)
        if step.loop:
            yield from _collectives(step.loop.body, here, times * step.loop.times)
        elif step.pipelined:
            yield from _collectives(step.pipelined.body, here, times)
        elif step.sent and not copied_bytes(step.sent):
            yield RemovableCollective(here, step, times)


def time_without(simulation: Simulation, *paths: Path) -> float:
    """Return the seconds of a function in which some collectives take no time."""
    for path in paths:
        simulation = _without(simulation, path)
    return simulation.time


def _without(simulation: Simulation, path: Path) -> Simulation:
    number, *inner = path
    step = simulation.program[number]
    if step.loop:
        does = replace(step.loop, body=_without(step.loop.body, tuple(inner)))
        phases = () if len(simulation.places) > 1 else does.phases
        made = replace(step, does=does, task=replace(step.task, phases=phases))
    elif step.pipelined:
        does = replace(step.pipelined, body=_without(step.pipelined.body, tuple(inner)))
        phases = step.sites.located(does.phases) if step.sites else does.phases
        made = replace(step, does=does, task=replace(step.task, phases=phases))
    else:
        made = replace(step, task=replace(step.task, phases=()))
    before, after = simulation.program[:number], simulation.program[number + 1 :]
    return replace(simulation, program=(*before, made, *after))
