"""A simulation as a chart: which step runs when, which ports are in use, which memory is held."""

from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.cost.programs.critical import critical_path
from collir.cost.programs.simulation import SimulatedStep, Simulation, simulate
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.targets.reports.cost import CostingTarget, title_of
from collir.targets.reports.simulate import resource_name, stream_name


class GanttTarget(CostingTarget):
    """A simulation as a Gantt chart, in SVG (needs matplotlib: `pip install 'collir[plot]'`).

    A lane for each stream: those of the levels of the machine, and that of a device by itself.
    Steps on the critical path have a black edge, others a white one; short steps are named by
    their result. Below: how much of each port, link and
    interconnect is in use, and the memory that a device holds.
    """

    name = "gantt"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(charts([each for each in simulate(module, self.cost_model()) if each.time]))


def charts(found: list[Simulation]) -> str:
    """The charts of simulations, below each other, as SVG.

    Raises:
        DiagnosticError: matplotlib is not installed, or nothing takes time.
    """
    if not found:
        raise DiagnosticError(Diagnostic("there is no function with steps that take time to draw"))
    try:
        from collir.targets.reports.plots import Bar, Timeline, timelines
    except ImportError as error:
        message = "a chart needs matplotlib: install it with `pip install 'collir[plot]'`"
        raise DiagnosticError(Diagnostic(message)) from error

    def timeline(one: Simulation) -> Timeline:
        path = {link.number for link in critical_path(one)}
        bars = [
            Bar(
                stream_name(one, step.task.stream),
                *span,
                _texts(one, step),
                step.kind,
                number in path,
            )
            for number, (step, span) in enumerate(zip(one.steps, one.spans, strict=True))
            if span[1] > span[0]
        ]
        lanes = [stream_name(one, stream) for stream in range(len(one.mesh.machine.levels) + 1)]
        used = [lane for lane in lanes if any(bar.lane == lane for bar in bars)]
        shares = {resource_name(one, resource): uses for resource, uses in one.in_use.items()}
        return Timeline(title_of(one), one.time, used, bars, shares, one.memory)

    return timelines([timeline(one) for one in found])


def _texts(found: Simulation, step: SimulatedStep) -> tuple[str, ...]:
    """Return the names of a step, from the longest to the shortest."""
    over = (f"{step.kind} over {step.over(found.mesh)}",) if step.sent else ()
    return (*over, step.kind, f"%{step.result}")
