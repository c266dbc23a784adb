"""A simulation as a chart: the span of each step, the ports in use, and the memory held."""

from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.options import CostOptions
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.targets.reports.bars import bars_of
from collir.targets.reports.cost import title_of
from collir.targets.reports.simulate import resource_name


class GanttTarget(CostOptions, Target):
    """A simulation as a Gantt chart, in SVG (needs matplotlib: `pip install 'collir[plot]'`).

    The chart has a lane for each stream: one for each level of the machine, and one for the steps
    of a device by itself. Of a loop, the first two iterations and the last are drawn. Steps on the
    critical path have a black edge. Below are the used share of each port, link and interconnect,
    and the memory that a device holds.
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
        from collir.targets.reports.plots import TimeChart, timelines
    except ImportError as error:
        message = "a chart needs matplotlib: install it with `pip install 'collir[plot]'`"
        raise DiagnosticError(Diagnostic(message)) from error

    def timeline(simulation: Simulation) -> TimeChart:
        bars, lanes = bars_of(simulation)
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
        return TimeChart(title_of(simulation), simulation.time, lanes, bars, shares, memory)

    return timelines([timeline(simulation) for simulation in simulations])


_MOST_CURVES = 4
"""The most ports, and places with a memory of their own, that have a curve: the busiest."""
