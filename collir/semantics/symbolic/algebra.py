"""Arithmetic on expressions: sums, choices, reductions over a variable, other variables.

Everything gives the same form for the same value wherever it can: sums collect equal terms, nested
choices become one, neighbouring intervals that continue each other join, bound variables are
numbered in order of appearance. What two programs compute is then compared by comparing forms.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from collir.layout import DType, Reduction
from collir.semantics.reference.buffers import NUMPY
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
    branch,
    number,
    term,
)
from collir.semantics.symbolic.indices import (
    Index,
    Values,
    Var,
    bounds,
    digit_of,
    put,
    shifted,
    stretched,
    variable,
    variables,
    weighted,
    whole,
)
from collir.semantics.symbolic.order import (
    height_in,
    height_of,
    sort_key,
    sort_key_over,
    variables_in,
    variables_of_node,
)

Piece = tuple[int, Var, Expr]
"""The length of an interval, the variable for the place in it, and the value there."""

_fresh = itertools.count()


# --- sums ---------------------------------------------------------------------------------------


def added(one: Expr, other: Expr) -> Expr:
    """The sum."""
    if one == ZERO:
        return other
    return one if other == ZERO else zipped(one, other, _added)


def _added(one: Sum, other: Sum) -> Expr:
    terms = dict(one.terms)
    for key, times in other.terms:
        terms[key] = terms.get(key, Fraction(0)) + times
    kept = frozenset((key, times) for key, times in terms.items() if times)
    return Sum(one.number + other.number, kept)


def scaled(one: Expr, factor: Fraction) -> Expr:
    """A multiple."""
    if factor == 1:
        return one
    return mapped(one, lambda leaf: _scaled(leaf, factor))


def _scaled(one: Sum, factor: Fraction) -> Sum:
    if not factor:
        return ZERO
    return Sum(one.number * factor, frozenset((key, times * factor) for key, times in one.terms))


def cast(one: Expr, dtype: DType, source: DType) -> Expr:
    """In another element type: the same, where that holds every value."""
    if dtype.holds(source):
        return one
    return mapped(one, lambda leaf: _cast(leaf, dtype, source))


def constant_cast(leaf: Sum, dtype: DType) -> Sum:
    """A sum in another type, if it is a constant; the sum itself, if it is none."""
    if leaf.terms or (leaf.number.denominator == 1 and abs(leaf.number) <= 16):
        return leaf  # the latter in every type
    with np.errstate(all="ignore"):
        value = NUMPY[dtype].type(float(leaf.number))
    if not np.isfinite(float(value)):
        raise UnprovenError("a constant that a type does not hold")
    return number(Fraction(float(value)) if dtype.is_float else Fraction(int(value)))


def _cast(leaf: Sum, dtype: DType, source: DType) -> Expr:
    if not leaf.terms:
        return constant_cast(leaf, dtype)
    if leaf.only and leaf.only[1] == 1 and not leaf.only[0].bound:
        node = leaf.only[0].node
        if isinstance(node, Input | Opaque | Cast) and dtype.holds(node.dtype):
            return leaf
        wraps = not dtype.is_float and not source.is_float
        if isinstance(node, Best) and not wraps:  # casts that do not wrap keep the order
            parts = [Over(one.bound, cast(one.body, dtype, source)) for one in node.of]
            return best(node.reduction, parts)
    return term(Cast(dtype, leaf))


# --- choices ------------------------------------------------------------------------------------


def mapped(one: Expr, function: Callable[[Sum], Expr]) -> Expr:
    """A function of the value, whichever it is."""
    if isinstance(one, Sum):
        return function(one)
    return select(one.at, [(v.size, v, mapped(e, function)) for _, v, e in one.pieces])


def zipped(one: Expr, other: Expr, function: Callable[[Sum, Sum], Expr]) -> Expr:
    """A function of two values, whichever they are."""
    if isinstance(one, Sum):
        if isinstance(other, Sum):
            return function(one, other)
        pieces = [(v.size, v, zipped(one, e, function)) for _, v, e in other.pieces]
        return select(other.at, pieces)
    if isinstance(other, Select) and other.at == one.at:
        return select(one.at, list(_aligned(one, other, function)))
    if isinstance(other, Select) and str(other.at) < str(one.at):
        pieces = [(v.size, v, zipped(one, e, function)) for _, v, e in other.pieces]
        return select(other.at, pieces)
    return select(one.at, [(v.size, v, zipped(e, other, function)) for _, v, e in one.pieces])


def _aligned(one: Select, other: Select, function: Callable[[Sum, Sum], Expr]) -> Iterator[Piece]:
    starts = sorted({start for side in (one, other) for start, _, _ in side.pieces})
    total = sum(length for length, _ in one.branches)
    at = {id(one): 0, id(other): 0}

    def part(side: Select, start: int, new: Var) -> Expr:
        while at[id(side)] + 1 < len(side.pieces) and side.pieces[at[id(side)] + 1][0] <= start:
            at[id(side)] += 1
        begin, var, value = side.pieces[at[id(side)]]
        if var == new:
            return value
        return replaced(value, {var: shifted(variable(new), start - begin)})

    for start, end in zip(starts, [*starts[1:], total], strict=True):
        new = branch(one.at, start, end - start)
        if one is other:
            both = part(one, start, new)
            yield end - start, new, zipped(both, both, function)
        else:
            yield end - start, new, zipped(part(one, start, new), part(other, start, new), function)


def select(at: Index, pieces: Sequence[Piece]) -> Expr:
    """The value of the interval that an index lies in; the intervals follow each other from 0.

    What the index cannot be is left out; it then starts at 0 again.
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
    moved = shifted(at, -least)
    if len(kept) == 1:
        _, skipped, _, var, value = kept[0]
        return replaced(value, {var: shifted(moved, skipped)})
    scale, base = _finest(moved)
    if base is not None:
        low = digit_of(base, 1, scale)
        moved = weighted([(scale, moved), (1, low)])
    parts: list[Piece] = []
    for begin, skipped, length, var, value in kept:
        new = branch(moved, begin * scale, length * scale)
        values = {var: shifted(digit_of(variable(new), scale, length), skipped)}
        if base is not None:
            above = digit_of(base, scale, base.size)
            low = digit_of(variable(new), 1, scale)
            values[base] = weighted([(scale, above), (1, low)])
        same = var == new and base is None and not skipped
        parts.append((length * scale, new, value if same else replaced(value, values)))
    return _joined(moved, _flat(moved, parts))


