"""What a rank is predicted to run, step by step in the order of its program."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from collir.cost.collectives.collective import Collective
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.layout.mesh import Mesh, index_over

MOST_STEPS = 1_000_000
"""The most steps of a rank: a program that runs more is not unfolded."""


@dataclass(frozen=True)
class ExpectedStep:
    """A step, once for each iteration of the loops that it is in.

    Attributes:
        path: the names of the loops and tasks that it is in, and its own.
        start, end: when it runs in the simulation, in seconds.
        alone: the seconds that it takes if nothing else runs.
    """

    step: SimulatedStep
    path: tuple[str, ...]
    start: float
    end: float
    alone: float

    @property
    def kind(self) -> str:
        """The name of its operation."""
        return self.step.kind

    @property
    def size(self) -> float:
        """The bytes of a collective's full buffer."""
        return self.step.size

    @property
    def axes(self) -> Sequence[str]:
        """The sub-axes of a collective."""
        return self.step.sent.collective.axes if self.step.sent else ()

    @property
    def operations(self) -> float:
        """The operations of the products in it, on one device; 0 if there are none."""
        does = self.step.does
        if not isinstance(does, LocalStep):
            return 0.0
        inner = sum(count for _, count, _ in does.inner)
        return inner or (sum(count for _, count in does.work) if does.product else 0.0)


def expected_steps(simulation: Simulation, rank: int) -> Iterator[ExpectedStep]:
    """Yield the steps of a rank that take time, in the order of the program; loops are unfolded.

    Raises:
        OverflowError: there are more than ``MOST_STEPS``.
    """
    coordinate = coordinates(simulation.mesh, rank)
    for number, step in enumerate(_unfolded(simulation, class_of(simulation, coordinate), (), 0.0)):
        if number >= MOST_STEPS:
            raise OverflowError(f"a rank runs more than {MOST_STEPS:,} steps")
        if step.step.sent is None or _takes_part(step.step.sent.collective, coordinate):
            yield step


def _takes_part(collective: Collective, coordinate: Mapping[str, int]) -> bool:
    """Return whether a device of a class that runs a collective takes part in it."""
    mesh, base = collective.mesh, coordinates(collective.mesh, collective.base)
    if any(coordinate[name] != base[name] for name in collective.at_root):
        return False
    return collective.route is None or index_over(mesh, collective.axes, coordinate) in (
        collective.route
    )


def _unfolded(
    simulation: Simulation, runs: int, path: tuple[str, ...], begin: float
) -> Iterator[ExpectedStep]:
    for step, (start, end) in zip(simulation.steps, simulation.spans, strict=True):
        if runs not in step.task.on:
            continue
        at = begin + start
        if step.loop is not None and end > start:
            each = (end - start) / step.loop.times
            for number in range(step.loop.times):
                inside = (*path, f"%{step.result}")
                yield from _unfolded(step.loop.body, 0, inside, at + number * each)
        elif step.pipelined is not None:
            yield from _unfolded(step.pipelined.body, 0, (*path, step.kind), at)
        elif step.sent or end > start:
            yield ExpectedStep(step, (*path, f"%{step.result}"), at, begin + end, step.task.time)


def coordinates(mesh: Mesh, rank: int) -> Mapping[str, int]:
    """Return the coordinates of a rank on the sub-axes of a mesh."""
    return {name: rank // axis.stride % axis.size for name, axis in mesh.by_name.items()}


def class_of(simulation: Simulation, coordinate: Mapping[str, int]) -> int:
    """Return the class of the devices with a coordinate."""
    for number, place in enumerate(simulation.places):
        entries = [entry.split(" = ") for entry in place.split(", ") if " = " in entry]
        if all(_is_at(simulation.mesh, coordinate, name, int(index)) for name, index in entries):
            return number
    return 0


def _is_at(mesh: Mesh, coordinate: Mapping[str, int], name: str, index: int) -> bool:
    axes = mesh.named(name) or ()
    return index_over(mesh, axes, coordinate) == index


def group_of(mesh: Mesh, axes: Sequence[str], rank: int) -> Mapping[str, int]:
    """Return the coordinates that all ranks of the group of a rank over sub-axes have."""
    own = coordinates(mesh, rank)
    return {name: index for name, index in own.items() if name not in axes}
