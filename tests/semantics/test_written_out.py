"""Tests of comparing sums whose ranges are cut in other places."""

from collections.abc import Iterator
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from collir.layout import DType
from collir.semantics.symbolic.algebra import added, fresh_variable, scaled, summed_over
from collir.semantics.symbolic.expressions import ZERO_EXPR, Expr, Input, term_expr
from collir.semantics.symbolic.indices import constant, shifted, variable
from collir.semantics.symbolic.provenance import expressions_equal
from collir.semantics.symbolic.written_out import equal_written_out


def part(start: int, size: int, times: int = 1) -> Expr:
    """Return the sum of some elements of an input, from ``start`` on, as one sum over a range."""
    var = fresh_variable(size)
    at = shifted(variable(var), start) if size > 1 else constant(start)
    element = term_expr(Input(0, (at,), DType.F32))
    return scaled(summed_over(element, [var] if size > 1 else []), Fraction(times))


def total(parts: Iterator[tuple[int, int, int]]) -> Expr:
    """Return the sum of parts."""
    expr: Expr = ZERO_EXPR
    for start, size, times in parts:
        expr = added(expr, part(start, size, times))
    return expr


def test_a_sum_and_its_halves() -> None:
    halves = added(part(0, 4), part(4, 4))
    assert not expressions_equal(part(0, 8), halves, Fraction(0))
    assert equal_written_out(part(0, 8), halves, Fraction(0))
    assert not equal_written_out(part(0, 8), added(part(0, 4), part(3, 4)), Fraction(0))
    assert not equal_written_out(part(0, 8), added(part(0, 4), part(4, 4, 2)), Fraction(0))


def test_long_sums_are_not_written_out() -> None:
    halves = added(part(0, 300), part(300, 300))
    assert not equal_written_out(part(0, 600), halves, Fraction(0))


_PARTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 2)), min_size=1, max_size=4
)


@given(_PARTS, _PARTS)
def test_equal_where_each_element_counts_as_often(
    a: list[tuple[int, int, int]], b: list[tuple[int, int, int]]
) -> None:
    counts = [
        [sum(times for start, size, times in side if start <= at < start + size) for at in range(6)]
        for side in (a, b)
    ]
    equal = equal_written_out(total(iter(a)), total(iter(b)), Fraction(0))
    assert equal == (counts[0] == counts[1])
