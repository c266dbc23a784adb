"""Sums over neighbouring ranges of an index, joined to one sum.

Where devices have blocks of different sizes, the parts of a contraction are sums over 3, 3 and 2
positions, say. They are the sum over all 8 if each continues the one before it. A candidate for the
joined sum is made from one of two parts, and both are compared with its halves. This is done only
where the values of the indices show that one part begins where the other ends.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from fractions import Fraction
from functools import lru_cache

from collir.semantics.symbolic.algebra import (
    collected,
    fresh_variable,
    indices_in,
    mapped,
    substituted,
    summed_over,
    with_indices,
)
from collir.semantics.symbolic.expressions import Expr, Select, Sum, SummedTerm, term_expr
from collir.semantics.symbolic.indices import (
    Index,
    Var,
    evaluated,
    shifted,
    stretched,
    variable,
    weighted_sum,
)
from collir.semantics.symbolic.naming import Node, children_of, indices_of
from collir.semantics.symbolic.values import outline_of


def with_ranges_joined(expr: Expr) -> Expr:
    """Return an expression in which sums over neighbouring ranges of an index are one."""
    return mapped(expr, _joined)


def _joined(total: Sum) -> Sum:
    groups: dict[Hashable, list[SummedTerm]] = {}
    for term, times in total.terms:
        groups.setdefault((times, outline_of(term.summand)), []).append(term)
    factors = dict(total.terms)
    terms = [
        (joined, factors[members[0]])
        for members in groups.values()
        for joined in _joined_terms(members)
    ]
    return collected(total.number, terms)


def _joined_terms(terms: list[SummedTerm]) -> list[SummedTerm]:
    """Return terms with those joined that are sums over neighbouring ranges, first ranges first."""
    done: list[SummedTerm] = []
    left = sorted(terms, key=lambda term: -sum(index.offset for index in indices_of(term)))
    while left:
        term = left.pop()
        for earlier in done:
            both = _both(earlier, term) or _both(term, earlier)
            if both is not None:
                done.remove(earlier)
                left.append(both)
                break
        else:
            done.append(term)
    return done


def _both(first: SummedTerm, second: SummedTerm) -> SummedTerm | None:
    """Return the sum over the range of one term and then of the other, if there is one."""
    for at in (*range(len(first.bound)), None):
        length = 1 if at is None else first.bound[at].size
        others = Counter(var.size for k, var in enumerate(first.bound) if k != at)
        longer = Counter(var.size for var in second.bound) - others
        if longer.total() > 1 or len(second.bound) - longer.total() != others.total():
            continue
        more = next(iter(longer), 1)
        for candidate, wide, rest in _candidates(first, second, at, more):
            front, back = fresh_variable(length), fresh_variable(more)
            lower = substituted(candidate, {wide: variable(front)})
            upper = substituted(candidate, {wide: shifted(variable(back), length)})
            halves = summed_over(lower, [*rest, front]), summed_over(upper, [*rest, back])
            if halves == (_sum_of(first), _sum_of(second)):
                total = summed_over(candidate, [*rest, wide])
                only = total.only if isinstance(total, Sum) else None
                return only[0] if only is not None and only[1] == 1 else None
    return None


def _sum_of(term: SummedTerm) -> Sum:
    return Sum(Fraction(0), frozenset([(term, Fraction(1))]))


def _candidates(
    first: SummedTerm, second: SummedTerm, at: int | None, more: int
) -> Iterator[tuple[Expr, Var, list[Var]]]:
    """Yield what may be summed over both ranges, the variable of both, and all other variables.

    Args:
        at: the place of the variable of the first range, if that has more than one position.
        more: the length of the second range.
    """
    begin, later = _begin(first), _begin(second)
    if at is not None:
        if later != _end(first, at):
            return
        expr, bound = _opened(first)
        old = bound.pop(at)
        wide = fresh_variable(old.size + more)
        yield with_indices(expr, lambda index: stretched(index, old, wide)), wide, bound
    elif more > 1:
        for place, var in enumerate(second.bound):
            if var.size == more and begin == _before(second, place):
                expr, bound = _opened(second)
                old = bound.pop(place)
                wide = fresh_variable(1 + more)
                yield with_indices(expr, lambda i, o=old, w=wide: _ahead(i, o, w)), wide, bound
    elif first.bound == second.bound and (begin is None or later is None or _is_step(begin, later)):
        expr, bound = _opened(first)
        pairs = list(zip(indices_in(expr), indices_in(_opened(second)[0]), strict=False))
        steps = iter([b.offset - a.offset for a, b in pairs])
        wide = fresh_variable(2)

        def stepped(index: Index) -> Index:
            return weighted_sum([(1, index), (next(steps, 0), variable(wide))])

        if all(b.offset - a.offset in (0, 1) for a, b in pairs):
            yield with_indices(expr, stepped), wide, bound


# --- where ranges begin and end ------------------------------------------------------------------

Places = frozenset[int]
"""The values of the indices of a term at some values of its variables."""


@lru_cache(maxsize=2**12)
def _begin(term: SummedTerm) -> Places | None:
    """Return the places where all variables are 0; None for a term with a choice, as a choice has
    other indices over other ranges."""
    if _has_choice(term):
        return None
    return frozenset(evaluated(index, Counter()) for index in indices_of(term))


@lru_cache(maxsize=2**12)
def _end(term: SummedTerm, at: int) -> Places | None:
    """Return the places where the range of a bound variable has ended, and all others are 0."""
    if _has_choice(term):
        return None
    old = term.bound[at]
    wide = fresh_variable(old.size + 1)
    values = Counter({wide: old.size})
    return frozenset(evaluated(stretched(i, old, wide), values) for i in indices_of(term))


@lru_cache(maxsize=2**12)
def _before(term: SummedTerm, at: int) -> Places | None:
    """Return the places one position before the range of a bound variable, if all others are 0."""
    if _has_choice(term):
        return None
    old = term.bound[at]
    wide = fresh_variable(old.size + 1)
    return frozenset(evaluated(_ahead(i, old, wide), Counter()) for i in indices_of(term))


def _is_step(first: Places, second: Places) -> bool:
    """Return whether all places of a term may be those of another or one behind them."""
    return second <= first | {place + 1 for place in first}


def _has_choice(node: Node) -> bool:
    return isinstance(node, Select) or any(map(_has_choice, children_of(node)))


# --- candidates ----------------------------------------------------------------------------------


def _opened(term: SummedTerm) -> tuple[Expr, list[Var]]:
    """Return what a term sums, with new names for its bound variables."""
    bound = [fresh_variable(var.size) for var in term.bound]
    values = dict(zip(term.bound, map(variable, bound), strict=True))
    return substituted(term_expr(term.summand), values), bound


def _ahead(index: Index, old: Var, wide: Var) -> Index:
    """Return an index over a range that begins one position before the range of ``old``."""
    step = sum(times for times, (base, lo, _) in index.terms if base == old and lo == 1)
    return shifted(stretched(index, old, wide), -step)
