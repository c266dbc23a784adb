"""The predicted steps of a rank, in the order of its program."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collir.cost.collectives.collective import Route
from collir.cost.programs.communicators import coordinate, is_at, place_of
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
    unfolded = _unfolded(simulation, rank, simulation.class_of(rank), (), 0.0)
    for number, step in enumerate(unfolded):
        if number >= MOST_STEPS:
            raise OverflowError(f"a rank runs more than {MOST_STEPS:,} steps")
        yield step


def _unfolded(
    simulation: Simulation, rank: int, runs: int, path: tuple[str, ...], begin: float
) -> Iterator[ExpectedStep]:
    """Yield the steps of a rank of a class, including iterations that the simulation skips."""
    if not simulation.timeline.cuts:
        for _, step in _simulated(simulation, rank, runs, path, begin):
            yield step
        return
    placed = simulation.timeline.placed
    seconds = {x.cut.place: x.cut.seconds for x in simulation.timeline.cuts}
    earlier: dict[int, list[ExpectedStep]] = defaultdict(list)
    length: Counter[int] = Counter()
    for number, step in _simulated(simulation, rank, runs, path, begin):
        loop, iterations = placed[number].path[0], placed[number].iterations
        length[loop] += iterations[:1] == (0,)
        if (skipped := placed[number].skipped) and loop in seconds:
            period = seconds.pop(loop) / skipped
            last = earlier.pop(loop)[-length[loop] :]
            for later in range(1, skipped + 1):
                for x in last:
                    yield replace(x, start=x.start + later * period, end=x.end + later * period)
        if loop in seconds:
            earlier[loop].append(step)
        yield step


def _simulated(
    simulation: Simulation, rank: int, runs: int, path: tuple[str, ...], begin: float
) -> Iterator[tuple[int, ExpectedStep]]:
    """Yield the steps of a rank of a class that are simulated, with their numbers there."""
    mesh, spans = simulation.mesh, simulation.spans
    for number, (step, (start, end)) in enumerate(zip(simulation.steps, spans, strict=True)):
        if runs not in step.task.on or not _takes_part(step, mesh, rank):
            continue
        at = begin + start
        if step.loop is not None:
            period = (end - start) / step.loop.times
            for iteration in range(step.loop.times):
                inside = (*path, f"%{step.result}")
                inner = _unfolded(step.loop.body, rank, 0, inside, at + iteration * period)
                yield from ((number, x) for x in inner)
        elif step.pipelined is not None:
            inner = _unfolded(step.pipelined.body, rank, 0, (*path, step.kind), at)
            yield from ((number, x) for x in inner)
        elif step.sent or end > start:
            own = (*path, *_loops_around(simulation, number), f"%{step.result}")
            yield number, ExpectedStep(step, own, at, begin + end, step.task.time)


def _loops_around(simulation: Simulation, number: int) -> Iterator[str]:
    """Yield the names of the loops that a simulated step is in, if several classes run them."""
    if not simulation.timeline.placed:
        return
    program = simulation.program
    for place in simulation.timeline.placed[number].path[:-1]:
        loop = program[place]
        yield f"%{loop.result}"
        assert loop.loop
        program = loop.loop.body.program


def _takes_part(step: SimulatedStep, mesh: Mesh, rank: int) -> bool:
    """Return whether a rank of a class that runs a step takes part in it."""
    if step.sent is None:
        return is_at(mesh, rank, step.place)
    collective = step.sent.collective
    if not is_at(mesh, rank, place_of(collective)):
        return False
    own = {axis: coordinate(mesh, rank, axis) for axis in collective.axes}
    route = collective.sent_by
    return not isinstance(route, Route) or index_over(mesh, collective.axes, own) in route


def group_of(mesh: Mesh, axes: Sequence[str], rank: int) -> Mapping[str, int]:
    """Return the coordinates that all ranks of the group of a rank over sub-axes have."""
    return {name: coordinate(mesh, rank, name) for name in mesh.by_name if name not in axes}
