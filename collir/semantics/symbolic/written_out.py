"""Sums over ranges, term by term, to compare sums whose ranges are cut in other places.

A sum over a batch and the sums over its microbatches have other forms: the first has a variable for
8 positions, and two others have one for 4. Where variables have other sizes on both sides, a term
stands for each of their values instead.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from functools import reduce
from itertools import product

from collir.semantics.symbolic.algebra import added, substituted, summed_over, zipped
from collir.semantics.symbolic.expressions import (
    ZERO_EXPR,
    Expr,
    Sum,
    SummedTerm,
    constant_expr,
    term_expr,
)
from collir.semantics.symbolic.indices import constant
from collir.semantics.symbolic.provenance import expressions_equal

MOST_TERMS = 256
"""The most terms that the sums of a side are written out as."""


def equal_written_out(a: Expr, b: Expr, tolerance: Fraction) -> bool:
    """Return whether two expressions are proven equal, with some of their sums term by term.

    Args:
        tolerance: the relative difference that factors and constants may have.
    """

    def difference(x: Sum, y: Sum) -> Expr:
        """Return 0 if two sums are equal, and 1 if that is not shown."""
        terms = [[item for item in side if item not in other.terms] for side, other in _both(x, y)]
        sizes = _sizes_apart([term for side in terms for term, _ in side])
        if any(_count(side, sizes) > MOST_TERMS for side in terms):
            return constant_expr(1)
        numbers = x.number, y.number
        first, second = (
            reduce(added, _written_out(side, sizes), constant_expr(number))
            for side, number in zip(terms, numbers, strict=True)
        )
        return constant_expr(0 if expressions_equal(first, second, tolerance) else 1)

    return zipped(a, b, difference) == ZERO_EXPR


_Terms = Sequence[tuple[SummedTerm, Fraction]]


def _both(x: Sum, y: Sum) -> Iterator[tuple[_Terms, Sum]]:
    yield [*x.terms], y
    yield [*y.terms], x


def _sizes_apart(terms: Sequence[SummedTerm]) -> Collection[int]:
    """Return the sizes of which terms have other numbers of bound variables."""
    counts = [Counter(var.size for var in term.bound) for term in terms]
    sizes = {size for count in counts for size in count}
    return {size for size in sizes if len({count[size] for count in counts}) > 1}


def _count(terms: _Terms, sizes: Collection[int]) -> int:
    """Return the number of terms with a term for each value of variables of some sizes."""
    return sum(math.prod(var.size for var in term.bound if var.size in sizes) for term, _ in terms)


def _written_out(terms: _Terms, sizes: Collection[int]) -> Iterator[Expr]:
    """Yield the terms with a term for each value of variables of some sizes."""
    for term, times in terms:
        cut = [var for var in term.bound if var.size in sizes]
        rest = [var for var in term.bound if var.size not in sizes]
        body = term_expr(term.summand, times)
        for values in product(*(range(var.size) for var in cut)):
            at = {var: constant(value) for var, value in zip(cut, values, strict=True)}
            yield summed_over(substituted(body, at) if at else body, rest)
