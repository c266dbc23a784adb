"""The stages of a simulated pipeline: how long each works and waits, and what it keeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from collir.cost.programs.schedule import TimeSpan
from collir.cost.programs.simulation import Simulation


@dataclass(frozen=True)
class Stage:
    """A place of a pipeline.

    Attributes:
        at: the place, as in ``pipe = 2``.
        tasks: the names of its tasks, each with the seconds that it takes alone.
        busy: the seconds that it runs tasks.
        idle: the seconds that it waits between the first start and the last end of all tasks.
        in_flight: the most microbatches whose activations it keeps at a time, counted for each
            chunk of layers: from the start of F to the end of the last of its tasks.
        memory: the most bytes that a device of it holds in the whole function.
        missing: the bytes of these that the device does not have.
    """

    at: str
    tasks: tuple[tuple[str, float], ...]
    busy: float
    idle: float
    in_flight: int
    memory: float
    missing: float = 0.0


@dataclass(frozen=True)
class Stages:
    """A pipeline in a function.

    Attributes:
        loop: the name of the first result of its loop.
        schedule: the name of its schedule; empty if its tasks are listed.
        microbatches: the number of iterations.
        time: the seconds between the first start and the last end of its tasks.
        stages: its places, in order.
    """

    loop: str
    schedule: str
    microbatches: int
    time: float
    stages: tuple[Stage, ...]

    @property
    def bubble(self) -> float:
        """The part of the time of all places that they wait."""
        total = self.time * len(self.stages)
        return sum(stage.idle for stage in self.stages) / total if total else 0.0


def stages_of(simulation: Simulation) -> list[Stages]:
    """Return the pipelines of a function, in order."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for number, step in enumerate(simulation.steps):
        if (task := step.pipelined) is not None:
            numbers.setdefault((task.loop, task.schedule), []).append(number)
    return [_stages(simulation, loop, schedule, own) for (loop, schedule), own in numbers.items()]


def _stages(simulation: Simulation, loop: str, schedule: str, numbers: Sequence[int]) -> Stages:
    spans = simulation.spans
    time = max(spans[n][1] for n in numbers) - min(spans[n][0] for n in numbers)
    lanes: dict[int, list[int]] = {}
    for number in numbers:
        lanes.setdefault(simulation.steps[number].lane, []).append(number)
    stages: list[Stage] = []
    for lane, own in sorted(lanes.items()):
        busy = sum(spans[n][1] - spans[n][0] for n in own)
        alone = {simulation.steps[n].kind: simulation.steps[n].task.time for n in own}
        device = simulation.mesh.machine.slowest_of(simulation.kinds[lane])
        has = device.memory if device else None
        missing = 0.0 if has is None else max(0.0, simulation.peaks[lane] - has)
        stages.append(
            Stage(
                simulation.places[lane],
                tuple(alone.items()),
                busy,
                time - busy,
                _in_flight(simulation, own),
                simulation.peaks[lane],
                missing,
            )
        )
    count = 1 + max(simulation.steps[n].iterations[-1] for n in numbers)
    return Stages(loop, schedule, count, time, tuple(stages))


def _in_flight(simulation: Simulation, numbers: Sequence[int]) -> int:
    """Return the most microbatches of chunks that a place keeps activations of at a time."""
    kept: dict[tuple[str, int], TimeSpan] = {}
    for number in numbers:
        step, (start, end) = simulation.steps[number], simulation.spans[number]
        key = step.kind[1:], step.iterations[-1]
        first, last = kept.get(key, (start, end))
        kept[key] = min(first, start), max(last, end)
    changes = [(start, 1) for start, _ in kept.values()] + [(end, -1) for _, end in kept.values()]
    return max(accumulate(change for _, change in sorted(changes)), default=0)