def _finest(at: Index) -> tuple[int, Var | None]:
    """Where the lowest digit of an index is not the lowest of its variable: how much lower that
    is, and the variable."""
    if at.terms:
        times, (base, lo, _) = at.terms[-1]
        if times == 1 and isinstance(base, Var) and lo > 1:
            return lo, base
    return 1, None


def _flat(at: Index, pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces without choices by the same index in them."""
    out: list[Piece] = []
    only = whole(at)
    start = 0
    for length, var, value in pieces:
        if only is not None and only in value.free:
            value = replaced(value, {only: shifted(variable(var), start)})
        value = _known(value, at, start, var)
        inner = variable(var)
        cuts = sorted({0, *_cuts(value, inner)})
        if len(cuts) == 1:
            out.append((length, var, value))
        else:
            for cut, end in zip(cuts, [*cuts[1:], length], strict=True):
                new = branch(at, start + cut, end - cut)
                part = replaced(value, {var: shifted(variable(new), cut)})
                out.append((end - cut, new, part))
        start += length
    return out


def _known(value: Expr, at: Index, start: int, var: Var) -> Expr:
    """A value, where ``at`` is known to be ``start + var``."""
    if isinstance(value, Sum) or not _decides(value, at):
        return value
    pieces = [(v.size, v, _known(e, at, start, var)) for _, v, e in value.pieces]
    return select(shifted(variable(var), start) if value.at == at else value.at, pieces)


def _decides(value: Expr, at: Index) -> bool:
    """Whether a choice by an index is anywhere in a value."""
    if isinstance(value, Sum):
        return False
    return value.at == at or any(_decides(e, at) for _, e in value.branches)


def _cuts(value: Expr, at: Index) -> Iterator[int]:
    """Where the intervals of choices by an index start, anywhere in a value."""
    if isinstance(value, Select):
        for start, _, inner in value.pieces:
            if value.at == at:
                yield start
            yield from _cuts(inner, at)


def _joined(at: Index, pieces: Sequence[Piece]) -> Expr:
    """The choice, with intervals that continue each other made one."""
    done: list[tuple[int, Piece, object]] = []  # start, piece, kind
    start = 0
    for piece in pieces:
        kind = kind_of(piece[2])
        done.append((start, piece, kind))
        start += piece[0]
        while len(done) > 1 and done[-2][2] == done[-1][2]:
            (begin, first, _), (_, second, _) = done[-2:]
            both = _continued(at, begin, first, second)
            if both is None:
                break
            done[-2:] = [(begin, both, kind_of(both[2]))]
    if len(done) == 1:
        _, var, value = done[0][1]
        return replaced(value, {var: at})
    return Select(at, tuple((length, value) for _, (length, _, value), _ in done))


def kind_of(value: Expr) -> object:
    """What two values have in common if one continues the other."""
    if isinstance(value, Select):
        return len(value.branches)
    return value.number, frozenset((_kind_of_node(t.node), times) for t, times in value.terms)


def _kind_of_node(node: Node) -> object:
    return (node.argument, node.dtype) if isinstance(node, Input) else type(node)


def _continued(at: Index, start: int, first: Piece, second: Piece) -> Piece | None:
    """Two intervals as one, if the value of the second is what that of the first goes on with."""
    (one, var, value), (two, other, rest) = first, second
    wide = branch(at, start, one + two)

    def fits(candidate: Expr) -> bool:
        front = replaced(candidate, {wide: variable(var)})
        back = replaced(candidate, {wide: shifted(variable(other), one)})
        return front == value and back == rest

    by_stretching = stretched_in(value, var, wide)
    if fits(by_stretching):
        return one + two, wide, by_stretching
    if two <= one or one == 1:
        by_steps = _stepped(value, var, rest, other, wide, one)
        if by_steps is not None and fits(by_steps):
            return one + two, wide, by_steps
    return None


def _stepped(value: Expr, var: Var, rest: Expr, other: Var, wide: Var, period: int) -> Expr | None:
    """A value that goes on with a step in its indices after every period, as ``rest`` has it."""
    mine, theirs = list(indices_in(value)), list(indices_in(rest))
    if len(mine) != len(theirs):
        return None
    steps = [b.offset - a.offset for a, b in zip(mine, theirs, strict=True)]
    count = itertools.count()
    inner = digit_of(variable(wide), 1, period)
    outer = digit_of(variable(wide), period, -(-wide.size // period))

    def step(index: Index) -> Index:
        return weighted([(1, put(index, {var: inner})), (steps[next(count)], outer)])

    return rebuilt(value, step)


# --- other variables ----------------------------------------------------------------------------


def replaced(one: Expr, values: Values) -> Expr:
    """An expression with other indices in the place of variables, all at once."""
    if one.free.isdisjoint(values):
        return one
    if isinstance(one, Select):
        inner = [(v.size, v, replaced(e, values)) for _, v, e in one.pieces]
        return select(put(one.at, values), inner)
    terms: dict[Term, Fraction] = {}
    others: list[Expr] = []
    for key, times in one.terms:
        if key.free.isdisjoint(values):
            terms[key] = terms.get(key, Fraction(0)) + times
            continue
        new = _term_replaced(key, values)
        if isinstance(new, Term):
            terms[new] = terms.get(new, Fraction(0)) + times
        else:
            others.append(scaled(new, times))
    kept = frozenset((key, times) for key, times in terms.items() if times)
    total: Expr = Sum(one.number, kept)
    for other in others:
        total = added(total, other)
    return total


def _term_replaced(one: Term, values: Values) -> Term | Expr:
    if isinstance(one.node, Input | Opaque):
        at = tuple(put(index, values) for index in one.node.at)
        node = type(one.node)(one.node.which, at, one.node.dtype)
        return Term(one.bound, node) if len(one.bound) < 2 else _numbered(one.bound, node)
    fresh = {var: _new(var.size) for var in one.bound}
    merged = {**values, **{var: variable(new) for var, new in fresh.items()}}
    value = _node_replaced(one.node, merged)
    for new in fresh.values():
        value = summed(value, new)
    return value


def _node_replaced(node: Node, values: Values) -> Expr:
    match node:
        case Input() | Opaque():
            at = tuple(put(index, values) for index in node.at)
            return term(type(node)(node.which, at, node.dtype))
        case Cast():
            return mapped(replaced(node.body, values), lambda leaf: term(Cast(node.dtype, leaf)))
        case Best():
            return best(node.reduction, [_over_replaced(one, values) for one in node.of])
        case Product():
            return product([(_over_replaced(one, values), times) for one, times in node.of])
        case Total():
            return replaced(node.body, values)


def _over_replaced(one: Over, values: Values) -> Over:
    fresh = {var: _new(var.size) for var in one.bound}
    renamed = {**values, **{var: variable(new) for var, new in fresh.items()}}
    return Over(tuple(fresh.values()), replaced(one.body, renamed))


def _new(size: int) -> Var:
    return Var("new", next(_fresh), size)


def stretched_in(one: Expr, old: Var, new: Var) -> Expr:
    """An expression on a longer interval, as it would go on."""
    return rebuilt(one, lambda index: stretched(index, old, new))


def indices_in(one: Expr) -> Iterator[Index]:
    """All indices in an expression, in a fixed order."""
    found: list[Index] = []

    def keep(index: Index) -> Index:
        found.append(index)
        return index

    rebuilt(one, keep)
    return iter(found)


def rebuilt(one: Expr, function: Callable[[Index], Index]) -> Expr:
    """An expression with every index changed; choices stay as they are cut."""
    if isinstance(one, Select):
        at = function(one.at)
        pieces: list[Piece] = []
        for start, var, value in one.pieces:
            new = branch(at, start, var.size)
            renamed = value if new == var else replaced(value, {var: variable(new)})
            pieces.append((var.size, new, rebuilt(renamed, function)))
        return Select(at, tuple((length, value) for length, _, value in pieces))
    total: Expr = Sum(one.number)
    for key, times in sorted(one.terms, key=lambda item: (sort_key(item[0].node), item[1])):
        new = _node_rebuilt(key.node, function)
        for var in key.bound:
            fresh = _new(var.size)
            new = summed(replaced(new, {var: variable(fresh)}), fresh)
        total = added(total, scaled(new, times))
    return total


def _node_rebuilt(node: Node, function: Callable[[Index], Index]) -> Expr:
    match node:
        case Input() | Opaque():
            at = tuple(function(index) for index in node.at)
            return term(type(node)(node.which, at, node.dtype))
        case Cast():
            body = rebuilt(node.body, function)
            return mapped(body, lambda leaf: term(Cast(node.dtype, leaf)))
        case Best():
            listed = sorted(node.of, key=lambda one: sort_key_over(one))
            return best(node.reduction, [Over(o.bound, rebuilt(o.body, function)) for o in listed])
        case Product():
            factors = sorted(node.of, key=lambda one: (sort_key_over(one[0]), one[1]))
            return product([(Over(o.bound, rebuilt(o.body, function)), n) for o, n in factors])
        case Total():
            return rebuilt(node.body, function)


# --- reductions over a variable -----------------------------------------------------------------


def reduced(one: Expr, var: Var, reduction: Reduction) -> Expr:
    """The reduction of an expression over all values of a variable."""
    if reduction is Reduction.AVG:
        return scaled(summed(one, var), Fraction(1, var.size))
    if reduction is Reduction.SUM:
        return summed(one, var)
    if var not in one.free:
        if reduction is not Reduction.PROD:
            return one
        return mapped(one, lambda leaf: _power(leaf, var.size))
    if isinstance(one, Select):
        if var not in variables(one.at):
            inner = [(v.size, v, reduced(e, var, reduction)) for _, v, e in one.pieces]
            return select(one.at, inner)
        if whole(one.at) == var:
            parts = [_each(v, e, reduction) for _, v, e in one.pieces]
            total = parts[0]
            for part in parts[1:]:
                total = _both(total, part, reduction)
            return total
        return _all_values(one, var, reduction)
    return _reduced(one, var, reduction)


def _each(var: Var, value: Expr, reduction: Reduction) -> Expr:
    """A reduction over an interval: of one place, what there is."""
    fresh = _new(var.size)
    return reduced(replaced(value, {var: variable(fresh)}), fresh, reduction)


def _both(one: Expr, other: Expr, reduction: Reduction) -> Expr:
    if reduction is Reduction.PROD:
        return zipped(one, other, lambda a, b: product([(Over((), a), 1), (Over((), b), 1)]))
    return zipped(one, other, lambda a, b: best(reduction, [Over((), a), Over((), b)]))


def _all_values(one: Expr, var: Var, reduction: Reduction) -> Expr:
    over = Over((var,), one)
    return product([(over, 1)]) if reduction is Reduction.PROD else best(reduction, [over])


def _reduced(one: Sum, var: Var, reduction: Reduction) -> Expr:
    if reduction is Reduction.PROD:
        if only := one.only:
            node, times = only
            power = _power(number(times), var.size)
            assert isinstance(power, Sum)
            inner = product([(Over((var,), Sum(Fraction(0), frozenset([(node, Fraction(1))]))), 1)])
            return scaled(inner, power.number)
        return product([(Over((var,), one), 1)])
    apart = frozenset((key, times) for key, times in one.terms if var not in key.free)
    there = one.terms - apart
    rest = best(reduction, [Over((var,), Sum(Fraction(0), there))])
    return added(Sum(one.number, apart), rest)


_OTHER = {Reduction.MAX: Reduction.MIN, Reduction.MIN: Reduction.MAX}


def best(reduction: Reduction, of: Iterable[Over]) -> Expr:
    """The largest or smallest of all of these."""
    listed = [Over(tuple(v for v in one.bound if v in one.body.free), one.body) for one in of]
    if len(listed) == 1:
        (one,) = listed
        if not one.bound:
            return one.body
        if isinstance(one.body, Sum) and (only := one.body.only) and only[1] != 1:
            alone = Sum(Fraction(0), frozenset([(only[0], Fraction(1))]))
            side = reduction if only[1] > 0 else _OTHER[reduction]
            return scaled(best(side, [Over(one.bound, alone)]), only[1])
    found: set[Over] = set()
    for one in listed:
        inner = one.body.only if isinstance(one.body, Sum) else None
        node = inner[0].node if inner and inner[1] == 1 and not inner[0].bound else None
        if isinstance(node, Best) and node.reduction is reduction:
            for deeper in node.of:
                fresh = {var: _new(var.size) for var in deeper.bound}
                body = replaced(deeper.body, {v: variable(n) for v, n in fresh.items()})
                used = tuple(var for var in one.bound if var in body.free)
                found.add(_over(used + tuple(fresh.values()), body))
        else:
            found.add(_over(one.bound, one.body))
    if len(found) == 1:
        (one,) = found
        if not one.bound:
            return one.body
    return term(Best(reduction, frozenset(found)))


def product(of: Iterable[tuple[Over, int]]) -> Expr:
    """The product of all of these, each as often as its number says."""
    factors: dict[Over, int] = {}
    times = Fraction(1)
    for one, power in of:
        for var in one.bound:
            if var not in one.body.free:
                power *= var.size
        bound = tuple(var for var in one.bound if var in one.body.free)
        if isinstance(one.body, Sum) and not one.body.terms:
            value = _power(one.body, power)
            assert isinstance(value, Sum)
            times *= value.number
            continue
        inner = one.body.only if isinstance(one.body, Sum) else None
        node = inner[0].node if inner and inner[1] == 1 and not inner[0].bound else None
        if isinstance(node, Product):
            for deeper, more in node.of:
                fresh = {var: _new(var.size) for var in deeper.bound}
                body = replaced(deeper.body, {v: variable(n) for v, n in fresh.items()})
                used = tuple(var for var in bound if var in body.free)
                again = power * more
                for var in bound:
                    if var not in used:
                        again *= var.size
                key = _over(used + tuple(fresh.values()), body)
                factors[key] = factors.get(key, 0) + again
        else:
            key = _over(bound, one.body)
            factors[key] = factors.get(key, 0) + power
    if not times or not factors:
        return number(times)
    if len(factors) == 1:
        ((one, power),) = factors.items()
        if power == 1 and not one.bound:
            return scaled(one.body, times)
    return term(Product(frozenset(factors.items())), times)


def _power(one: Expr, power: int) -> Expr:
    if not isinstance(one, Sum) or one.terms:
        return product([(Over((), one), power)])
    if power > 2**16 and abs(one.number) not in (0, 1):
        raise UnprovenError("a constant to the power of thousands")
    return number(one.number**power)


def summed(one: Expr, var: Var) -> Expr:
    """The sum of an expression over all values of a variable."""
    if var not in one.free:
        return scaled(one, Fraction(var.size))
    if isinstance(one, Select):
        if var not in variables(one.at):
            return select(one.at, [(v.size, v, summed(e, var)) for _, v, e in one.pieces])
        if whole(one.at) == var:
            total: Expr = ZERO
            for _, inner, value in one.pieces:
                fresh = _new(inner.size)
                total = added(total, summed(replaced(value, {inner: variable(fresh)}), fresh))
            return total
        return Sum(Fraction(0), frozenset([(_bound((var,), Total(one)), Fraction(1))]))
    terms: dict[Term, Fraction] = {}
    for key, times in one.terms:
        new, factor = (key, var.size) if var not in key.free else (_with_bound(key, var), 1)
        terms[new] = terms.get(new, Fraction(0)) + times * factor
    kept = frozenset((key, times) for key, times in terms.items() if times)
    return Sum(one.number * var.size, kept)


def _with_bound(key: Term, var: Var) -> Term:
    fresh = {old: _new(old.size) for old in key.bound}
    node: Node = key.node
    if fresh:
        inner = _node_replaced(node, {old: variable(new) for old, new in fresh.items()})
        assert isinstance(inner, Sum)
        assert inner.only is not None
        node = inner.only[0].node
    return _bound((*fresh.values(), var), node)


# --- names of bound variables -------------------------------------------------------------------


def _bound(bound: tuple[Var, ...], node: Node) -> Term:
    """A term whose bound variables are numbered in order of appearance."""
    return _numbered(bound, node)


def _numbered(bound: tuple[Var, ...], node: Node) -> Term:
    names = _names(bound, variables_of_node(node), height_of(node))
    inner = _node_renamed(node, names)
    return Term(tuple(sorted((whole_var(i) for i in names.values()), key=str)), inner)


def _over(bound: tuple[Var, ...], body: Expr) -> Over:
    """The same for what is not a sum."""
    if not bound:
        return Over((), body)
    names = _names(bound, variables_in(body), height_in(body))
    return Over(
        tuple(sorted((whole_var(i) for i in names.values()), key=str)), replaced(body, names)
    )


def whole_var(index: Index) -> Var:
    """The variable that an index is."""
    var = whole(index)
    assert var is not None
    return var


def _names(bound: tuple[Var, ...], order: Iterable[Var], height: int) -> dict[Var, Index]:
    wanted = set(bound)
    listed = [var for var in dict.fromkeys(order) if var in wanted]
    listed += [var for var in bound if var not in listed]
    return {
        var: variable(Var("bound", height + place, var.size)) for place, var in enumerate(listed)
    }


def _node_renamed(node: Node, names: dict[Var, Index]) -> Node:
    if isinstance(node, Input | Opaque):
        at = tuple(put(index, names) for index in node.at)
        return type(node)(node.which, at, node.dtype)
    if isinstance(node, Total):
        return Total(replaced(node.body, names))
    new = _node_replaced(node, names)
    assert isinstance(new, Sum)
    assert new.only is not None
    return new.only[0].node
