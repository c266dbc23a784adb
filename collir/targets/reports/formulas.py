# pyright: basic
"""Texts of formulas of costs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import sympy
from xdsl.dialects.builtin import ModuleOp

from collir.cost.formulas.costs import CostFormulas, formulas_of
from collir.cost.formulas.functions import Expr, symbol
from collir.cost.formulas.opening import opened_functions
from collir.cost.formulas.sent import FormulaMissingError
from collir.cost.formulas.terms import corners_of, in_regime, shares, text_of, value_of
from collir.cost.model import CostModel
from collir.targets.reports.cost import mesh_title
from collir.targets.reports.text import bytes_text, seconds_text

LEAST = 0.01
"""The smallest share of a term that gets a line."""

Corners = Sequence[Mapping[str, float]]
Text = Callable[[float], str]


def reports(
    module: ModuleOp, model: CostModel, write: Callable[[CostFormulas], Iterable[str]]
) -> tuple[list[str], dict[str, CostFormulas]]:
    """Return the texts of all functions, and their formulas, of those that have some, by name.

    Raises:
        DiagnosticError: a function cannot be simulated.
    """
    texts: list[str] = []
    found: dict[str, CostFormulas] = {}
    for opened in opened_functions(module, model):
        try:
            formulas = formulas_of(opened)
        except FormulaMissingError as error:
            name = opened.simulation.name
            texts.append(f"@{name} has no formulas: {error}; -t simulate has its numbers\n")
            continue
        found[formulas.name] = formulas
        texts.append("\n".join([*write(formulas), ""]))
    return texts, found


def report_lines(
    formulas: CostFormulas, ranges: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    """Yield the lines of a function: for each cost, the terms that count over ranges of values."""
    ranges = {name: ends for name, ends in ranges.items() if name in formulas.values}
    values = {name: float(x) for name, x in formulas.values.items()}
    values |= {name: low for name, (low, _) in ranges.items()}
    corners = corners_of(values, ranges)
    how = formulas.model.how(formulas.mesh.machine)
    yield f"@{formulas.name} on {mesh_title(formulas.mesh)}, costed {how}"
    given = (
        f"{name} = {_range_text(ranges.get(name, (value, value)))}"
        for name, value in values.items()
    )
    yield f"  {', '.join(given)}"
    for name in sorted(formulas.fixed):
        yield f"  {name} keeps its value, as sizes are rounded quotients of it"
    for dtype, work in sorted(formulas.work.items()):
        yield from _section(f"operations of {dtype}", work, corners, _count_text)
    yield from _section("bytes read and written", formulas.moved, corners, bytes_text)
    for axes, sent in formulas.sent.items():
        count = text_of(formulas.messages[axes])
        what = "collective" if count == "1" else "collectives"
        name = f"bytes sent over {', '.join(axes)}, in {count} {what}"
        yield f"  {name}: {_values_text(sent, corners, bytes_text)}"
        yield f"          {text_of(sent)}"
    yield from _memory(formulas, corners)
    yield from _time(formulas, corners)


def _range_text(ends: tuple[float, float]) -> str:
    low, high = ends
    return f"{low:g}" if low == high else f"{low:g}..{high:g}"


def _values_text(expr: Expr, corners: Corners, text: Text) -> str:
    numbers = [value_of(expr, values) for values in corners]
    low, high = text(min(numbers)), text(max(numbers))
    return low if low == high else f"{low} to {high}"


def _section(name: str, expr: Expr, corners: Corners, text: Text) -> Iterator[str]:
    yield f"  {name}: {_values_text(expr, corners, text)}"
    yield from _terms(expr, corners)


def _terms(expr: Expr, corners: Corners, unit: str = "") -> Iterator[str]:
    listed = shares(expr, corners)
    for term, low, high in listed:
        if high >= LEAST:
            share = _percent_text(low, high)
            yield f"    {share:>7} {text_of(term)}{unit}"
    if small := sum(high < LEAST for _, _, high in listed):
        terms = "1 term" if small == 1 else f"{small} terms"
        yield f"            and {terms} below {100 * LEAST:.0f}%"


def _memory(formulas: CostFormulas, corners: Corners) -> Iterator[str]:
    yield f"  memory of a device: at most {_values_text(formulas.memory, corners, bytes_text)}"
    for use, size in formulas.held.items():
        yield f"            {use}: {text_of(size)}"
    yield from _terms(in_regime(formulas.memory, corners[0]), corners)


def _time(formulas: CostFormulas, corners: Corners) -> Iterator[str]:
    yield f"  time: {_values_text(formulas.time, corners, seconds_text)}"
    groups: dict[str, list[Expr]] = {}
    for step in formulas.steps:
        name = f"over {', '.join(step.over)}" if step.over else "kernels"
        name = "products" if step.is_product else name
        groups.setdefault(name, []).append(step.count * step.time)
    for name, times in groups.items():
        total = sympy.Add(*times)
        parts = [value_of(total, v) / (value_of(formulas.time, v) or 1.0) for v in corners]
        seconds = _values_text(total, corners, seconds_text)
        yield f"    {_percent_text(min(parts), max(parts)):>7} {name}: {seconds}, near these values"
        near = sympy.expand(in_regime(total, corners[0]))
        for line in _terms(near, corners, " s"):
            yield f"      {line}"


def _percent_text(low: float, high: float) -> str:
    """Return a share, or the range of one: ``31-59%``."""
    first, last = f"{100 * low:.0f}", f"{100 * high:.0f}%"
    return last if last == f"{first}%" else f"{first}-{last}"


def latex_lines(formulas: CostFormulas) -> Iterator[str]:
    """Yield the formulas of a function in LaTeX."""
    yield f"% @{formulas.name} on {mesh_title(formulas.mesh)}"
    yield r"\begin{align*}"
    yield from _latex(formulas)
    yield r"\end{align*}"


def _latex(formulas: CostFormulas) -> Iterable[str]:
    names = {symbol(name): sympy.Symbol(_latex_name(name)) for name in formulas.values}
    rows = [(rf"\text{{operations, {dtype}}}", x) for dtype, x in sorted(formulas.work.items())]
    rows.append((r"\text{bytes read and written}", formulas.moved))
    rows += [(rf"\text{{bytes sent over {', '.join(a)}}}", x) for a, x in formulas.sent.items()]
    rows.append((r"\text{memory}", formulas.memory))
    for name, expr in rows:
        yield rf"  {name} &= {sympy.latex(expr.xreplace(names))} \\"


def _latex_name(name: str) -> str:
    return rf"\mathit{{{name}}}".replace("_", r"\_")


def _count_text(number: float) -> str:
    """Return a number of operations such as ``1.64 GFLOP``."""
    return bytes_text(number).replace("B", "FLOP")
