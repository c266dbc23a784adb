"""The costs of functions as formulas, for people."""

import re
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.formulas.constants import quantity_of
from collir.cost.options import CostOptions
from collir.ir.diagnostics import Diagnostic, DiagnosticError


@dataclass(frozen=True)
class CostSymbolicTarget(CostOptions, Target):
    """Costs as formulas of parameters and sizes of axes (`pip install 'collir[formulas]'`).

    For each cost, the terms that count with their shares, first for the values of the program, or
    over ranges of values: operations by type, bytes read and written, bytes and messages sent over
    each axis, memory, and the time of products, of other kernels and of collectives, on each level
    of the machine.
    """

    name = "cost-symbolic"

    where: str = ""
    """Values and ranges of parameters and axes, as in `where="seq=1024..8192,batch=8"`, and of
    constants of the machine, as in `where="node.port=10 GB/s..100 GB/s"`; others have the values of
    the program."""
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
                Diagnostic(
                    f"where= names '{unknown[0]}', and the parameters, axes and constants are "
                    f"{listed}"
                )
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
        ends = [_number(end, name.strip()) for end in ([first, last] if dots else [first, first])]
        if not 0 < ends[0] <= ends[1] < inf:
            raise DiagnosticError(
                Diagnostic(
                    "where= lists values and ranges of integers from 1 and of constants, as in "
                    f"seq=1024..8192, batch=8 or node.port=10 GB/s..100 GB/s, not '{part}'"
                )
            )
        ranges[name.strip()] = ends[0], ends[1]
    return ranges


def _number(text: str, name: str) -> float:
    """Return a number, or a quantity if the name is that of a constant; 0 if it is none."""
    quantity = quantity_of(name)
    if quantity is None:
        return float(text) if text.strip().isdecimal() else 0.0
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z/]+)\s*", text)
    return quantity.parse(match[1], match[2]) if match and match[2] in quantity.units else 0.0
