"""Atoms: elements of unknown functions of other elements, such as ``tanh`` of a sum.

The function of an atom must not depend on how its operand is distributed. So every position of a
tensor that is read becomes a variable of its own. Example, on device gpu at position i:

    the sum over k of x[i, k] * w[k, 8 * gpu + j]

is ``f(i, 8 * gpu + j)``, where ``f(a, b)`` is the sum over k of ``x[a, k] * w[k, b]``. With w on
one device it is ``f(i, j)`` for the same f. Functions of equal operands have one number.
"""

from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import reduce
from math import gcd

from collir.layout import DType
from collir.semantics.symbolic.algebra import fresh_variable, substituted
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
    term_expr,
)
from collir.semantics.symbolic.indices import (
    Index,
    Values,
    Var,
    bounds,
    substituted_index,
    variable,
    variables,
    weighted_sum,
)
from collir.semantics.symbolic.naming import ordered
from collir.semantics.symbolic.values import Computations, SymbolicValue, UnknownComputation

Scope = frozenset[Var]
"""The variables that are bound around a part of an expression."""


def atom(
    computations: Computations,
    operation: tuple[Hashable, ...],
    operands: Sequence[Expr],
    dtype: DType,
    name: str,
    scope: Scope = frozenset(),
    kept: Sequence[Var] = (),
) -> Expr:
    """Return an element of an unknown function of elements of operands.

    Args:
        operation: what the function is, apart from its operands.
        name: the name of its result, for messages.
        scope: variables that the function has for itself, as it needs all their positions.
        kept: the position in the function's own result, if that has dimensions.
    """
    generic, at, parameters = _abstracted(operands, computations, scope)
    at += tuple(map(variable, kept))
    parameters += kept
    known = tuple(SymbolicValue((), (), expr) for expr in generic)
    computation = UnknownComputation(0.0, known, frozenset(), operation=(*operation, dtype))
    number = computations.number_of(computation, name, parameters)
    return term_expr(Opaque(number, at, dtype))


def _abstracted(
    operands: Sequence[Expr], computations: Computations, scope: Scope
) -> tuple[list[Expr], tuple[Index, ...], list[Var]]:
    """Return expressions of parameters, the values of the parameters in operands, and these."""
    if any(_has_choice(expr) for expr in operands):
        at = {var: variable(var) for expr in operands for var in expr.free - scope}
        generic: list[Expr] = [*operands]
    else:
        slots = _Slots(computations)
        generic = [slots.sum(expr, scope) for expr in operands]
        at = {var: index for (index, _), var in slots.known.items()}
    order = ordered(sorted(at, key=str), generic)
    names = {var: Var("slot", n, var.size) for n, var in enumerate(order)}
    values: Values = {var: variable(name) for var, name in names.items()}
    exprs = [substituted(expr, values) for expr in generic]
    return exprs, tuple(at[var] for var in order), [*names.values()]


def _has_choice(expr: Expr) -> bool:
    """Return whether there is a choice in an expression, at any depth."""
    if isinstance(expr, Select):
        return True
    return any(_chooses(term.summand) for term, _ in expr.terms)


def _chooses(summand: Summand) -> bool:
    match summand:
        case Input() | Opaque():
            return False
        case SummedSelect():
            return True
        case Cast():
            return _has_choice(summand.body)
        case Extremum():
            return any(_has_choice(family.body) for family in summand.families)
        case Product():
            return any(_has_choice(family.body) for family, _ in summand.factors)


class _Slots:
    """The positions read in expressions, each with the variable that replaces it.

    Equal positions in dimensions of one size have the same variable.
    """

    def __init__(self, computations: Computations):
        self.computations = computations
        self.known: dict[tuple[Index, int], Var] = {}

    def sum(self, expr: Expr, scope: Scope) -> Expr:
        """Return a sum with variables in the place of positions."""
        assert isinstance(expr, Sum)
        terms: list[tuple[SummedTerm, Fraction]] = []
        for term, times in expr.terms:
            inner = scope.union(term.bound)
            terms.append((SummedTerm(term.bound, self._summand(term.summand, inner)), times))
        return Sum(expr.number, frozenset(terms))

    def _summand(self, summand: Summand, scope: Scope) -> Summand:
        match summand:
            case Input() | Opaque():
                return self._element(summand, scope)
            case Cast():
                return Cast(summand.dtype, self.sum(summand.body, scope))
            case Extremum():
                families = frozenset(self._family(family, scope) for family in summand.families)
                return Extremum(summand.reduction, families)
            case Product():
                factors = ((self._family(family, scope), n) for family, n in summand.factors)
                return Product(frozenset(factors))
            case SummedSelect():
                raise AssertionError("choices have no slots")

    def _family(self, family: Family, scope: Scope) -> Family:
        return Family(family.bound, self.sum(family.body, scope.union(family.bound)))

    def _element(self, element: Input | Opaque, scope: Scope) -> Input | Opaque:
        sizes = self.computations.sizes_of(element)
        at = tuple(
            self._index(index, sizes[slot] if slot < len(sizes) else None, scope)
            for slot, index in enumerate(element.at)
        )
        return type(element)(element.source, at, element.dtype)

    def _index(self, index: Index, size: int | None, scope: Scope) -> Index:
        """Return an index in which the part without bound variables is a new variable."""
        if scope.isdisjoint(variables(index)):
            least, most = bounds(index)
            size = most + 1 if size is None else size
            return variable(self._variable(index, size)) if least >= 0 and size > 1 else index
        used = {item: variables(Index(0, (item,))) for item in index.terms}
        if any(not scope.isdisjoint(of) and not of <= scope for of in used.values()):
            return self._renamed(index, scope)
        bound = tuple(item for item, of in used.items() if of <= scope)
        free = [item for item in index.terms if item not in bound]
        if not free:
            return index
        step = reduce(gcd, (times for times, _ in free))
        part = weighted_sum((times // step, Index(0, ((1, digit),))) for times, digit in free)
        least, most = bounds(part)
        if least < 0:
            return self._renamed(index, scope)
        new = self._variable(part, most + 1)
        return weighted_sum([(step, variable(new)), (1, Index(index.offset, bound))])

    def _renamed(self, index: Index, scope: Scope) -> Index:
        """Return an index with a new variable for each that is not bound."""
        free = variables(index) - scope
        return substituted_index(
            index, {var: variable(self._variable(variable(var), var.size)) for var in free}
        )

    def _variable(self, index: Index, size: int) -> Var:
        known = self.known.get((index, size))
        if known is None:
            known = self.known[index, size] = fresh_variable(size)
        return known
