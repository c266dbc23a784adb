"""Products of sums, summed over indices: ``einsum`` and all that is bilinear.

The product of sums is multiplied out, so that a contraction is a flat sum of products of elements,
however many contractions it was made of and in whatever order. In this form linearity,
associativity, and the parts of a contraction over a sharded index need no rules of their own:
equal sums have equal terms, once their bound variables are cut and named alike (``naming``).

Multiplying out may make many terms, or long ones. ``is_large`` tells beforehand.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from itertools import product

from collir.semantics.symbolic.algebra import (
    added,
    collected,
    fresh_variable,
    product_expr,
    scaled,
    substituted,
    summed_over,
    zipped,
)
from collir.semantics.symbolic.expressions import (
    Expr,
    Family,
    Input,
    Opaque,
    Product,
    Select,
    Sum,
    SummedSelect,
    SummedTerm,
    term_expr,
)
from collir.semantics.symbolic.indices import Values, Var, variable

MOST_TERMS = 16
"""The most terms that a product is multiplied out to."""

MOST_FACTORS = 12
"""The most factors of a term that a product is multiplied out to."""


def contracted(exprs: Sequence[Expr], over: Sequence[Var]) -> Expr:
    """Return the product of expressions, summed over all values of variables."""
    sums = [expr for expr in exprs if isinstance(expr, Sum)]
    if len(sums) == len(exprs):
        return _multiplied_out(sums, over)
    total = exprs[0]
    for expr in exprs[1:]:
        total = zipped(total, expr, lambda x, y: _multiplied_out([x, y], ()))
    return summed_over(total, over)


def _multiplied_out(sums: Sequence[Sum], over: Sequence[Var]) -> Expr:
    """Return the product of sums, summed over all values of variables."""
    others: list[Expr] = []
    flat: list[tuple[SummedTerm, Fraction]] = []
    number = Fraction(0)
    for parts in product(*map(_parts, sums)):
        times = math.prod((factor for _, factor in parts), start=Fraction(1))
        terms = [term for term, _ in parts if term is not None]
        if not terms:
            number += times * math.prod(var.size for var in over)
            continue
        bound, exprs = _apart(terms)
        if any(isinstance(expr, Select) for expr in exprs):
            others.append(scaled(contracted(exprs, (*bound, *over)), times))
            continue
        total = product_expr([item for expr in exprs for item in _factors(expr)])
        total = scaled(summed_over(total, (*bound, *over)), times)
        if isinstance(total, Sum):
            number += total.number
            flat += total.terms
        else:
            others.append(total)
    return reduce(added, others, collected(number, flat))


def _parts(total: Sum) -> Iterator[tuple[SummedTerm | None, Fraction]]:
    """Yield the terms of a sum with their factors; its constant is the factor of no term."""
    yield from total.terms
    if total.number:
        yield None, total.number


def _apart(terms: Sequence[SummedTerm]) -> tuple[list[Var], list[Expr]]:
    """Return the bound variables of terms under new names, and what is summed over them."""
    bound: list[Var] = []
    exprs: list[Expr] = []
    for term in terms:
        new = {var: fresh_variable(var.size) for var in term.bound}
        bound += new.values()
        values: Values = {var: variable(name) for var, name in new.items()}
        exprs.append(substituted(term_expr(term.summand), values) if new else _body(term))
    return bound, exprs


def _body(term: SummedTerm) -> Expr:
    summand = term.summand
    return summand.body if isinstance(summand, SummedSelect) else term_expr(summand)


def _factors(expr: Expr) -> Iterator[tuple[Family, int]]:
    """Yield the factors of an expression that is a product, or the expression."""
    inner = expr.sole_summand if isinstance(expr, Sum) else None
    if isinstance(inner, Product):
        yield from inner.factors
    else:
        yield Family((), expr), 1


# --- sizes --------------------------------------------------------------------------------------


def is_large(exprs: Sequence[Expr]) -> bool:
    """Return whether the product of expressions has too many terms, or too long ones."""
    counts = [_counts(expr) for expr in exprs]
    terms = math.prod(terms for terms, _ in counts)
    return terms > MOST_TERMS or sum(factors for _, factors in counts) > MOST_FACTORS


def _counts(expr: Expr) -> tuple[int, int]:
    """Return the number of terms of an expression and of factors in a term, in the worst branch."""
    if not isinstance(expr, Sum):
        pairs = [_counts(value) for _, value in expr.branches]
        return max(terms for terms, _ in pairs), max(factors for _, factors in pairs)
    lengths = [_length(term) for term, _ in expr.terms]
    return len(lengths) + bool(expr.number), max(lengths, default=0)


def _length(term: SummedTerm) -> int:
    """Return the number of factors of a term, each counted as often as its power says."""
    if not isinstance(term.summand, Product):
        return 1
    return sum(power for _, power in term.summand.factors)


def is_plain(total: Sum) -> bool:
    """Return whether a sum is a constant times an element, or a constant."""
    if not total.terms:
        return True
    only = total.only
    return only is not None and not only[0].bound and isinstance(only[0].summand, Input | Opaque)
