"""Comparison of expressions: equality, or an input element that counts another number of times.

An element of a result is a sum of contributions: ``2 * g[0] + g[3]`` counts ``g[0]`` twice and
``g[3]`` once. If two expressions count an element of an input differently, there are inputs for
which their values differ, so the difference is proven.

Expressions are compared at points. A point is a device and a position, chosen from the ends of all
intervals, the corners of the mesh and the buffer, and at random. At a point every index is a
number, and an expression is a sum over elements of inputs.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from collir.semantics.symbolic.algebra import indices_in, substituted, with_indices, zipped
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
    Term,
    UnprovenError,
    constant_expr,
)
from collir.semantics.symbolic.indices import (
    Index,
    Var,
    comparison_form,
    constant,
    evaluated,
    substituted_index,
    variables,
)
from collir.semantics.symbolic.order import sort_key, sort_key_of_family, sorted_terms

Atom = Input | Opaque
"""An element of an input or of a computation's result; here mostly with constant indices."""

Assignment = Mapping[Var, int]
"""Values of variables."""

MOST_POINTS = 400
"""The most points at which two expressions are compared."""

_ENUMERATED = 4096
"""The most assignments of variables that are enumerated."""


@dataclass(frozen=True)
class Miscount:
    """An input element and the number of times that it should count, and does, in an expression."""

    atom: Atom
    expected: Fraction
    actual: Fraction


@dataclass(frozen=True)
class Difference:
    """A proven difference between two expressions at a point.

    Attributes:
        point: the device and the position, as values of their variables.
        atom: an element that counts another number of times; None: the constants differ.
        expected: the number of times that the atom should count, or the expected constant.
        actual: the number of times that the atom counts, or the constant.
        more: an element that counts more often than it should, if there is one.
        alone: both expressions are a single input element or a constant.
        constants: the expected constant and the constant.
    """

    point: Assignment
    atom: Atom | None
    expected: Fraction
    actual: Fraction
    more: Miscount | None = None
    alone: bool = False
    constants: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))


# --- equality -----------------------------------------------------------------------------------


def expressions_equal(a: Expr, b: Expr, tolerance: Fraction) -> bool:
    """Return whether two expressions are the same sums; False if that is not seen.

    Args:
        tolerance: the relative difference that factors may have.
    """
    if a == b:
        return True

    def close(x: Fraction, y: Fraction) -> bool:
        return abs(x - y) <= tolerance * max(abs(x), abs(y))

    def difference(x: Sum, y: Sum) -> Expr:
        terms, counterparts = dict(x.terms), dict(y.terms)
        for term in [term for term in terms if term not in counterparts]:
            candidates = (t for t in counterparts if t not in terms and _same_term(term, t))
            if (same := next(candidates, None)) is not None:
                counterparts[term] = counterparts.pop(same)
        equal = (
            close(x.number, y.number)
            and terms.keys() == counterparts.keys()
            and all(close(times, counterparts[term]) for term, times in terms.items())
        )
        return ZERO_EXPR if equal else constant_expr(1)

    a, b = with_indices(a, comparison_form), with_indices(b, comparison_form)
    return zipped(a, b, difference) == ZERO_EXPR


def _same_term(a: Term, b: Term) -> bool:
    """Return whether two terms are the same input element, by enumerating assignments."""
    x, y = a.summand, b.summand
    if a.bound != b.bound or not isinstance(x, Atom) or not isinstance(y, Atom):
        return False
    if _tensor_of(x) != _tensor_of(y):
        return False
    return all(_same_index(i, j) for i, j in zip(x.at, y.at, strict=True))


def _same_index(a: Index, b: Index) -> bool:
    """Return whether two indices are equal; False if there are too many assignments to try."""
    if a == b:
        return True
    used = sorted(variables(a) | variables(b), key=str)
    if math.prod(var.size for var in used) > _ENUMERATED:
        return False
    return all(evaluated(a, point) == evaluated(b, point) for point in _assignments(used))


def _assignments(used: Sequence[Var]) -> Iterator[dict[Var, int]]:
    """Yield all assignments of variables."""
    for values in product(*(range(var.size) for var in used)):
        yield dict(zip(used, values, strict=True))


def _constants(point: Assignment) -> dict[Var, Index]:
    return {var: constant(value) for var, value in point.items()}


def _tensor_of(atom: Atom) -> tuple[type, int, object, int]:
    """Return a key for the input or the computation that an atom is an element of."""
    return type(atom), atom.source, atom.dtype, len(atom.at)


# --- differences --------------------------------------------------------------------------------


