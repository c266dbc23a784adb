"""Arithmetic on expressions: sums, choices, reductions over a variable, substitutions.

Every function returns a normal form, so that equal values have equal expressions wherever possible:

- A sum collects equal terms: ``g[i] + g[i]`` is ``2 * g[i]``.
- A choice has no choice by the same index inside. Neighbouring intervals whose values continue each
  other are joined: a concat of ``g[0:4]`` and ``g[4:8]`` is ``g[0:8]``.
- Bound variables are numbered in order of appearance: the sum of ``g[b]`` over all b has one form,
  whatever b is called.

Two programs are compared by comparing the forms of their results.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from collir.layout import DType, Reduction
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.symbolic.expressions import (
    ZERO_EXPR,
    Cast,
    Expr,
    Extremum,
    Family,
    Input,
    Opaque,
    Product,
    Select,
    Sum,
    Summand,
    SummedSelect,
    SummedTerm,
    UnprovenError,
    constant_expr,
    interval_variable,
    term_expr,
)
from collir.semantics.symbolic.indices import (
    Index,
    Values,
    Var,
    bounds,
    coarse,
    digit_of,
    shifted,
    sole_variable,
    stretched,
    substituted_index,
    variable,
    variables,
    weighted_sum,
)
from collir.semantics.symbolic.naming import Node, ordered, recut
from collir.semantics.symbolic.order import (
    height_of,
    height_of_summand,
    sorted_factors,
    sorted_families,
    sorted_terms,
)

SelectPiece = tuple[int, Var, Expr]
"""The length of an interval, the variable for the position in it, and the value there."""

_fresh_numbers = itertools.count()


# --- sums ---------------------------------------------------------------------------------------


def added(a: Expr, b: Expr) -> Expr:
    """Return the sum of two expressions."""
    if a == ZERO_EXPR:
        return b
    return a if b == ZERO_EXPR else zipped(a, b, _added)


def _added(a: Sum, b: Sum) -> Expr:
    return collected(a.number + b.number, itertools.chain(a.terms, b.terms))


def collected(constant: Fraction, terms: Iterable[tuple[SummedTerm, Fraction]]) -> Sum:
    """Return a sum in which the factors of equal terms are added."""
    factors: dict[SummedTerm, Fraction] = {}
    for term, times in terms:
        known = factors.get(term)
        factors[term] = times if known is None else known + times
    return Sum(constant, frozenset((term, times) for term, times in factors.items() if times))


def scaled(expr: Expr, factor: Fraction) -> Expr:
    """Return an expression times a factor."""
    if factor == 1:
        return expr
    return mapped(expr, lambda leaf: _scaled(leaf, factor))


def _scaled(leaf: Sum, factor: Fraction) -> Sum:
    if not factor:
        return ZERO_EXPR
    return Sum(
        leaf.number * factor, frozenset((term, times * factor) for term, times in leaf.terms)
    )


def cast_expr(expr: Expr, dtype: DType, source: DType) -> Expr:
    """Return an expression converted to ``dtype``; unchanged if that holds all of ``source``."""
    if dtype.holds(source):
        return expr
    return mapped(expr, lambda leaf: _cast(leaf, dtype, source))


def constant_cast(leaf: Sum, dtype: DType) -> Sum:
    """Return a constant converted to ``dtype``; a sum that is no constant is returned unchanged.

    Raises:
        UnprovenError: the type does not hold the constant.
    """
    if dtype is DType.BOOL and not leaf.terms:
        return constant_expr(int(leaf.number != 0))
    if leaf.terms or (leaf.number.denominator == 1 and abs(leaf.number) <= 16):
        return leaf  # every type holds the integers up to 16
    with np.errstate(all="ignore"):
        value = NUMPY[dtype].type(float(leaf.number))
    if not np.isfinite(float(value)):
        raise UnprovenError("a constant that a type does not hold")
    return constant_expr(Fraction(float(value)) if dtype.is_float else Fraction(int(value)))


def _cast(leaf: Sum, dtype: DType, source: DType) -> Expr:
    if not leaf.terms:
        return constant_cast(leaf, dtype)
    if _adds_up_within(leaf, dtype, source):
        return leaf
    summand = leaf.sole_summand
    wraps = not dtype.is_float and not source.is_float
    if (
        isinstance(summand, Extremum) and not wraps and dtype is not DType.BOOL
    ):  # casts that do not wrap keep the order
        families = [Family(f.bound, cast_expr(f.body, dtype, source)) for f in summand.families]
        return extremum(summand.reduction, families)
    return term_expr(Cast(dtype, leaf))


def _adds_up_within(leaf: Sum, dtype: DType, source: DType) -> bool:
    """Return whether a sum is that of values of a type, perhaps of a single one.

    A sum of floats rounds in its type, wherever it does so. A wider type in between rounds less.
    """
    summands = [term.summand for term, _ in leaf.terms]
    held = all(isinstance(x, Input | Opaque | Cast) and dtype.holds(x.dtype) for x in summands)
    floats = dtype.is_float and source.is_float and not leaf.number
    return held and (floats or leaf.sole_summand is not None)


# --- choices ------------------------------------------------------------------------------------


def mapped(expr: Expr, function: Callable[[Sum], Expr]) -> Expr:
    """Return an expression with a function applied to the sum in every branch."""
    if isinstance(expr, Sum):
        return function(expr)
    return _branches_mapped(expr, lambda value: mapped(value, function))


def _branches_mapped(choice: Select, function: Callable[[Expr], Expr]) -> Expr:
    return selection(choice.at, [(var.size, var, function(e)) for _, var, e in choice.pieces])


def zipped(a: Expr, b: Expr, function: Callable[[Sum, Sum], Expr]) -> Expr:
    """Return an expression with a function applied to every pair of sums that occur together."""
    if isinstance(a, Sum):
        if isinstance(b, Sum):
            return function(a, b)
        return _branches_mapped(b, lambda value: zipped(a, value, function))
    if isinstance(b, Select) and b.at == a.at:
        return selection(a.at, list(_aligned(a, b, function)))
    if isinstance(b, Select) and str(b.at) < str(a.at):
        return _branches_mapped(b, lambda value: zipped(a, value, function))
    return _branches_mapped(a, lambda value: zipped(value, b, function))


def _aligned(a: Select, b: Select, function: Callable[[Sum, Sum], Expr]) -> Iterator[SelectPiece]:
    """Yield the pieces of two choices by one index, cut wherever either of them is cut."""
    starts = sorted({start for side in (a, b) for start, _, _ in side.pieces})
    total = sum(length for length, _ in a.branches)
    current = {id(a): 0, id(b): 0}

    def value_from(side: Select, start: int, new: Var) -> Expr:
        """Return the value of a side from ``start`` on, in terms of the variable ``new``."""
        key = id(side)
        while current[key] + 1 < len(side.pieces) and side.pieces[current[key] + 1][0] <= start:
            current[key] += 1
        begin, var, value = side.pieces[current[key]]
        if var == new:
            return value
        return substituted(value, {var: shifted(variable(new), start - begin)})

    for start, end in zip(starts, [*starts[1:], total], strict=True):
        new = interval_variable(a.at, start, end - start)
        value = value_from(a, start, new)
        partner = value if a is b else value_from(b, start, new)
        yield end - start, new, zipped(value, partner, function)


def selection(at: Index, pieces: Sequence[SelectPiece]) -> Expr:
    """Return the value of the interval that contains an index; the intervals follow from 0 on.

    Intervals that the index cannot lie in are left out. The index is then shifted to start at 0.
    """
    least, most = bounds(at)
    kept: list[tuple[int, int, int, Var, Expr]] = []  # start, cut off in front, length, ...
    start = 0
    for length, var, value in pieces:
        end = start + length
        if end > least and start <= most:
            first, last = max(start, least), min(end, most + 1)
            kept.append((first - least, first - start, last - first, var, value))
        start = end
    from_zero = shifted(at, -least)
    if len(kept) == 1:
        _, skipped, _, var, value = kept[0]
        return substituted(value, {var: shifted(from_zero, skipped)})
    scale, base = _coarse_variable(from_zero)
    if base is not None:
        low = digit_of(base, 1, scale)
        from_zero = weighted_sum([(scale, from_zero), (1, low)])
    finer: list[SelectPiece] = []
    for begin, skipped, length, var, value in kept:
        new = interval_variable(from_zero, begin * scale, length * scale)
        values = {var: shifted(digit_of(variable(new), scale, length), skipped)}
        if base is not None:
            above = digit_of(base, scale, base.size)
            low = digit_of(variable(new), 1, scale)
            values[base] = weighted_sum([(scale, above), (1, low)])
        same = var == new and base is None and not skipped
        finer.append((length * scale, new, value if same else substituted(value, values)))
    return _joined(from_zero, _flattened(from_zero, finer))


def coarsened(expr: Expr) -> Expr:
    """Return an expression in which choices by ``4 * i + j`` between intervals of lengths that are
    multiples of 4 are choices by i, if j is below 4.

    The form is for comparisons: choices by one index, which join, may get different indices.
    """
    if not isinstance(expr, Select):
        return expr
    starts = zip(expr.branches, expr.pieces, strict=True)
    pieces = [(length, var, coarsened(value)) for (length, _), (_, var, value) in starts]
    common, high, low = coarse(expr.at, math.gcd(*(length for length, _, _ in pieces)))
    if common == 1:
        return selection(expr.at, pieces)
    start = 0
    larger: list[SelectPiece] = []
    for length, var, value in pieces:
        new = interval_variable(high, start, length // common)
        at = weighted_sum([(common, variable(new)), (1, low)])
        larger.append((length // common, new, substituted(value, {var: at})))
        start += length // common
    return selection(high, larger)


def _coarse_variable(at: Index) -> tuple[int, Var | None]:
    """Return (lo, v) if the lowest digit of an index is ``(v // lo) % n``, lo > 1; else (1, None).

    A choice by ``v // 4`` is written as a choice by v with intervals that are 4 times as long, so
    that choices by either join.
    """
    if at.terms:
        times, (base, lo, _) = at.terms[-1]
        if times == 1 and isinstance(base, Var) and lo > 1:
            return lo, base
    return 1, None


def _flattened(at: Index, pieces: Sequence[SelectPiece]) -> list[SelectPiece]:
    """Return pieces whose values hold no choices by the same index."""
    flat: list[SelectPiece] = []
    chosen_by = sole_variable(at)
    start = 0
    for length, var, value in pieces:
        if chosen_by is not None and chosen_by in value.free:
            value = substituted(value, {chosen_by: shifted(variable(var), start)})
        value = _with_known_index(value, at, start, var)
        cuts = sorted({0, *_cuts(value, variable(var))})
        if len(cuts) == 1:
            flat.append((length, var, value))
        else:
            for cut, end in zip(cuts, [*cuts[1:], length], strict=True):
                new = interval_variable(at, start + cut, end - cut)
                part = substituted(value, {var: shifted(variable(new), cut)})
                flat.append((end - cut, new, part))
        start += length
    return flat


def _with_known_index(value: Expr, at: Index, start: int, var: Var) -> Expr:
    """Return a value in which choices by ``at`` are choices by ``start + var``, its value there."""
    if isinstance(value, Sum) or not _chooses_by(value, at):
        return value
    pieces = [(v.size, v, _with_known_index(e, at, start, var)) for _, v, e in value.pieces]
    return selection(shifted(variable(var), start) if value.at == at else value.at, pieces)


def _chooses_by(value: Expr, at: Index) -> bool:
    """Return whether a value contains a choice by an index."""
    if isinstance(value, Sum):
        return False
    return value.at == at or any(_chooses_by(e, at) for _, e in value.branches)


def _cuts(value: Expr, at: Index) -> Iterator[int]:
    """Yield the starts of the intervals of all choices by an index in a value."""
    if isinstance(value, Select):
        for start, _, inner in value.pieces:
            if value.at == at:
                yield start
            yield from _cuts(inner, at)


def _joined(at: Index, pieces: Sequence[SelectPiece]) -> Expr:
    """Return the choice, with intervals whose values continue each other joined."""
    joined: list[tuple[int, SelectPiece, object]] = []  # start, piece, outline
    start = 0
    for piece in pieces:
        joined.append((start, piece, outline(piece[2])))
        start += piece[0]
        while len(joined) > 1 and joined[-2][2] == joined[-1][2]:
            (begin, first, _), (_, second, _) = joined[-2:]
            both = _continued(at, begin, first, second)
            if both is None:
                break
            joined[-2:] = [(begin, both, outline(both[2]))]
    if len(joined) == 1:
        _, var, value = joined[0][1]
        return substituted(value, {var: at})
    return Select(at, tuple((length, value) for _, (length, _, value), _ in joined))


def outline(value: Expr) -> object:
    """Return a key by which parts of one value are found; it is equal for all of them."""
    if isinstance(value, Select):
        return len(value.branches)
    terms = frozenset((_outline_of(term.summand), times) for term, times in value.terms)
    return value.number, terms


def _outline_of(summand: Summand) -> object:
    if isinstance(summand, Input):
        return summand.argument, summand.dtype
    return type(summand)


def _continued(
    at: Index, start: int, first: SelectPiece, second: SelectPiece
) -> SelectPiece | None:
    """Return two neighbouring pieces as one, or None if the second does not continue the first."""
    (length, var, value), (next_length, next_var, next_value) = first, second
    total = length + next_length
    wide = interval_variable(at, start, total)

    def covers_both(candidate: Expr) -> bool:
        front = substituted(candidate, {wide: variable(var)})
        back = substituted(candidate, {wide: shifted(variable(next_var), length)})
        return front == value and back == next_value

    by_stretching = stretched_expr(value, var, wide)
    if covers_both(by_stretching):
        return total, wide, by_stretching
    if next_length <= length or length == 1:
        by_steps = _stepped(value, var, next_value, wide, length)
        if by_steps is not None and covers_both(by_steps):
            return total, wide, by_steps
    return None


def _stepped(value: Expr, var: Var, next_value: Expr, wide: Var, period: int) -> Expr | None:
    """Return a value whose indices increase by a step after every period, as ``next_value`` says.

    A buffer cut into blocks of 4 and put together again in reverse has this form.
    """
    indices, next_indices = list(indices_in(value)), list(indices_in(next_value))
    if len(indices) != len(next_indices):
        return None
    steps = [b.offset - a.offset for a, b in zip(indices, next_indices, strict=True)]
    number = itertools.count()
    inner = digit_of(variable(wide), 1, period)
    outer = digit_of(variable(wide), period, -(-wide.size // period))

    def with_step(index: Index) -> Index:
        return weighted_sum(
            [(1, substituted_index(index, {var: inner})), (steps[next(number)], outer)]
        )

    return with_indices(value, with_step)


# --- substitution -------------------------------------------------------------------------------


def substituted(expr: Expr, values: Values) -> Expr:
    """Return an expression with variables replaced by indices, all at once."""
    if expr.free.isdisjoint(values):
        return expr
    if isinstance(expr, Select):
        inner = [(var.size, var, substituted(e, values)) for _, var, e in expr.pieces]
        return selection(substituted_index(expr.at, values), inner)
    terms: list[tuple[SummedTerm, Fraction]] = []
    others: list[Expr] = []
    for term, times in expr.terms:
        new = term if term.free.isdisjoint(values) else _term_substituted(term, values)
        if isinstance(new, SummedTerm):
            terms.append((new, times))
        else:
            others.append(scaled(new, times))
    total: Expr = collected(expr.number, terms)
    for addend in others:
        total = added(total, addend)
    return total


def _term_substituted(term: SummedTerm, values: Values) -> SummedTerm | Expr:
    summand = term.summand
    if isinstance(summand, Input | Opaque):
        new = _moved(summand, lambda index: substituted_index(index, values))
        return (
            SummedTerm(term.bound, new) if len(term.bound) < 2 else numbered_term(term.bound, new)
        )
    fresh = {var: fresh_variable(var.size) for var in term.bound}
    merged = {**values, **{var: variable(new) for var, new in fresh.items()}}
    return summed_over(_summand_substituted(summand, merged), list(fresh.values()))


def _summand_substituted(summand: Summand, values: Values) -> Expr:
    match summand:
        case Input() | Opaque():
            return term_expr(_moved(summand, lambda index: substituted_index(index, values)))
        case Cast():
            body = substituted(summand.body, values)
            return mapped(body, lambda leaf: term_expr(Cast(summand.dtype, leaf)))
        case Extremum():
            families = [family_substituted(family, values) for family in summand.families]
            return extremum(summand.reduction, families)
        case Product():
            return _product([(family_substituted(f, values), n) for f, n in summand.factors])
        case SummedSelect():
            return substituted(summand.body, values)


def family_substituted(family: Family, values: Values) -> Family:
    """Return a family with variables replaced, and with fresh bound variables."""
    fresh = {var: fresh_variable(var.size) for var in family.bound}
    merged = {**values, **{var: variable(new) for var, new in fresh.items()}}
    return Family(tuple(fresh.values()), substituted(family.body, merged))


def _moved(element: Input | Opaque, function: Callable[[Index], Index]) -> Input | Opaque:
    """Return another element of the same tensor: a function is applied to its indices."""
    return type(element)(
        element.source, tuple(function(index) for index in element.at), element.dtype
    )


def fresh_variable(size: int) -> Var:
    """Return a new variable that is bound and not numbered yet."""
    return Var("new", next(_fresh_numbers), size)


def stretched_expr(expr: Expr, old: Var, new: Var) -> Expr:
    """Return an expression with ``old`` replaced by the larger ``new``, as it would continue."""
    return with_indices(expr, lambda index: stretched(index, old, new))


def indices_in(expr: Expr) -> Iterator[Index]:
    """Return an iterator over all indices in an expression, in a fixed order."""
    indices: list[Index] = []

    def keep(index: Index) -> Index:
        indices.append(index)
        return index

    with_indices(expr, keep)
    return iter(indices)


def with_indices(expr: Expr, function: Callable[[Index], Index]) -> Expr:
    """Return an expression with a function applied to every index; choices keep their intervals."""
    if isinstance(expr, Select):
        at = function(expr.at)
        branches: list[tuple[int, Expr]] = []
        for start, var, value in expr.pieces:
            new = interval_variable(at, start, var.size)
            renamed = value if new == var else substituted(value, {var: variable(new)})
            branches.append((var.size, with_indices(renamed, function)))
        return Select(at, tuple(branches))
    total: Expr = Sum(expr.number)
    for term, times in sorted_terms(expr):
        value = _summand_with_indices(term.summand, function)
        for var in term.bound:
            fresh = fresh_variable(var.size)
            value = summed(substituted(value, {var: variable(fresh)}), fresh)
        total = added(total, scaled(value, times))
    return total


def _summand_with_indices(summand: Summand, function: Callable[[Index], Index]) -> Expr:
    def changed(family: Family) -> Family:
        return Family(family.bound, with_indices(family.body, function))

    match summand:
        case Input() | Opaque():
            return term_expr(_moved(summand, function))
        case Cast():
            body = with_indices(summand.body, function)
            return mapped(body, lambda leaf: term_expr(Cast(summand.dtype, leaf)))
        case Extremum():
            return extremum(summand.reduction, [changed(f) for f in sorted_families(summand)])
        case Product():
            return product_expr([(changed(family), n) for family, n in sorted_factors(summand)])
        case SummedSelect():
            return with_indices(summand.body, function)


# --- reductions over a variable -----------------------------------------------------------------


def reduced(expr: Expr, var: Var, reduction: Reduction) -> Expr:
    """Return the reduction of an expression over all values of a variable."""
    if reduction is Reduction.AVG:
        return scaled(summed(expr, var), Fraction(1, var.size))
    if reduction is Reduction.SUM:
        return summed(expr, var)
    if var not in expr.free:
        if reduction is not Reduction.PROD:
            return expr
        return mapped(expr, lambda leaf: _power(leaf, var.size))
    if isinstance(expr, Select):
        if var not in variables(expr.at):
            return _branches_mapped(expr, lambda value: reduced(value, var, reduction))
        if sole_variable(expr.at) == var:
            total, *parts = [_reduced_interval(v, e, reduction) for _, v, e in expr.pieces]
            for part in parts:
                total = _combined(total, part, reduction)
            return total
        family = Family((var,), expr)
        if reduction is Reduction.PROD:
            return product_expr([(family, 1)])
        return extremum(reduction, [family])
    if reduction is Reduction.PROD:
        return _product_over(expr, var)
    return _extremum_over(expr, var, reduction)


def _reduced_interval(var: Var, value: Expr, reduction: Reduction) -> Expr:
    """Return the reduction of the value of an interval over its position."""
    fresh = fresh_variable(var.size)
    return reduced(substituted(value, {var: variable(fresh)}), fresh, reduction)


def _combined(a: Expr, b: Expr, reduction: Reduction) -> Expr:
    """Return the product, maximum or minimum of two expressions."""
    if reduction is Reduction.PROD:
        return zipped(a, b, lambda x, y: product_expr([(Family((), x), 1), (Family((), y), 1)]))
    return zipped(a, b, lambda x, y: extremum(reduction, [Family((), x), Family((), y)]))


def _product_over(total: Sum, var: Var) -> Expr:
    """Return the product of a sum over all values of a variable; a factor is taken out."""
    if only := total.only:
        term, times = only
        inner = product_expr([(Family((var,), _sum_of(term)), 1)])
        return scaled(inner, _constant_power(times, var.size))
    return product_expr([(Family((var,), total), 1)])


def _extremum_over(total: Sum, var: Var, reduction: Reduction) -> Expr:
    """Return the extremum of a sum over all values of a variable; terms without it stay outside."""
    independent = frozenset((term, times) for term, times in total.terms if var not in term.free)
    dependent = Sum(Fraction(0), total.terms - independent)
    inner = extremum(reduction, [Family((var,), dependent)])
    return added(Sum(total.number, independent), inner)


def _sum_of(term: SummedTerm) -> Sum:
    return Sum(Fraction(0), frozenset([(term, Fraction(1))]))


_OPPOSITE = {Reduction.MAX: Reduction.MIN, Reduction.MIN: Reduction.MAX}


def extremum(reduction: Reduction, families: Iterable[Family]) -> Expr:
    """Return the largest or smallest of all values of families."""
    needed = [
        Family(tuple(var for var in family.bound if var in family.body.free), family.body)
        for family in families
    ]
    if len(needed) == 1 and (simple := _sole_extremum(reduction, needed[0])) is not None:
        return simple
    members = {member for family in needed for member in _members(reduction, family)}
    if len(members) == 1:
        (member,) = members
        if not member.bound:
            return member.body
    return term_expr(Extremum(reduction, frozenset(members)))


def _sole_extremum(reduction: Reduction, family: Family) -> Expr | None:
    """Return the extremum of one family, if it is the value itself or a factor can be taken out."""
    if not family.bound:
        return family.body
    only = family.body.only if isinstance(family.body, Sum) else None
    if only is None or only[1] == 1:
        return None
    term, times = only
    side = reduction if times > 0 else _OPPOSITE[reduction]
    return scaled(extremum(side, [Family(family.bound, _sum_of(term))]), times)


def _members(reduction: Reduction, family: Family) -> Iterator[Family]:
    """Yield a family, or the families of an extremum of the same kind that the family is."""
    inner = family.body.sole_summand if isinstance(family.body, Sum) else None
    if not isinstance(inner, Extremum) or inner.reduction is not reduction:
        yield _numbered_family(family.bound, family.body)
        return
    for nested in inner.families:
        fresh = family_substituted(nested, {})
        used = tuple(var for var in family.bound if var in fresh.body.free)
        yield _numbered_family(used + fresh.bound, fresh.body)


def _product(factors: Sequence[tuple[Family, int]]) -> Expr:
    """Return the product of families to powers; of choices it is a choice of products."""
    choices = [(f.body, n) for f, n in factors if not f.bound and isinstance(f.body, Select)]
    rest = [(f, n) for f, n in factors if f.bound or isinstance(f.body, Sum)]
    total = product_expr(rest)
    for choice, power in choices:
        total = zipped(
            total,
            choice,
            lambda x, y, n=power: product_expr([(Family((), x), 1), (Family((), y), n)]),
        )
    return total


def product_expr(factors: Iterable[tuple[Family, int]]) -> Expr:
    """Return the product of all values of families, each to its power."""
    powers: dict[Family, int] = {}
    constant = Fraction(1)
    for factor in factors:
        family, power = _without_unused(*factor)
        if isinstance(family.body, Sum) and not family.body.terms:
            constant *= _constant_power(family.body.number, power)
            continue
        for nested, nested_power in _factors_of(family, power):
            powers[nested] = powers.get(nested, 0) + nested_power
    if not constant or not powers:
        return constant_expr(constant)
    if len(powers) == 1:
        ((family, power),) = powers.items()
        if power == 1 and not family.bound:
            return scaled(family.body, constant)
    return term_expr(Product(frozenset(powers.items())), constant)


def _without_unused(family: Family, power: int) -> tuple[Family, int]:
    """Return a factor without bound variables that only repeat it; the power counts repetitions."""
    used = tuple(var for var in family.bound if var in family.body.free)
    repetitions = math.prod(var.size for var in family.bound if var not in used)
    return Family(used, family.body), power * repetitions


def _factors_of(family: Family, power: int) -> Iterator[tuple[Family, int]]:
    """Yield a family to a power, or the factors of the product that the family is."""
    inner = family.body.sole_summand if isinstance(family.body, Sum) else None
    if not isinstance(inner, Product):
        yield _numbered_family(family.bound, family.body), power
        return
    for nested, nested_power in inner.factors:
        fresh = family_substituted(nested, {})
        outer, total_power = _without_unused(Family(family.bound, fresh.body), power * nested_power)
        yield _numbered_family(outer.bound + fresh.bound, fresh.body), total_power


def _power(leaf: Sum, power: int) -> Expr:
    if leaf.terms:
        return product_expr([(Family((), leaf), power)])
    return constant_expr(_constant_power(leaf.number, power))


def _constant_power(value: Fraction, power: int) -> Fraction:
    if power > 2**16 and abs(value) not in (0, 1):
        raise UnprovenError("a constant to the power of thousands")
    return value**power


def summed(expr: Expr, var: Var) -> Expr:
    """Return the sum of an expression over all values of a variable."""
    if var not in expr.free:
        return scaled(expr, Fraction(var.size))
    if isinstance(expr, Select):
        if var not in variables(expr.at):
            return _branches_mapped(expr, lambda value: summed(value, var))
        if sole_variable(expr.at) == var:
            total: Expr = ZERO_EXPR
            for _, inner, value in expr.pieces:
                total = added(total, _reduced_interval(inner, value, Reduction.SUM))
            return total
        return _sum_of(numbered_term((var,), SummedSelect(expr)))
    terms = (
        (_with_bound(term, var), times) if var in term.free else (term, times * var.size)
        for term, times in expr.terms
    )
    return collected(expr.number * var.size, terms)


def summed_over(expr: Expr, over: Sequence[Var]) -> Expr:
    """Return the sum of an expression over all values of variables."""
    only = expr.only if isinstance(expr, Sum) else None
    if only is None or only[0].bound:
        for var in over:
            expr = summed(expr, var)
        return expr
    term, times = only
    used = tuple(var for var in over if var in term.free)
    repetitions = math.prod(var.size for var in over if var not in used)
    term = numbered_term(used, term.summand) if used else term
    return Sum(Fraction(0), frozenset([(term, times * repetitions)]))


def _with_bound(term: SummedTerm, var: Var) -> SummedTerm:
    """Return a term summed over another variable too."""
    fresh = {old: fresh_variable(old.size) for old in term.bound}
    summand = term.summand
    if fresh:
        values = {old: variable(new) for old, new in fresh.items()}
        summand = _renamed(summand, values)
    return numbered_term((*fresh.values(), var), summand)


# --- numbers of bound variables -----------------------------------------------------------------


def numbered_term(bound: tuple[Var, ...], summand: Summand) -> SummedTerm:
    """Return a term whose bound variables are cut, joined and numbered alike in equal terms."""
    values, new = recut(summand, bound, fresh_variable)
    if values:
        summand = _renamed(summand, values)
        bound = (*(var for var in bound if var not in values), *new)
    names = _names(bound, [summand], height_of_summand(summand))
    return SummedTerm(_sorted_bound(names), _renamed(summand, names))


def _numbered_family(bound: tuple[Var, ...], body: Expr) -> Family:
    """Return a family whose bound variables are cut, joined and numbered alike in equal ones."""
    if not bound:
        return Family((), body)
    values, new = recut(body, bound, fresh_variable)
    if values:
        body = substituted(body, values)
        bound = (*(var for var in bound if var not in values), *new)
    names = _names(bound, [body], height_of(body))
    return Family(_sorted_bound(names), substituted(body, names))


def _names(bound: tuple[Var, ...], nodes: Sequence[Node], height: int) -> dict[Var, Index]:
    """Return the new variables for bound ones: numbers from ``height`` on."""
    return {
        var: variable(Var("bound", height + n, var.size))
        for n, var in enumerate(ordered(bound, nodes))
    }


def _sorted_bound(names: dict[Var, Index]) -> tuple[Var, ...]:
    bound = [sole_variable(index) for index in names.values()]
    return tuple(sorted((var for var in bound if var is not None), key=str))


def _renamed(summand: Summand, names: dict[Var, Index]) -> Summand:
    if isinstance(summand, Input | Opaque):
        return _moved(summand, lambda index: substituted_index(index, names))
    if isinstance(summand, SummedSelect):
        return SummedSelect(substituted(summand.body, names))
    return _only_summand(_summand_substituted(summand, names))


def _only_summand(expr: Expr) -> Summand:
    """Return the summand of an expression that is a single term.

    Raises:
        UnprovenError: it is not.
    """
    only = expr.only if isinstance(expr, Sum) else None
    if only is None:
        raise UnprovenError("what is put together and multiplied has too many forms")
    return only[0].summand
