"""A lower and an upper bound of the time of a program whose steps may overlap.

Each step starts when the steps that it waits for have ended (``overlaps``). If no two steps that
use one port can run at the same time, the time is the length of the longest chain (``makespan``).
Otherwise there are bounds:

- **at least**, every step takes the time that it takes alone;
- **at most**, a step that shares ports is slowed down by all steps that may run beside it, as
  ``contention`` says. The order of the program, not the times, says which steps these are.

A program that devices at several places run has its loops written out, as they are simulated.
"""

from typing import NamedTuple

import sympy

from collir.cost.formulas.contention import PortSharingStep, slowed
from collir.cost.formulas.functions import Expr, FormulaMissingError, Larger, expression
from collir.cost.formulas.makespan import makespan
from collir.cost.formulas.overlaps import ended_before, sharing
from collir.cost.formulas.sent import sent_seconds
from collir.cost.formulas.times import local_seconds
from collir.cost.model import StepCost
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.loops import TaskList
from collir.cost.programs.schedule import StepTask
from collir.cost.programs.simulation import SimulatedStep, Simulation, nodes_of

MOST_STEPS = 3000
"""The most steps of a program in one list."""


class TimeBounds(NamedTuple):
    """A lower and an upper bound of seconds."""

    least: Expr
    most: Expr

    def times(self, count: Expr) -> "TimeBounds":
        """Return the bounds multiplied by a count."""
        return TimeBounds(count * self.least, count * self.most)


class BoundedTimes:
    """The known times of programs and steps; microbatches of a pipeline share their steps."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, tuple[str, ...]], TimeBounds] = {}
        self.sent: dict[int, Expr] = {}

    def of(self, simulation: Simulation) -> TimeBounds:
        """Return bounds of the seconds of a program, which are equal where its time is a formula.
        They are at least the times of the longest chain and of the issue of all steps by a host.

        Raises:
            FormulaMissingError: the time of a step is no formula, or there are too many steps.
        """
        steps, tasks = listed(simulation)
        behind = ended_before(tasks)
        zero = TimeBounds(sympy.S.Zero, sympy.S.Zero)
        times = [self.of_step(step, simulation) if step else zero for step in steps]
        least = most = makespan([x.least for x in times], behind)
        shared = sharing(tasks, behind)
        if any(shared) or any(x.least != x.most for x in times):
            runs = [
                PortSharingStep(
                    task.streams[0], x.most, self._sent_in(step, simulation), _is_send(step)
                )
                for step, task, x in zip(steps, tasks, times, strict=True)
            ]
            slower = (
                slowed(run, [[runs[n] for n in others] for others in ports])
                for run, ports in zip(runs, shared, strict=True)
            )
            most = makespan([*slower], behind)
        issued = [x for n in range(len(simulation.places)) if (x := _issued_on(simulation, n))]
        if issued:
            return TimeBounds(Larger(least, *issued), Larger(most, *issued))
        return TimeBounds(least, most)

    def of_step(self, step: SimulatedStep, simulation: Simulation) -> TimeBounds:
        """Return bounds of the seconds of a step, if nothing else runs.

        Raises:
            FormulaMissingError: see ``of``.
        """
        key = id(step.does), step.kinds
        if key not in self.known:
            self.known[key] = self._new(step, simulation)
        return self.known[key]

    def _sent_in(self, step: SimulatedStep | None, simulation: Simulation) -> Expr:
        """Return the seconds in which a step sends; in a loop or a task, those of its steps."""
        if step is None or isinstance(step.does, LocalStep):
            return sympy.S.Zero
        if step.sent:
            return self.of_step(step, simulation).least
        if id(step.does) not in self.sent:
            inner = step.loop or step.pipelined
            assert inner is not None
            body = inner.body
            all_of_them = sympy.Add(*(self._sent_in(x, body) for x in body.program))
            times = expression(step.loop.times) if step.loop else sympy.S.One
            self.sent[id(step.does)] = times * all_of_them
        return self.sent[id(step.does)]

    def _new(self, step: SimulatedStep, simulation: Simulation) -> TimeBounds:
        if step.loop is not None:
            return self.of(step.loop.body).times(expression(step.loop.times))
        if step.pipelined is not None:
            return self.of(step.pipelined.body)
        if isinstance(step.does, StepCost):
            seconds = sent_seconds(step.does, simulation.model)
        else:
            assert isinstance(step.does, LocalStep)
            seconds = local_seconds(step.does, simulation.mesh.machine, step.kinds)
        return TimeBounds(seconds, seconds)


def _is_send(step: SimulatedStep | None) -> bool:
    return step is not None and step.sent is not None


def listed(simulation: Simulation) -> tuple[list[SimulatedStep | None], list[StepTask]]:
    """Return the steps of a program with their tasks, in order. If devices at several places run
    it, loops are written out, with tasks that have no step where loops begin and iterations end.

    Raises:
        FormulaMissingError: there are too many.
    """
    program = simulation.program
    if len(simulation.places) == 1 or not any(step.loop for step in program):
        steps, tasks = list[SimulatedStep | None](program), [step.task for step in program]
    else:
        nodes = nodes_of(program)
        counts = {n: int(step.loop.times) for n, step in enumerate(program) if step.loop}
        placed = TaskList(nodes, counts).placed
        steps, tasks = [_step_at(simulation, p.path) for p in placed], [p.task for p in placed]
    if len(tasks) > MOST_STEPS:
        raise FormulaMissingError(f"it is a list of {len(tasks)} steps, more than {MOST_STEPS}")
    return steps, tasks


def _step_at(simulation: Simulation, path: tuple[int, ...]) -> SimulatedStep | None:
    """Return the step at a place in a program; None for a loop."""
    step = simulation.program[path[0]]
    for place in path[1:]:
        assert step.loop is not None
        step = step.loop.body.program[place]
    return None if step.loop else step


def _issued_on(simulation: Simulation, device_class: int) -> Expr | None:
    """Return the seconds in which the host of a class issues its kernels and collectives."""
    device = simulation.mesh.machine.slowest_of(simulation.kinds[device_class])
    if device is None or not device.execution.issue:
        return None
    return device.execution.issue * _issues_on(simulation, device_class)


def _issues_on(simulation: Simulation, device_class: int) -> Expr:
    """Return the number of kernels and collectives that a class runs; see ``Simulation``."""
    steps = [step for step in simulation.program if device_class in step.task.on]
    loops = (s.loop for s in steps if s.loop)
    inside = (expression(x.times) * _issues_on(x.body, device_class) for x in loops)
    return sympy.Add(sum(step.issues for step in steps), *inside)