def first_difference(
    expected: Expr, actual: Expr, free: Sequence[Var], tolerance: Fraction
) -> Difference | None:
    """Return a proven difference between two expressions, or None if no point shows one."""
    rng = random.Random(0)
    for point in _points([expected, actual], free, rng):
        sides = [substituted(side, _constants(point)) for side in (expected, actual)]
        difference = _difference_at(point, sides[0], sides[1], tolerance, rng)
        if difference is not None:
            return difference
    return None


def _points(
    exprs: Sequence[Expr], free: Sequence[Var], rng: random.Random
) -> Iterator[dict[Var, int]]:
    """Yield points at which expressions may differ: corners, ends of intervals, random points."""
    corners = [dict.fromkeys(free, 0)]
    corners += [{var: var.size - 1 for var in free}]
    for var in free:
        corners += [{**corners[0], var: n} for n in {min(1, var.size - 1), var.size - 1}]
    candidates = [*corners]
    for var, step in dict.fromkeys(_steps(exprs)):
        if var in corners[0]:
            candidates.append({**corners[0], var: step})
    for at, target in _interval_ends(exprs):
        for base in (corners[0], corners[1]):
            candidates.append({**base, **_solution(at, target)})
    candidates += [{var: rng.randrange(var.size) for var in free} for _ in range(64)]
    seen: set[tuple[int, ...]] = set()
    for point in candidates:
        key = tuple(point.get(var, 0) for var in free)
        if key not in seen and len(seen) < MOST_POINTS:
            seen.add(key)
            yield dict(zip(free, key, strict=True))


def _steps(exprs: Sequence[Expr]) -> Iterator[tuple[Var, int]]:
    """Yield variables with the smallest value that changes one of their digits."""
    for index in (index for expr in exprs for index in indices_in(expr)):
        for _, (base, lo, _) in index.terms:
            if isinstance(base, Var):
                yield base, lo
            else:
                yield from ((var, 1) for var in variables(base))


def _interval_ends(exprs: Sequence[Expr]) -> Iterator[tuple[Index, int]]:
    """Yield the index of each choice with the first and the last value of each interval."""
    for expr in exprs:
        if isinstance(expr, Select):
            for start, var, inner in expr.pieces:
                yield expr.at, start
                yield expr.at, start + var.size - 1
                position = {var: Index(expr.at.offset - start, expr.at.terms)}
                for at, target in _interval_ends([inner]):
                    yield substituted_index(at, position), target


