"""A simulation as a chart: the span of each step, the ports in use, and the memory held."""

from collections.abc import Iterator
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.options import CostOptions
from collir.cost.programs.critical import critical_path
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.targets.reports.cost import title_of
from collir.targets.reports.simulate import lane_name, resource_name


class GanttTarget(CostOptions, Target):
    """A simulation as a Gantt chart, in SVG (needs matplotlib: `pip install 'collir[plot]'`).

    The chart has a lane for each stream: those of the levels of the machine, and that of a
    device by itself. Steps on the critical path have a black edge, the others a white edge; a
    short step is named by its result. Below are the used share of each port, link and
    interconnect, if something is sent, and the memory that a device holds.
    """

    name = "gantt"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        simulations = simulate(module, self.cost_model())
        output.write(charts([simulation for simulation in simulations if simulation.time]))


def charts(simulations: list[Simulation]) -> str:
    """Return the charts of simulations, below each other, as SVG.

    Raises:
        DiagnosticError: matplotlib is not installed, or nothing takes time.
    """
    if not simulations:
        raise DiagnosticError(Diagnostic("there is no function with steps that take time to draw"))
    try:
        from collir.targets.reports.plots import Bar, Timeline, timelines
    except ImportError as error:
        message = "a chart needs matplotlib: install it with `pip install 'collir[plot]'`"
        raise DiagnosticError(Diagnostic(message)) from error

    def left_out(simulation: Simulation) -> Iterator[Bar]:
        """Yield the bars that stand for iterations that are not simulated, as they recur."""
        inside = (step for step in simulation.steps if step.iterations and step.task.phases)
        lanes = dict.fromkeys(lane_name(simulation, step) for step in inside)
        for found in simulation.timeline.cuts:
            texts = f"{found.cut.skipped} iterations", f"{found.cut.skipped}x"
            end = found.start + found.cut.seconds
            for lane in lanes:
                yield Bar(lane, found.start, end, texts, "more iterations", False)

    def timeline(simulation: Simulation) -> Timeline:
        path = {link.number for link in critical_path(simulation)}
        bars = [
            Bar(
                lane_name(simulation, step),
                *span,
                _texts(simulation, step),
                step.kind[0] if step.pipelined else step.kind,
                number in path,
            )
            for number, (step, span) in enumerate(
                zip(simulation.steps, simulation.spans, strict=True)
            )
            if span[1] > span[0]
        ]
        bars += left_out(simulation)
        steps = sorted(simulation.steps, key=lambda step: (step.lane, step.task.stream))
        lanes = dict.fromkeys(lane_name(simulation, step) for step in steps)
        used = [lane for lane in lanes if any(bar.lane == lane for bar in bars)]
        busiest = sorted(simulation.busy, key=lambda x: -simulation.busy[x])[:_MOST_CURVES]
        shares = {
            resource_name(simulation, resource): uses
            for resource, uses in simulation.in_use.items()
            if resource in busiest
        }
        memory = {
            place: simulation.memory_on(number) for number, place in enumerate(simulation.places)
        }
        if len(memory) > _MOST_CURVES:
            memory = {"the fullest": simulation.memory}
        return Timeline(title_of(simulation), simulation.time, used, bars, shares, memory)

    return timelines([timeline(simulation) for simulation in simulations])


_MOST_CURVES = 4
"""The most ports, and places with a memory of their own, that have a curve: the busiest."""


def _texts(simulation: Simulation, step: SimulatedStep) -> tuple[str, ...]:
    """Return the names of a step, from the longest to the shortest."""
    over = (f"{step.kind} over {step.over(simulation.mesh)}",) if step.sent else ()
    return (*over, step.kind, f"%{step.result}")
