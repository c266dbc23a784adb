"""The strategy that costs least in the plane of two parameters, as a plot."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.network.group import CostError
from collir.cost.options import CostOptions
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.targets.reports.cost_symbolic import formulas_missing, ranges_of

COSTS = ("time", "memory", "flops", "moved", "sent", "messages")
"""The costs of a plane."""


@dataclass(frozen=True)
class CrossoverPlaneTarget(CostOptions, Target):
    """Which strategy is the fastest in the plane of two parameters, or of axes, as SVG.

    The functions are compared that `cost-symbolic` compares. It needs sympy and matplotlib:
    `pip install 'collir[formulas,plot]'`.
    """

    name = "crossover-plane"

    where: str = ""
    """Two ranges of parameters or axes, the first drawn from left to right, and values of others,
    as in `where="seq=64..65536,batch=8..1024,hidden=8192"`; the rest keep the values of the
    program."""
    cost: str = "time"
    """The cost that is compared: `time`, `memory`, `flops`, `moved` (bytes read and written),
    `sent` (bytes) or `messages`."""
    points: int = 60
    """The number of points along each range."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cost not in COSTS:
            raise ValueError(f"costs are {', '.join(COSTS)}, not '{self.cost}'")
        if self.points < 2:
            raise ValueError(f"points has to be at least 2, not {self.points}")

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        ranges = ranges_of(self.where)
        spans = [name for name, (low, high) in ranges.items() if low < high]
        if len(spans) != 2:
            message = (
                f"a plane has two ranges, and where= has {len(spans)}: name two parameters or axes,"
                ' as in where="seq=64..65536,batch=8..1024"'
            )
            raise DiagnosticError(Diagnostic(message))
        try:
            from collir.targets.reports.planes import strategies_plot
        except ImportError as error:
            raise formulas_missing() from error
        try:
            plot = strategies_plot(module, self.cost_model(), ranges, self.cost, self.points)
        except (CostError, ValueError) as error:
            raise DiagnosticError(Diagnostic(str(error))) from error
        output.write(plot)
