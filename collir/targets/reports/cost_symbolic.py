"""The costs of functions as formulas, for people."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from textwrap import wrap
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.formulas.constants import quantity_of
from collir.cost.network.group import CostError
from collir.cost.options import CostOptions
from collir.ir.diagnostics import Diagnostic, DiagnosticError


@dataclass(frozen=True)
class CostSymbolicTarget(CostOptions, Target):
    """Costs as formulas of parameters and sizes of axes (`pip install 'collir[formulas]'`).

    For each cost, the terms that count with their shares, first for the values of the program, or
    over ranges of values: operations by type, bytes read and written, bytes and messages sent over
    each axis, memory, and the time of products, of other kernels and of collectives, on each level
    of the machine.

    Functions that are strategies of each other are compared by their time, sending and memory, as
    inequalities. They are on one mesh, and have the same parameters and the same arguments and
    results, but for layouts, weights and states of optimisers.
    """

    name = "cost-symbolic"

    where: str = ""
    """Values and ranges of parameters and axes, as in `where="seq=1024..8192,batch=8"`, and of
    constants of the machine, as in `where="node.port=10 GB/s..100 GB/s"`; the rest keep the values
    of the program."""
    latex: bool = False
    """Print whole formulas, in LaTeX."""
    per: str = ""
    """A parameter, such as the number of layers; strategies are compared by their cost per unit of
    it. By default the whole costs are compared."""

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
            names = {name for x in functions.values() for name in (*x.values, *x.constants)}
            check_symbols(ranges, {name for x in functions.values() for name in x.fixed} - names)
            check_names("where", ranges, names)
            parameters = {name for x in functions.values() for name in x.values}
            check_names("per", filter(None, [self.per]), parameters)
            if not self.latex:
                reports += comparisons(module, functions, ranges, self.per)
        except CostError as error:
            raise DiagnosticError(Diagnostic(str(error))) from error
        text = "\n".join(reports)
        output.write(text if self.latex else "\n".join(map(_broken, text.split("\n"))))


WIDTH = 120
"""The columns of a line, unless it is one long name."""


def _broken(line: str) -> str:
    """Return a line that is broken before operators and words where it is too long."""
    indent = " " * (len(line) - len(line.lstrip()))
    glued = re.sub(r"(?<= [-+*/]) ", "\0", line)
    lines = wrap(
        glued,
        WIDTH,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


def formulas_missing() -> DiagnosticError:
    """Return the error where sympy is not installed."""
    return DiagnosticError(
        Diagnostic("formulas need sympy: install it with `pip install 'collir[formulas]'`")
    )


def check_symbols(ranges: Iterable[str], fixed: Collection[str]) -> None:
    """Check that ranges are of symbols.

    Raises:
        DiagnosticError: one is of a parameter that is none.
    """
    if names := [name for name in ranges if name in fixed]:
        raise DiagnosticError(
            Diagnostic(
                f"where= names '{names[0]}', which is no symbol, as the steps of the program "
                f"depend on it: give it one value by -p 'instantiate{{sizes=\"{names[0]}=...\"}}'"
            )
        )


def check_names(option: str, names: Iterable[str], known: Collection[str]) -> None:
    """Check that names belong to parameters, axes or constants.

    Raises:
        DiagnosticError: there is none of that name.
    """
    if unknown := [name for name in names if name not in known]:
        listed = ", ".join(sorted(known))
        raise DiagnosticError(
            Diagnostic(
                f"{option}= names '{unknown[0]}', and the parameters, axes and constants are "
                f"{listed}"
            )
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
