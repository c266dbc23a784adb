"""Where what two expressions compute differs: an element, an input, and how often it counts.

Devices and elements are tried at the ends of all intervals, at the corners, and at random. At one
of them an expression is a sum over elements of inputs. An element of an input that counts another
number of times is a difference for certain: there is an input on which the results differ.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from collir.semantics.symbolic.algebra import indices_in, rebuilt, replaced, zipped
from collir.semantics.symbolic.expressions import (
    ZERO,
    Best,
    Cast,
    Expr,
    Input,
    Node,
    Opaque,
    Over,
    Product,
    Select,
    Sum,
    Term,
    Total,
    UnprovenError,
    number,
)
from collir.semantics.symbolic.indices import Index, Var, constant, put, settled, value, variables
from collir.semantics.symbolic.order import sort_key, sort_key_over

Atom = Input | Opaque
"""An element of an input: a node whose places are numbers."""

Point = Mapping[Var, int]

TRIES = 400
"""The most elements that are looked at."""

_ENUMERATED = 4096
"""The most values of bound variables that are gone through one by one."""


@dataclass(frozen=True)
class Count:
    """How often an element of an input should count in an element, and how often it does."""

    atom: Atom
    expected: Fraction
    found: Fraction


@dataclass(frozen=True)
class Difference:
    """At ``point``, where a device and an element are chosen, ``atom`` counts ``found`` times and
    not ``expected`` times (no atom: a constant does).

    ``more``: another that counts more often than it should. ``alone``: the element should be one
    element of an input or a constant, and is; ``constants`` are those it should have and has.
    """

    point: Point
    atom: Atom | None
    expected: Fraction
    found: Fraction
    more: Count | None = None
    alone: bool = False
    constants: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))


def equal(one: Expr, other: Expr, tolerance: Fraction) -> bool:
    """Whether two expressions are the same sums everywhere; factors up to a relative tolerance."""
    if one == other:
        return True
    one, other = rebuilt(one, settled), rebuilt(other, settled)

    def close(a: Fraction, b: Fraction) -> bool:
        return abs(a - b) <= tolerance * max(abs(a), abs(b))

    def compare(a: Sum, b: Sum) -> Expr:
        mine, theirs = dict(a.terms), dict(b.terms)
        for key in [key for key in mine if key not in theirs]:
            other = next((o for o in theirs if o not in mine and _same_term(key, o)), None)
            if other is not None:
                theirs[key] = theirs.pop(other)
        same = close(a.number, b.number) and mine.keys() == theirs.keys()
        return ZERO if same and all(close(n, theirs[k]) for k, n in mine.items()) else number(1)

    return zipped(one, other, compare) == ZERO


def _same_term(one: Term, other: Term) -> bool:
    """Whether two terms are the same element of an input, seen by going through all values."""
    mine, theirs = one.node, other.node
    if one.bound != other.bound or not isinstance(mine, Atom) or not isinstance(theirs, Atom):
        return False
    if _named(mine) != _named(theirs):
        return False
    return all(_same_index(a, b) for a, b in zip(mine.at, theirs.at, strict=True))


def _same_index(one: Index, other: Index) -> bool:
    """Whether two indices are equal; False also where that would take too long to say."""
    if one == other:
        return True
    found = sorted(variables(one) | variables(other), key=str)
    if math.prod(var.size for var in found) > _ENUMERATED:
        return False
    every = (dict(zip(found, n, strict=True)) for n in product(*(range(v.size) for v in found)))
    return all(value(one, point) == value(other, point) for point in every)


def _named(node: Atom) -> tuple[type, int, object, int]:
    """Which input a node is an element of."""
    return type(node), node.which, node.dtype, len(node.at)


def first_difference(
    expected: Expr, found: Expr, free: Sequence[Var], tolerance: Fraction
) -> Difference | None:
    """An element for which an input counts another number of times, if one is found."""
    rng = random.Random(0)
    for point in _points([expected, found], free, rng):
        values = {var: constant(n) for var, n in point.items()}
        sides = [replaced(side, values) for side in (expected, found)]
        difference = _at(point, sides[0], sides[1], tolerance, rng)
        if difference is not None:
            return difference
    return None


# --- where to look ------------------------------------------------------------------------------


def _points(
    exprs: Sequence[Expr], free: Sequence[Var], rng: random.Random
) -> Iterator[dict[Var, int]]:
    """Places in which expressions may differ: corners, ends of intervals, random ones."""
    corners = [dict.fromkeys(free, 0)]
    corners += [dict(zip(free, _last(free), strict=True))]
    for var in free:
        corners += [{**corners[0], var: n} for n in {min(1, var.size - 1), var.size - 1}]
    listed = [*corners]
    for var, step in dict.fromkeys(_steps(exprs)):
        if var in corners[0]:
            listed.append({**corners[0], var: step})
    for at, target in _ends(exprs):
        for base in (corners[0], corners[1]):
            listed.append({**base, **_solved(at, target)})
    listed += [{var: rng.randrange(var.size) for var in free} for _ in range(64)]
    seen: set[tuple[int, ...]] = set()
    for point in listed:
        key = tuple(point.get(var, 0) for var in free)
        if key not in seen and len(seen) < TRIES:
            seen.add(key)
            yield dict(zip(free, key, strict=True))


def _steps(exprs: Sequence[Expr]) -> Iterator[tuple[Var, int]]:
    """Variables with the smallest value that changes one of their digits."""
    for index in (index for expr in exprs for index in indices_in(expr)):
        for _, (base, lo, _) in index.terms:
            if isinstance(base, Var):
                yield base, lo
            else:
                yield from ((var, 1) for var in variables(base))


def _last(free: Sequence[Var]) -> list[int]:
    return [var.size - 1 for var in free]


def _ends(exprs: Sequence[Expr]) -> Iterator[tuple[Index, int]]:
    """Indices that choices are made by, with the first and last place of every interval."""
    for expr in exprs:
        if isinstance(expr, Select):
            for start, var, inner in expr.pieces:
                yield expr.at, start
                yield expr.at, start + var.size - 1
                here = {var: Index(expr.at.offset - start, expr.at.terms)}
                for at, target in _ends([inner]):
                    yield put(at, here), target


def _solved(at: Index, target: int) -> dict[Var, int]:
    """Values of variables for which an index is a number, largest digits first."""
    found: dict[Var, int] = {}
    left = target - at.offset
    for times, (base, lo, n) in at.terms:
        digit = max(0, min(n - 1, left // times)) if times > 0 else 0
        left -= times * digit
        if isinstance(base, Var):
            found[base] = min(base.size - 1, found.get(base, 0) + digit * lo)
    return found


# --- what is there ------------------------------------------------------------------------------


def _at(
    point: Point, expected: Expr, found: Expr, tolerance: Fraction, rng: random.Random
) -> Difference | None:
    """A difference between two sums."""
    if expected == found:
        return None
    if isinstance(expected, Select) or isinstance(found, Select):
        return None
    mine, theirs = dict(expected.terms), dict(found.terms)
    changed = [t for t in {**mine, **theirs} if mine.get(t) != theirs.get(t)]
    atoms: dict[Atom, None] = {}
    for one in sorted(changed, key=lambda t: (t not in mine, sort_key(t.node))):
        for sample in _samples(one.bound, rng):
            atoms |= dict.fromkeys(_leaves(one.node, sample, rng))
    wrong: list[Count] = []
    for atom in atoms:
        try:
            pair = count(expected, atom), count(found, atom)
        except UnprovenError:
            continue
        if abs(pair[0] - pair[1]) > tolerance * max(map(abs, pair)):
            wrong.append(Count(atom, *pair))
    if wrong:
        first = min(wrong, key=lambda one: (one.expected == 0, one.found != 0))
        more = next((one for one in wrong if abs(one.found) > abs(one.expected)), None)
        alone = _lone(expected) and _lone(found)
        constants = (expected.number, found.number)
        return Difference(point, first.atom, first.expected, first.found, more, alone, constants)
    both = abs(expected.number), abs(found.number)
    if abs(expected.number - found.number) > tolerance * max(both):
        return Difference(point, None, expected.number, found.number)
    return None


def _lone(one: Expr) -> bool:
    """Whether a sum is one element of an input, or a constant."""
    if isinstance(one, Select) or len(one.terms) > 1:
        return False
    only = one.only
    return only is None or (not only[0].bound and isinstance(only[0].node, Input | Opaque))


def _samples(bound: Sequence[Var], rng: random.Random) -> list[dict[Var, int]]:
    """A few values of bound variables."""
    if math.prod(var.size for var in bound) <= 64:
        every = product(*(range(var.size) for var in bound))
        return [dict(zip(bound, one, strict=True)) for one in every]
    chosen = [[0] * len(bound), [min(1, v.size - 1) for v in bound], [v.size - 1 for v in bound]]
    chosen += [[rng.randrange(var.size) for var in bound] for _ in range(4)]
    return [dict(zip(bound, one, strict=True)) for one in chosen]


def _leaves(node: Node, at: Point, rng: random.Random) -> Iterator[Atom]:
    """Elements of inputs that a node is made of: all, or some of many."""
    match node:
        case Input() | Opaque():
            yield _ground(node, at)
        case Cast() | Total():
            yield from _leaves_in(node.body, at, rng)
        case Best() | Product():
            parts = [one if isinstance(one, Over) else one[0] for one in node.of]
            for one in sorted(parts, key=sort_key_over):
                for sample in _samples(one.bound, rng):
                    yield from _leaves_in(one.body, {**at, **sample}, rng)


def _leaves_in(one: Expr, at: Point, rng: random.Random) -> Iterator[Atom]:
    here = replaced(one, {var: constant(n) for var, n in at.items()})
    if isinstance(here, Sum):
        for key, _ in sorted(here.terms, key=lambda one: (sort_key(one[0].node), one[1])):
            for sample in _samples(key.bound, rng):
                yield from _leaves(key.node, sample, rng)


def _ground(node: Atom, at: Point) -> Atom:
    places = tuple(constant(value(index, at)) for index in node.at)
    return type(node)(node.which, places, node.dtype)


# --- how often ----------------------------------------------------------------------------------


def count(one: Expr, atom: Atom, bound: tuple[Var, ...] = ()) -> Fraction:
    """How often an element of an input counts in an expression, for all values of ``bound``.

    In a largest or smallest value it counts once or not at all.

    Raises:
        UnprovenError: that is not to be seen.
    """
    if isinstance(one, Select):
        return _one_by_one(one, atom, bound)
    total = Fraction(0)
    for key, times in one.terms:
        total += times * _in_node(key.node, atom, (*bound, *key.bound))
    return total


def _in_node(node: Node, atom: Atom, bound: tuple[Var, ...]) -> Fraction:
    match node:
        case Input() | Opaque():
            return Fraction(_solutions(node, atom, bound))
        case Cast() | Total():
            return count(node.body, atom, bound)
        case Best():
            there = [count(one.body, atom, (*bound, *one.bound)) for one in node.of]
            return sum(there, Fraction(0)) if bound else Fraction(any(there))
        case Product():
            found = [n * count(one.body, atom, (*bound, *one.bound)) for one, n in node.of]
            return sum(found, Fraction(0))


def _one_by_one(one: Expr, atom: Atom, bound: tuple[Var, ...]) -> Fraction:
    if math.prod(var.size for var in bound) > _ENUMERATED or not bound:
        raise UnprovenError("too many values to go through")
    total = Fraction(0)
    for chosen in product(*(range(var.size) for var in bound)):
        values = {var: constant(n) for var, n in zip(bound, chosen, strict=True)}
        total += count(replaced(one, values), atom)
    return total


def _solutions(node: Atom, atom: Atom, bound: tuple[Var, ...]) -> int:
    """For how many values of bound variables a node is this element."""
    if _named(node) != _named(atom):
        return 0
    if math.prod(var.size for var in bound) <= 64:
        every = product(*(range(var.size) for var in bound))
        points = (dict(zip(bound, one, strict=True)) for one in every)
        return sum(_ground(node, point) == atom for point in points)
    values: dict[Var, int] = {}
    for index, target in zip(node.at, atom.at, strict=True):
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
