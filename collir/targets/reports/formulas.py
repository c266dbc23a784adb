"""Texts of formulas of costs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import sympy
from xdsl.dialects.builtin import ModuleOp

from collir.cost.formulas.constants import quantity_of
from collir.cost.formulas.costs import CostFormulas, formulas_of
from collir.cost.formulas.functions import Expr, FormulaMissingError, symbol
from collir.cost.formulas.opening import opened_functions
from collir.cost.formulas.terms import (
    by_constants,
    corners_of,
    in_regime,
    shares,
    terms_of,
    text_of,
    value_of,
)
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
    """Return the texts of all functions, and by name the formulas of functions that have some.

    Raises:
        DiagnosticError: a function cannot be simulated.
    """
    texts: list[str] = []
    all_formulas: dict[str, CostFormulas] = {}
    for opened in opened_functions(module, model):
        try:
            formulas = formulas_of(opened)
        except FormulaMissingError as error:
            name = opened.simulation.name
            texts.append(f"@{name} has no formulas: {error}; -t simulate has its numbers\n")
            continue
        all_formulas[formulas.name] = formulas
        texts.append("\n".join([*write(formulas), ""]))
    return texts, all_formulas


def report_lines(
    formulas: CostFormulas, ranges: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    """Yield the lines of a function: for each cost, the terms that count over ranges of values."""
    values = {name: float(x) for name, x in {**formulas.values, **formulas.constants}.items()}
    ranges = {name: ends for name, ends in ranges.items() if name in values}
    values |= {name: low for name, (low, _) in ranges.items()}
    corners = corners_of(values, ranges)
    how = formulas.model.how(formulas.mesh.machine)
    yield f"@{formulas.name} on {mesh_title(formulas.mesh)}, costed {how}"
    for names in filter(None, ([*formulas.values], _used(formulas))):
        given: list[str] = []
        for name in names:
            quantity = quantity_of(name)
            text = quantity.format if quantity else "{:g}".format
            ends = dict.fromkeys(ranges.get(name, [values[name]]))
            given.append(f"{name} = {'..'.join(map(text, ends))}")
        yield f"  {', '.join(given)}"
    for name, value in formulas.fixed.items():
        yield f"  {name} = {value} is no symbol: steps, or the length of formulas, depend on it"
    if len(formulas.places) > 1:
        yield f"  each cost is that of the place with most of it: {', '.join(formulas.places)}"
    for dtype, work in sorted(formulas.work.items()):
        yield from _section(f"operations of {dtype}", work, corners, _count_text)
    yield from _section("bytes read and written", formulas.moved, corners, bytes_text)
    for axes, sent in formulas.sent.items():
        count = text_of(in_regime(formulas.messages[axes], corners[0]))
        what = "collective" if count == "1" else "collectives"
        name = f"bytes sent over {', '.join(axes)}, in {count} {what}"
        yield f"  {name}: {_values_text(sent, corners, bytes_text)}"
        yield f"          {text_of(in_regime(sent, corners[0]))}"
    yield from _memory(formulas, corners)
    yield from _time(formulas, corners)


def _used(formulas: CostFormulas) -> list[str]:
    """Return the names of the constants of the machine that times depend on."""
    symbols = {x.name for step in formulas.steps for x in step.time.free_symbols}
    return [name for name in formulas.constants if name in symbols]


def _values_text(expr: Expr, corners: Corners, text: Text) -> str:
    numbers = [value_of(expr, values) for values in corners]
    low, high = text(min(numbers)), text(max(numbers))
    return low if low == high else f"{low} to {high}"


def _section(name: str, expr: Expr, corners: Corners, text: Text) -> Iterator[str]:
    yield f"  {name}: {_values_text(expr, corners, text)}"
    yield from _terms(terms_of(in_regime(expr, corners[0])), corners)


def _terms(
    terms: Sequence[Expr],
    corners: Corners,
    constants: Sequence[str] = (),
    total: Sequence[Expr] = (),
) -> Iterator[str]:
    """Yield the terms that count, with their shares of a total, or of their sum; with constants,
    they are seconds."""
    listed = [item for item in shares(total or terms, corners) if item[0] in terms]
    for term, low, high in listed:
        if high >= LEAST:
            yield f"    {_percent_text(low, high):>7} {_term_text(term, constants)}"
    if small := sum(high < LEAST for _, _, high in listed):
        several = "1 term" if small == 1 else f"{small} terms"
        yield f"            and {several} below {100 * LEAST:.0f}%"


def _term_text(term: Expr, constants: Sequence[str]) -> str:
    """Return a term as text; seconds have a unit where they are no quotient of constants."""
    if constants and term.is_Number:
        return seconds_text(float(term))
    has = {x.name for x in term.free_symbols}.intersection(constants)
    return text_of(term, constants) + (" s" if constants and not has else "")


def _memory(formulas: CostFormulas, corners: Corners) -> Iterator[str]:
    yield f"  memory of a device: at most {_values_text(formulas.memory, corners, bytes_text)}"
    if len(formulas.places) > 1:
        for place, peak in zip(formulas.places, formulas.peaks, strict=True):
            yield f"            at {place}: {_values_text(peak, corners, bytes_text)}"
    for use, size in formulas.held.items():
        yield f"            {use}: {text_of(in_regime(size, corners[0]))}"
    yield from _terms(terms_of(in_regime(formulas.memory, corners[0])), corners)


def _time(formulas: CostFormulas, corners: Corners) -> Iterator[str]:
    most = _values_text(formulas.most, corners, seconds_text)
    at_most = "" if formulas.is_exact else f", and at most {most}, as steps share ports"
    yield f"  time: {_values_text(formulas.time, corners, seconds_text)}{at_most}"
    groups: dict[str, list[Expr]] = {}
    place = _busiest(formulas, corners[0])
    if len(formulas.places) > 1:
        yield f"    of which {formulas.places[place]} works longest:"
    for step in (step for step in formulas.steps if place in step.at):
        name = f"over {', '.join(step.over)}" if step.over else "kernels"
        name = "products" if step.is_product else name
        groups.setdefault(name, []).append(step.count * step.time)
    for name, times in groups.items():
        total = sympy.Add(*times)
        parts = [value_of(total, v) / (value_of(formulas.time, v) or 1.0) for v in corners]
        seconds = _values_text(total, corners, seconds_text)
        yield f"    {_percent_text(min(parts), max(parts)):>7} {name}: {seconds}, near these values"
        near = in_regime(total, corners[0])
        if name.startswith("over "):
            yield from _levels(near, formulas, corners)
        else:
            for line in _terms(terms_of(near), corners, [*formulas.constants]):
                yield f"      {line}"


def _busiest(formulas: CostFormulas, values: Mapping[str, float]) -> int:
    """Return the number of the place whose steps take longest."""

    def seconds(place: int) -> float:
        own = (step for step in formulas.steps if place in step.at)
        return sum(value_of(step.count * step.time, values) for step in own)

    return max(range(len(formulas.places)), key=seconds)


def _levels(seconds: Expr, formulas: CostFormulas, corners: Corners) -> Iterator[str]:
    """Yield the time of collectives on each level, and its terms."""
    parts = by_constants(seconds, formulas.constants)
    levels: dict[str, list[Expr]] = {}
    for name in filter(parts.__contains__, [*formulas.constants, ""]):
        own = sympy.Add.make_args(parts[name]) if name else terms_of(parts[name])
        levels.setdefault(name.rpartition(".")[0], []).extend(own)
    everything = [term for terms in levels.values() for term in terms]
    for level, terms in levels.items():
        where = f"on {level}" if level else "on no level"
        yield f"            {where}: {_values_text(sympy.Add(*terms), corners, seconds_text)}"
        if level or len(terms) > 1:
            for line in _terms(terms, corners, [*formulas.constants], everything):
                yield f"        {line}"


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
        escaped = name.replace("_", r"\_")
        yield rf"  {escaped} &= {sympy.latex(expr.xreplace(names))} \\"


def _latex_name(name: str) -> str:
    return rf"\mathit{{{name}}}".replace("_", r"\_")


def _count_text(number: float) -> str:
    """Return a number of operations such as ``1.64 GFLOP``."""
    return bytes_text(number).replace("B", "FLOP")