def _solution(at: Index, target: int) -> dict[Var, int]:
    """Return values of variables for which an index is near ``target``, set greedily."""
    values: dict[Var, int] = {}
    left = target - at.offset
    for times, (base, lo, n) in at.terms:
        digit = max(0, min(n - 1, left // times)) if times > 0 else 0
        left -= times * digit
        if isinstance(base, Var):
            values[base] = min(base.size - 1, values.get(base, 0) + digit * lo)
    return values


def _difference_at(
    point: Assignment, expected: Expr, actual: Expr, tolerance: Fraction, rng: random.Random
) -> Difference | None:
    """Return a difference between the sums that two expressions are at a point."""
    if expected == actual:
        return None
    if isinstance(expected, Select) or isinstance(actual, Select):
        return None
    miscounts = list(_miscounts(expected, actual, tolerance, rng))
    if miscounts:
        first = min(miscounts, key=lambda miscount: (miscount.expected == 0, miscount.actual != 0))
        more = next((m for m in miscounts if abs(m.actual) > abs(m.expected)), None)
        alone = _is_single(expected) and _is_single(actual)
        constants = (expected.number, actual.number)
        return Difference(point, first.atom, first.expected, first.actual, more, alone, constants)
    both = abs(expected.number), abs(actual.number)
    if abs(expected.number - actual.number) > tolerance * max(both):
        return Difference(point, None, expected.number, actual.number)
    return None


def _miscounts(
    expected: Sum, actual: Sum, tolerance: Fraction, rng: random.Random
) -> Iterator[Miscount]:
    """Yield input elements that count another number of times in a sum than expected."""
    factors, actual_factors = dict(expected.terms), dict(actual.terms)
    terms = {**factors, **actual_factors}
    changed = [term for term in terms if factors.get(term) != actual_factors.get(term)]
    atoms: dict[Atom, None] = {}
    for term in sorted(changed, key=lambda term: (term not in factors, sort_key(term.summand))):
        for sample in _samples(term.bound, rng):
            atoms |= dict.fromkeys(_atoms_of(term.summand, sample, rng))
    for atom in atoms:
        try:
            pair = occurrences(expected, atom), occurrences(actual, atom)
        except UnprovenError:
            continue
        if abs(pair[0] - pair[1]) > tolerance * max(map(abs, pair)):
            yield Miscount(atom, *pair)


def _is_single(total: Sum) -> bool:
    """Return whether a sum is one element of an input, or a constant."""
    if len(total.terms) > 1:
        return False
    only = total.only
    return only is None or (not only[0].bound and isinstance(only[0].summand, Input | Opaque))


def _samples(bound: Sequence[Var], rng: random.Random) -> list[dict[Var, int]]:
    """Return all assignments of bound variables, or a few if there are many."""
    if math.prod(var.size for var in bound) <= 64:
        return list(_assignments(bound))
    chosen = [[0] * len(bound), [min(1, v.size - 1) for v in bound], [v.size - 1 for v in bound]]
    chosen += [[rng.randrange(var.size) for var in bound] for _ in range(4)]
    return [dict(zip(bound, values, strict=True)) for values in chosen]


def _atoms_of(summand: Summand, point: Assignment, rng: random.Random) -> Iterator[Atom]:
    """Yield input elements that a summand consists of: all, or a sample if there are many."""
    match summand:
        case Input() | Opaque():
            yield _atom_at(summand, point)
        case Cast() | SummedSelect():
            yield from _atoms_in(summand.body, point, rng)
        case Extremum():
            yield from _atoms_of_families([*summand.families], point, rng)
        case Product():
            families = [family for family, _ in summand.factors]
            yield from _atoms_of_families(families, point, rng)


def _atoms_of_families(
    families: Sequence[Family], point: Assignment, rng: random.Random
) -> Iterator[Atom]:
    for family in sorted(families, key=sort_key_of_family):
        for sample in _samples(family.bound, rng):
            yield from _atoms_in(family.body, {**point, **sample}, rng)


def _atoms_in(expr: Expr, point: Assignment, rng: random.Random) -> Iterator[Atom]:
    total = substituted(expr, _constants(point))
    if isinstance(total, Sum):
        for term, _ in sorted_terms(total):
            for sample in _samples(term.bound, rng):
                yield from _atoms_of(term.summand, sample, rng)


def _atom_at(element: Atom, point: Assignment) -> Atom:
    at = tuple(constant(evaluated(index, point)) for index in element.at)
    return type(element)(element.source, at, element.dtype)


# --- counting -----------------------------------------------------------------------------------


def occurrences(expr: Expr, atom: Atom, bound: tuple[Var, ...] = ()) -> Fraction:
    """Return how often an atom counts in an expression, summed over all values of ``bound``.

    In a maximum or minimum an atom counts once or not at all.

    Raises:
        UnprovenError: the number cannot be determined.
    """
    if isinstance(expr, Select):
        return _enumerated_occurrences(expr, atom, bound)
    total = Fraction(0)
    for term, times in expr.terms:
        total += times * _occurrences_in(term.summand, atom, (*bound, *term.bound))
    return total


def _occurrences_in(summand: Summand, atom: Atom, bound: tuple[Var, ...]) -> Fraction:
    match summand:
        case Input() | Opaque():
            return Fraction(_solutions(summand, atom, bound))
        case Cast() | SummedSelect():
            return occurrences(summand.body, atom, bound)
        case Extremum():
            counts = [occurrences(f.body, atom, (*bound, *f.bound)) for f in summand.families]
            return sum(counts, Fraction(0)) if bound else Fraction(any(counts))
        case Product():
            counts = [n * occurrences(f.body, atom, (*bound, *f.bound)) for f, n in summand.factors]
            return sum(counts, Fraction(0))


def _enumerated_occurrences(expr: Expr, atom: Atom, bound: tuple[Var, ...]) -> Fraction:
    """Return the occurrences of an atom in a choice, by enumerating the values of ``bound``."""
    if math.prod(var.size for var in bound) > _ENUMERATED or not bound:
        raise UnprovenError("too many values to go through")
    total = Fraction(0)
    for point in _assignments(bound):
        total += occurrences(substituted(expr, _constants(point)), atom)
    return total


def _solutions(element: Atom, atom: Atom, bound: tuple[Var, ...]) -> int:
    """Return the number of assignments of bound variables for which an element is this atom."""
    if _tensor_of(element) != _tensor_of(atom):
        return 0
    if math.prod(var.size for var in bound) <= 64:
        return sum(_atom_at(element, point) == atom for point in _assignments(bound))
    values: dict[Var, int] = {}
    for index, target in zip(element.at, atom.at, strict=True):
        left = target.offset - index.offset
        below = sum(times * (n - 1) for times, (_, _, n) in index.terms)
        for times, (base, lo, n) in index.terms:
            below -= times * (n - 1)
            if not isinstance(base, Var) or (lo, n) != (1, base.size) or times <= below:
                raise UnprovenError("an index that several values of variables may give")
            values.setdefault(base, min(n - 1, max(0, left // times)))
            left -= times * values[base]
        if left:
            return 0
    return math.prod(var.size for var in bound if var not in values)
