"""Comparison of expressions: a proof that they are equal, or a proven difference.

An element of a result is a sum of contributions: ``2 * g[0] + g[3]`` counts ``g[0]`` twice and
``g[3]`` once. If two expressions count an element of an input a different number of times, there
are inputs for which their values differ. So such an element proves that they are not equal.

To find one, expressions are compared at points. A point is a device and a position in its buffer;
points are chosen at the ends of all intervals, at the corners of the mesh and the buffer, and at
random. At a point every index is a number, and an expression is a sum over elements of inputs.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from collir.semantics.symbolic.algebra import (
    coarsened,
    indices_in,
    substituted,
    with_indices,
    zipped,
)
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
    """An input element, with the expected and the actual number of times that it counts."""

    atom: Atom
    expected: Fraction
    actual: Fraction


@dataclass(frozen=True)
class ProvenDifference:
    """A proven difference between two expressions at a point.

    Attributes:
        point: the device and the position, as values of their variables.
        atom: an element that is not counted as often as expected, or None if only the constants
            differ.
        expected: the number of times that the atom should count; without an atom, the constant that
            is expected.
        actual: the number of times that the atom does count; without an atom, the actual constant.
        more: an element that counts more often than it should, if there is one.
        alone: True if each of the two expressions is a single input element or a constant.
        constants: the constants of the expected and of the actual expression.
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
    """Return whether two expressions are proven equal; False does not mean that they differ.

    Args:
        tolerance: the relative difference that factors and constants may have.
    """
    if a == b:
        return True

    def close(x: Fraction, y: Fraction) -> bool:
        return abs(x - y) <= tolerance * max(abs(x), abs(y))

    def difference(x: Sum, y: Sum) -> Expr:
        """Return 0 if two sums are equal, up to the tolerance, and 1 if that is not shown."""
        terms, counterparts = dict(x.terms), dict(y.terms)
        for term in [term for term in terms if term not in counterparts]:
            candidates = (t for t in counterparts if t not in terms and _same_term(term, t))
            if (counterpart := next(candidates, None)) is not None:
                counterparts[term] = counterparts.pop(counterpart)
        equal = (
            close(x.number, y.number)
            and terms.keys() == counterparts.keys()
            and all(close(times, counterparts[term]) for term, times in terms.items())
        )
        return ZERO_EXPR if equal else constant_expr(1)

    a, b = (with_indices(coarsened(x), comparison_form) for x in (a, b))
    return zipped(a, b, difference) == ZERO_EXPR


def _same_term(a: SummedTerm, b: SummedTerm) -> bool:
    """Return whether two terms sum the same input elements, by enumerating assignments."""
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
) -> ProvenDifference | None:
    """Return a difference between two expressions at some point, or None if no point shows one."""
    rng = random.Random(0)
    for point in _points([expected, actual], free, rng):
        at_point = [substituted(expr, _constants(point)) for expr in (expected, actual)]
        difference = _difference_at(point, at_point[0], at_point[1], tolerance, rng)
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
    """Yield variables with the least value at which a digit is not 0; in a nested index, with 1."""
    for index in (index for expr in exprs for index in indices_in(expr)):
        for _, (base, lo, _) in index.terms:
            if isinstance(base, Var):
                yield base, lo
            else:
                yield from ((var, 1) for var in variables(base))


def _interval_ends(exprs: Sequence[Expr]) -> Iterator[tuple[Index, int]]:
    """Yield the ends of the intervals of each choice, inner choices included.

    An end is the index that the choice depends on, and its first or last value in an interval.
    """
    for expr in exprs:
        if isinstance(expr, Select):
            for start, var, inner in expr.pieces:
                yield expr.at, start
                yield expr.at, start + var.size - 1
                position = {var: Index(expr.at.offset - start, expr.at.terms)}
                for at, target in _interval_ends([inner]):
                    yield substituted_index(at, position), target


def _solution(at: Index, target: int) -> dict[Var, int]:
    """Return values of variables, chosen greedily, that bring an index near ``target``."""
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
) -> ProvenDifference | None:
    """Return a difference between two expressions, already evaluated at ``point``, or None."""
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
        return ProvenDifference(
            point, first.atom, first.expected, first.actual, more, alone, constants
        )
    largest = max(abs(expected.number), abs(actual.number))
    if abs(expected.number - actual.number) > tolerance * largest:
        return ProvenDifference(point, None, expected.number, actual.number)
    return None


def _miscounts(
    expected: Sum, actual: Sum, tolerance: Fraction, rng: random.Random
) -> Iterator[Miscount]:
    """Yield the input elements that ``actual`` does not count as often as ``expected`` does."""
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
    """Yield the input elements in a summand: all of them, or a sample if there are many."""
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
    """Return how often an atom counts in a choice, by enumerating the values of ``bound``."""
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
        later = sum(times * (n - 1) for times, (_, _, n) in index.terms)
        for times, (base, lo, n) in index.terms:
            later -= times * (n - 1)  # the most that the terms after this one can add up to
            if not isinstance(base, Var) or (lo, n) != (1, base.size) or times <= later:
                raise UnprovenError("an index that several values of variables may give")
            values.setdefault(base, min(n - 1, max(0, left // times)))
            left -= times * values[base]
        if left:
            return 0
    return math.prod(var.size for var in bound if var not in values)
