"""The costs of functions as formulas, for people."""

from dataclasses import dataclass
from functools import partial
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.options import CostOptions
from collir.ir.diagnostics import Diagnostic, DiagnosticError


@dataclass(frozen=True)
class CostSymbolicTarget(CostOptions, Target):
    """Costs as formulas of parameters and sizes of axes (`pip install 'collir[formulas]'`).

    For each cost, the terms that count with their shares, first for the values of the program, or
    over ranges of values: operations by type, bytes read and written, bytes and messages sent over
    each axis, memory, and the time of products, of other kernels and of collectives.
    """

    name = "cost-symbolic"

    where: str = ""
    """Values and ranges of parameters and axes, as in `where="seq=1024..8192,batch=8"`; others have
    the values of the program."""
    latex: bool = False
    """Print whole formulas, in LaTeX."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        try:
            from collir.targets.reports import formulas as texts
        except ImportError as error:
            message = "formulas need sympy: install it with `pip install 'collir[formulas]'`"
            raise DiagnosticError(Diagnostic(message)) from error
        ranges = ranges_of(self.where)
        write = texts.latex_lines if self.latex else partial(texts.report_lines, ranges=ranges)
        reports, names = texts.reports(module, self.cost_model(), write)
        if unknown := [name for name in ranges if name not in names]:
            listed = ", ".join(sorted(names))
            raise DiagnosticError(
                Diagnostic(f"where= names '{unknown[0]}', and the parameters and axes are {listed}")
            )
        output.write("\n".join(reports))


def ranges_of(where: str) -> dict[str, tuple[float, float]]:
    """Return the ranges of values in a text.

    Raises:
        DiagnosticError: the text is not a list of values and ranges.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for part in filter(None, where.split(",")):
        name, _, text = part.partition("=")
        first, dots, last = text.partition("..")
        ends = [first.strip(), last.strip() if dots else first.strip()]
        if not all(end.isdecimal() and int(end) for end in ends) or int(ends[0]) > int(ends[1]):
            raise DiagnosticError(
                Diagnostic(
                    f"where= lists values and ranges of integers from 1, as in seq=1024..8192 or "
                    f"batch=8, not '{part}'"
                )
            )
        ranges[name.strip()] = float(ends[0]), float(ends[1])
    return ranges
