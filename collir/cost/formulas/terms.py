# pyright: basic
"""The terms of expressions that count, and texts of expressions."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import cast

import sympy

from collir.cost.formulas.functions import Expr, Larger, Valued
from collir.cost.formulas.makespan import Makespan
from collir.cost.formulas.sent import Sent

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
    """Return the sum of products that an expression is near some values: the larger one of numbers
    is that which is larger there, the time of a collective that of its algorithm there, and that of
    steps that overlap that of the longest chain there."""
    if not expr.args or not expr.has(Valued):
        return expr
    if isinstance(expr, Larger):
        largest = max(expr.args, key=lambda x: value_of(x, values))
        return in_regime(largest, values)
    if isinstance(expr, Sent):
        size, *axes = expr.args
        start, slope = type(expr).line(value_of(size, values), *(value_of(x, values) for x in axes))
        return start + slope * cast("Expr", size)
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


def shares(expr: Expr, corners: Sequence[Values]) -> list[tuple[Expr, float, float]]:
    """Return the terms of a sum with their smallest and largest shares at some values, those with
    the largest shares first."""
    terms = terms_of(expr)
    found: list[list[float]] = []
    for values in corners:
        numbers = [value_of(term, values) for term in terms]
        total = sum(numbers) or 1.0
        found.append([number / total for number in numbers])
    ranges = [(min(column), max(column)) for column in zip(*found, strict=True)]
    listed = [(term, *ends) for term, ends in zip(terms, ranges, strict=True)]
    return sorted(listed, key=lambda item: -item[2])


def corners_of(values: Values, ranges: Mapping[str, tuple[float, float]]) -> list[dict[str, float]]:
    """Return the values at all ends of ranges of some of them."""
    names = list(ranges)
    ends = itertools.product(*(dict.fromkeys(ranges[name]) for name in names))
    return [{**values, **dict(zip(names, listed, strict=True))} for listed in ends]


def text_of(expr: Expr) -> str:
    """Return an expression as people write it: ``6 * batch * width^2 / model``."""
    rounded = expr.xreplace({x: sympy.Float(x, 3) for x in expr.atoms(sympy.Float)})
    text = re.sub(r"(?<=[\w)])\*(?=[\w(])", " * ", str(rounded).replace("**", "^"))
    return re.sub(r"(?<=[\w)])/(?=[\w(])", " / ", text)
