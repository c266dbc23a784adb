"""The bound variables of a sum of products, cut and ordered alike however the sum was written.

The sum of ``x[8 * a + b] * w[8 * a + b]`` over a and b is that of ``x[c] * w[c]`` over c: this is
what a contraction over a sharded index becomes when its parts are added. So every variable is cut
into the digits that occur alone, and digits that only occur side by side are joined (``recut``).

An order of variables must not depend on their names. Variables are coloured by where they occur,
and again by the colours of the variables beside them, until no more can be told apart (``ordered``,
the refinement of Weisfeiler and Leman). Variables that cannot be told apart are nearly always
exchangeable. If they are not, equal sums may get different forms: a proof may fail then, and is
never wrong.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from collir.semantics.symbolic.expressions import (
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
)
from collir.semantics.symbolic.indices import (
    Index,
    IndexDigit,
    Var,
    digit_of,
    mixed_radix,
    variable,
    variables,
)
from collir.semantics.symbolic.numbering import part_number

Node = Expr | Summand | SummedTerm | Family
"""A part of an expression."""

NewVar = Callable[[int], Var]
"""A function that returns a new variable of a size."""


# --- the indices of expressions -----------------------------------------------------------------


def indices_of(node: Node) -> Iterator[Index]:
    """Yield all indices in a part of an expression, in no fixed order."""
    match node:
        case Input() | Opaque():
            yield from node.at
        case Select():
            yield node.at
            for _, value in node.branches:
                yield from indices_of(value)
        case _:
            for child in children_of(node):
                yield from indices_of(child)


def children_of(node: Node) -> Iterator[Node]:
    """Yield the parts that a part of an expression has inside, other than indices."""
    match node:
        case Cast() | SummedSelect() | Family():
            yield node.body
        case Extremum():
            yield from node.families
        case Product():
            yield from (family for family, _ in node.factors)
        case Select():
            yield from (value for _, value in node.branches)
        case SummedTerm():
            yield node.summand
        case Input() | Opaque():
            pass
        case _:
            yield from (term for term, _ in node.terms)


# --- digits, cut and joined ---------------------------------------------------------------------


def recut(node: Node, bound: Sequence[Var], new: NewVar) -> tuple[dict[Var, Index], list[Var]]:
    """Return the values of bound variables in terms of new ones, and those new ones.

    Variables that stay as they are have no value.
    """
    indices = list(dict.fromkeys(indices_of(node)))
    nested = {v for index in indices for v in _nested(index)}
    every = {v: _parts(indices, v, new) for v in bound if v not in nested}
    cut = {v: of for v, of in every.items() if of}
    parts = [part for v in bound for part, _ in cut.get(v, ())]
    if not parts:
        return {}, []
    digits = {digit: part for of in cut.values() for part, digit in of}
    groups = list(_chains(parts, _coefficients(indices, digits)))
    if len(groups) == len(parts) == len(cut):
        return {}, []
    values: dict[Var, Index] = {}
    made: list[Var] = []
    for chain in groups:
        size = 1
        for part in chain:
            size *= part.size
        joined = chain[0] if len(chain) == 1 else new(size)
        made.append(joined)
        stride = 1
        for part in reversed(chain):
            values[part] = digit_of(joined, stride, part.size)
            stride *= part.size
    return {
        v: mixed_radix((values[part], part.size) for part, _ in of)
        for v, of in cut.items()
        if [values[part] for part, _ in of] != [variable(v)]
    }, [v for v in made if v not in cut]


def _nested(index: Index) -> Iterator[Var]:
    """Yield the variables of an index that occur inside of a digit of a sum."""
    for _, digit in index.terms:
        if isinstance(digit.base, Index):
            yield from variables(digit.base)


def _parts(indices: Sequence[Index], v: Var, new: NewVar) -> list[tuple[Var, IndexDigit]]:
    """Return the digits that a variable is cut into, each as a variable, most significant first.

    There are none if the digits that occur do not fit into each other.
    """
    cuts = {1, v.size}
    for index in indices:
        for _, (base, lo, n) in index.terms:
            if base == v:
                cuts |= {lo, min(lo * n, v.size)}
    ends = sorted(cuts)
    pairs = list(pairwise(ends))
    if any(high % low for low, high in pairs):
        return []
    if len(pairs) == 1:
        return [(v, IndexDigit(v, 1, v.size))]
    return [(new(high // low), IndexDigit(v, low, high // low)) for low, high in reversed(pairs)]


def _coefficients(
    indices: Sequence[Index], digits: Mapping[IndexDigit, Var]
) -> dict[Var, dict[int, int]]:
    """Return for every part of a variable its coefficient in each index that has it."""
    by_base: dict[Var, list[tuple[IndexDigit, Var]]] = {}
    for digit, part in digits.items():
        assert isinstance(digit.base, Var)
        by_base.setdefault(digit.base, []).append((digit, part))
    coefficients: dict[Var, dict[int, int]] = {part: {} for part in digits.values()}
    for number, index in enumerate(indices):
        for times, (base, lo, n) in index.terms:
            for digit, part in by_base.get(base, ()) if isinstance(base, Var) else ():
                if lo <= digit.lo and digit.lo * digit.n <= lo * n:
                    of = coefficients[part]
                    of[number] = of.get(number, 0) + times * (digit.lo // lo)
    return coefficients


def _chains(parts: Sequence[Var], found: Mapping[Var, Mapping[int, int]]) -> Iterator[list[Var]]:
    """Yield lists of variables that only occur side by side, the most significant first."""
    below: dict[Hashable, Var] = {}
    for part in parts:
        below.setdefault(frozenset((i, t * part.size) for i, t in found[part].items()), part)
    over: dict[Var, Var] = {}
    for part in parts:
        lower = below.get(frozenset(found[part].items())) if found[part] else None
        if lower is not None and lower != part and lower not in over:
            over[lower] = part
    uppers = set(over.values())
    for part in parts:
        if part not in over:
            chain = [part]
            lower_of = {upper: lower for lower, upper in over.items()}
            while chain[-1] in uppers:
                chain.append(lower_of[chain[-1]])
            yield chain


# --- an order that depends on no names ----------------------------------------------------------


def ordered(bound: Iterable[Var], nodes: Sequence[Node]) -> list[Var]:
    """Return variables in an order that depends only on where they occur in parts of expressions.

    Parts are told apart by their place in ``nodes``.
    """
    left = list(bound)
    if len(left) < 2:
        return left
    colours = {v: part_number(("size", v.size)) for v in left}
    while True:
        colours = _refined(nodes, colours)
        classes: dict[int, list[Var]] = {}
        for v in left:
            classes.setdefault(colours[v], []).append(v)
        tied = [colour for colour, members in classes.items() if len(members) > 1]
        if not tied:
            return sorted(left, key=colours.__getitem__)
        first = classes[min(tied)][0]
        colours[first] = part_number(("first", colours[first]))


def _refined(nodes: Sequence[Node], colours: dict[Var, int]) -> dict[Var, int]:
    """Return finer colours: by the places where variables occur, until they stay as fine."""
    count = len(set(colours.values()))
    while True:
        colouring = _Colouring(colours)
        for number, node in enumerate(nodes):
            colouring.visit(node, number)
        colours = {
            v: part_number((colour, tuple(sorted(colouring.places[v]))))
            for v, colour in colours.items()
        }
        finer = len(set(colours.values()))
        if finer in (count, len(colours)):
            return colours
        count = finer


class _Colouring:
    """The keys of parts of expressions, and the places of variables, for colours of these."""

    def __init__(self, colours: Mapping[Var, int]):
        self.colours = colours
        self.places: dict[Var, list[int]] = {v: [] for v in colours}
        self.keys: dict[int, int] = {}

    def key(self, node: Node) -> int:
        """Return a number for a part of an expression in which variables are their colours."""
        known = self.keys.get(id(node))
        if known is None:
            known = self.keys[id(node)] = part_number(self._key(node))
        return known

    def _key(self, node: Node) -> Hashable:
        match node:
            case Input() | Opaque():
                return type(node), node.source, node.dtype, tuple(map(self._index_key, node.at))
            case Cast() | SummedSelect():
                return type(node), getattr(node, "dtype", None), self.key(node.body)
            case Family():
                return Family, self._sizes(node.bound), self.key(node.body)
            case Extremum():
                return Extremum, node.reduction, tuple(sorted(map(self.key, node.families)))
            case Product():
                return Product, tuple(sorted((self.key(f), n) for f, n in node.factors))
            case Select():
                inner = tuple((length, self.key(value)) for length, value in node.branches)
                return Select, self._index_key(node.at), inner
            case SummedTerm():
                return SummedTerm, self._sizes(node.bound), self.key(node.summand)
            case Sum():
                terms = tuple(sorted((self.key(term), times) for term, times in node.terms))
                return Sum, node.number, terms

    def _sizes(self, bound: Iterable[Var]) -> tuple[tuple[int, int], ...]:
        return tuple(sorted((self.colours.get(v, -1), v.size) for v in bound))

    def _index_key(self, index: Index) -> int:
        terms = ((times, self._base(base), lo, n) for times, (base, lo, n) in index.terms)
        return part_number((index.offset, tuple(sorted(terms))))

    def _base(self, base: Var | Index) -> int:
        if isinstance(base, Index):
            return self._index_key(base)
        colour = self.colours.get(base)
        if colour is not None:
            return part_number(("colour", colour))
        inner = base.kind in ("bound", "branch", "new")
        return part_number((base.kind, base.size) if inner else base)

    def visit(self, node: Node, path: int) -> None:
        """Note the places of all variables in a part of an expression that is at a place."""
        match node:
            case Input() | Opaque():
                here = (path, self.key(node))
                for slot, index in enumerate(node.at):
                    self._visit_index(index, (here, slot))
            case Select():
                here = (path, self.key(node))
                self._visit_index(node.at, here)
                for number, (_, value) in enumerate(node.branches):
                    self.visit(value, part_number((here, number)))
            case Product():
                for family, power in node.factors:
                    self.visit(family, part_number((path, self.key(node), power)))
            case Sum():
                for term, times in node.terms:
                    self.visit(term, part_number((path, self.key(node), times)))
            case _:
                here = part_number((path, self.key(node)))
                for child in children_of(node):
                    self.visit(child, here)

    def _visit_index(self, index: Index, place: Hashable) -> None:
        if self.places.keys().isdisjoint(variables(index)):
            return
        for times, (base, lo, n) in index.terms:
            if isinstance(base, Index):
                self._visit_index(base, (place, times, lo, n))
            elif base in self.places:
                self.places[base].append(part_number((place, times, lo, n)))
