"""The terms of expressions that count, and texts of expressions."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import sympy

from collir.cost.formulas.functions import Expr, Larger, Valued, symbol
from collir.cost.formulas.levels import seconds_near
from collir.cost.formulas.makespan import Makespan
from collir.cost.formulas.sent import CollectiveFormula

Values = Mapping[str, float]
"""Values of parameters and axes by name."""


def value_of(expr: Expr, values: Values) -> float:
    """Return the value of an expression."""
    match expr:
        case sympy.Symbol():
            return float(values[expr.name])
        case Valued():
            return float(type(expr).values(*(value_of(x, values) for x in expr.args)))
        case sympy.Add():
            return sum(value_of(x, values) for x in expr.args)
        case sympy.Mul():
            product = 1.0
            for x in expr.args:
                product *= value_of(x, values)
            return product
        case sympy.Pow():
            return value_of(expr.args[0], values) ** value_of(expr.args[1], values)
        case _:
            return float(expr)


def in_regime(expr: Expr, values: Values) -> Expr:
    """Return an expression as the sum of products that it equals near some values. A maximum
    becomes its largest argument there. The time of a collective becomes that of the algorithm
    chosen there, in the constants of levels. The time of overlapping steps becomes that of their
    longest chain there."""
    if not expr.args or not expr.has(Valued):
        return expr
    if isinstance(expr, Larger):
        largest = max(expr.args, key=lambda x: value_of(x, values))
        return in_regime(largest, values)
    if isinstance(expr, CollectiveFormula):
        return seconds_near(expr, [value_of(x, values) for x in expr.args])
    if isinstance(expr, Makespan):
        chain = type(expr).chain(*(value_of(x, values) for x in expr.args))
        return sympy.Add(*(n * in_regime(expr.args[x], values) for x, n in chain.items()))
    if isinstance(expr, Valued):
        value = value_of(expr, values)
        return sympy.Integer(int(value)) if value.is_integer() else sympy.Float(value)
    return expr.func(*(in_regime(x, values) for x in expr.args))


def terms_of(expr: Expr) -> list[Expr]:
    """Return the terms of a sum of products."""
    expanded = sympy.expand(expr)
    return list(expanded.args) if isinstance(expanded, sympy.Add) else [expanded]


def shares(terms: Sequence[Expr], corners: Sequence[Values]) -> list[tuple[Expr, float, float]]:
    """Return the terms of a sum, each with its smallest and largest share of the sum at some
    values; the largest shares come first."""
    rows: list[list[float]] = []
    for values in corners:
        numbers = [value_of(term, values) for term in terms]
        total = sum(numbers) or 1.0
        rows.append([number / total for number in numbers])
    ranges = [(min(column), max(column)) for column in zip(*rows, strict=True)]
    listed = [(term, *ends) for term, ends in zip(terms, ranges, strict=True)]
    return sorted(listed, key=lambda item: -item[2])


def corners_of(values: Values, ranges: Mapping[str, tuple[float, float]]) -> list[dict[str, float]]:
    """Return the values at all ends of ranges of some of them."""
    names = list(ranges)
    ends = itertools.product(*(dict.fromkeys(ranges[name]) for name in names))
    return [{**values, **dict(zip(names, listed, strict=True))} for listed in ends]


def by_constants(expr: Expr, constants: Iterable[str]) -> dict[str, Expr]:
    """Return the part of a sum with each constant, as a product where that is short; the part
    without constants has an empty name."""
    parts: dict[str, Expr] = {}
    symbols = [symbol(name) for name in constants]
    for term in terms_of(expr):
        name = next((x.name for x in symbols if x in term.free_symbols), "")
        parts[name] = parts.get(name, sympy.S.Zero) + term
    return {name: _factored(part) if name else part for name, part in parts.items()}


def _factored(expr: Expr) -> Expr:
    """Return a sum as a product, unless a factor is then a sum with floating-point numbers."""
    product = sympy.factor(expr)
    sums = (x for x in sympy.Mul.make_args(product) if x.is_Add)
    return expr if any(x.has(sympy.Float) for x in sums) else product


def text_of(expr: Expr, constants: Iterable[str] = ()) -> str:
    """Return an expression as people write it: ``6 * batch * width^2 / model``. Constants of
    machines are last."""
    powers = expr.as_powers_dict()
    last = {x: powers[x] for x in map(symbol, constants) if x in powers}
    rest = sympy.Mul(expr, *(x**-power for x, power in last.items()))
    rounded = rest.xreplace({x: _rounded(x) for x in rest.atoms(sympy.Float)})
    text = re.sub(r"(?<=[\w)])\*(?=[\w(])", " * ", str(rounded).replace("**", "^"))
    text = re.sub(r"(?<=[\w)])/(?=[\w(])", " / ", text)
    text = f"({text})" if last and rounded.is_Add else text
    for x, power in last.items():
        text += f" * {x}" if power == 1 else f" / {x}" if power == -1 else f" * {x}^{power}"
    return text.removeprefix("1 * ")


def _rounded(number: Expr) -> Expr:
    """Return a number of three digits."""
    short = float(f"{float(number):.3g}")
    whole = abs(short) < 1e6 and short.is_integer()
    return sympy.Integer(int(short)) if whole else sympy.Float(number, 3)
