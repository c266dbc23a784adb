"""The costs of functions as formulas, for people."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.network.group import CostError
from collir.cost.options import CostOptions
from collir.ir.diagnostics import Diagnostic, DiagnosticError


@dataclass(frozen=True)
class CostSymbolicTarget(CostOptions, Target):
    """Costs as formulas of parameters and sizes of axes (`pip install 'collir[formulas]'`).

    For each cost, the terms that count with their shares, first for the values of the program, or
    over ranges of values: operations by type, bytes read and written, bytes and messages sent over
    each axis, memory, and the time of products, of other kernels and of collectives.

    Functions that are strategies of each other are compared: which is the fastest, which sends less
    and which needs less memory, as inequalities. They are on one mesh, and have the same parameters
    and the same arguments and results, but for layouts, weights and states of optimisers.
    """

    name = "cost-symbolic"

    where: str = ""
    """Values and ranges of parameters and axes, as in `where="seq=1024..8192,batch=8"`; others have
    the values of the program."""
    latex: bool = False
    """Print whole formulas, in LaTeX."""
    per: str = ""
    """A parameter, such as the number of layers: strategies are compared by what grows with it, for
    each unit of it. The default is all that they send and need."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        try:
            from collir.targets.reports import formulas as texts
            from collir.targets.reports.compared import comparisons
        except ImportError as error:
            raise formulas_missing() from error
        ranges = ranges_of(self.where)
        write = texts.latex_lines if self.latex else partial(texts.report_lines, ranges=ranges)
        try:
            reports, functions = texts.reports(module, self.cost_model(), write)
            names = {name for formulas in functions.values() for name in formulas.values}
            check_names("where", ranges, names)
            check_names("per", filter(None, [self.per]), names)
            if not self.latex:
                reports += comparisons(module, functions, ranges, self.per)
        except CostError as error:
            raise DiagnosticError(Diagnostic(str(error))) from error
        output.write("\n".join(reports))


def formulas_missing() -> DiagnosticError:
    """Return the error where sympy is not installed."""
    return DiagnosticError(
        Diagnostic("formulas need sympy: install it with `pip install 'collir[formulas]'`")
    )


def check_names(option: str, names: Iterable[str], known: Collection[str]) -> None:
    """Check that names are those of parameters and axes.

    Raises:
        DiagnosticError: there is no such parameter and no such axis.
    """
    if unknown := [name for name in names if name not in known]:
        listed = ", ".join(sorted(known))
        raise DiagnosticError(
            Diagnostic(f"{option}= names '{unknown[0]}', and the parameters and axes are {listed}")
        )


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
