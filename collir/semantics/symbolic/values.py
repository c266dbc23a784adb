"""The values that functions on expressions are executed on, and computations by number."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from functools import cached_property

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.layout import Mesh, Place
from collir.semantics.symbolic.expressions import (
    Cast,
    Expr,
    Extremum,
    Input,
    Opaque,
    Product,
    Select,
    Summand,
    SummedSelect,
)
from collir.semantics.symbolic.indices import Var
from collir.semantics.symbolic.provenance import expressions_equal

Axes = Sequence[str]


class ImpossibleError(Exception):
    """A step that cannot be carried out on the buffers of its operands."""

    def __init__(self, op: DistOp, reason: str):
        super().__init__(reason)
        self.op = op


@dataclass(frozen=True)
class SymbolicValue:
    """The buffers of all devices.

    Attributes:
        shape: the shape of the buffer of a device.
        place: the sub-axes on which only one coordinate holds a buffer, with that coordinate.
        expr: the element at each position.
    """

    shape: tuple[int, ...]
    place: Place
    expr: Expr

    @property
    def placed(self) -> frozenset[str]:
        """The sub-axes on which only one coordinate holds a buffer."""
        return frozenset(axis for axis, _ in self.place)

    def without(self, axes: Axes) -> Place:
        """Return the place without sub-axes."""
        return tuple(item for item in self.place if item[0] not in axes)


@dataclass(frozen=True)
class UnknownComputation:
    """The inputs of a ``compute``, an unknown function; equal computations have equal results.

    Attributes:
        operands: the operands, with partial ones reduced.
        partial: the sub-axes that the first operand, and therefore the result, is partial over.
        loop: for a result of a loop, the number of its body, the other facts of the loop, and the
            number of the result.
        operation: for an operation of a model its name, its arguments, and the dtype of its result.
    """

    flops: float
    operands: tuple[SymbolicValue, ...]
    partial: frozenset[str]
    loop: tuple[Hashable, ...] = ()
    operation: tuple[Hashable, ...] = ()

    @cached_property
    def outlines(self) -> tuple[Hashable, ...] | None:
        """The operands without their indices; None if that cannot tell them apart."""
        known = tuple(_outline(x.expr) for x in self.operands)
        return None if None in known else known


@dataclass
class Computations:
    """The different computations of two programs, by number.

    Attributes:
        names: the names of their results.
        variables: the positions and coordinates that each result depends on.
        numbers: the numbers of the computations in ``known``.
        bodies: for each loop the number of its body; equal bodies have the same number.
        arguments: the number of positions in each dimension of an argument, then the number of
            coordinates on each sub-axis that it is partial over.
        of_models: whether there are operations of models. These are known functions, which may be
            equal where their forms differ.
        as_atoms: whether all results of these are unknown functions of whole tensors. That proves
            less, but also where blocks differ in size and the parts of a sum do not join.
    """

    known: list[UnknownComputation] = field(default_factory=list[UnknownComputation])
    names: list[str] = field(default_factory=list[str])
    variables: list[tuple[Var, ...]] = field(default_factory=list[tuple[Var, ...]])
    numbers: dict[UnknownComputation, int] = field(default_factory=dict[UnknownComputation, int])
    bodies: dict[RepeatOp, int] = field(default_factory=dict[RepeatOp, int])
    arguments: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    of_models: bool = False
    as_atoms: bool = False

    def sizes_of(self, element: Input | Opaque) -> tuple[int, ...]:
        """Return the numbers of positions in the tensor of an element, as far as they are known."""
        if isinstance(element, Input):
            return self.arguments.get(element.argument, ())
        return tuple(var.size for var in self.variables[element.number])

    def number_of(self, new: UnknownComputation, name: str, variables: Sequence[Var]) -> int:
        """Return the number of an equal known computation, or add the computation."""
        if (number := self.numbers.get(new)) is not None:
            return number
        for number, known in enumerate(self.known):
            if comparable(new, known) and _equal(new, known):
                return number
        self.numbers[new] = len(self.known)
        self.known.append(new)
        self.names.append(name)
        self.variables.append(tuple(variables))
        return len(self.known) - 1


def comparable(a: UnknownComputation, b: UnknownComputation) -> bool:
    """Return whether two computations have the same cost and operands of the same shapes."""
    shapes = [[(x.shape, x.place) for x in side.operands] for side in (a, b)]
    facts = [(side.flops, side.partial, side.loop, side.operation) for side in (a, b)]
    return facts[0] == facts[1] and shapes[0] == shapes[1]


def _equal(a: UnknownComputation, b: UnknownComputation) -> bool:
    if None not in (a.outlines, b.outlines) and a.outlines != b.outlines:
        return False
    pairs = [(x.expr, y.expr) for x, y in zip(a.operands, b.operands, strict=True)]
    return all(expressions_equal(x, y, Fraction(0)) for x, y in pairs)


def _outline(expr: Expr) -> Hashable:
    """Return what an expression is without its indices; None if there are choices in it."""
    if isinstance(expr, Select):
        return None
    terms = Counter((times, outline_of(term.summand)) for term, times in expr.terms)
    if any(inside is None for _, inside in terms):
        return None
    return expr.number, frozenset(terms.items())


def outline_of(summand: Summand) -> Hashable:
    """Return what a summand is without its indices; None if there are choices in it."""
    match summand:
        case Input() | Opaque():
            return type(summand), summand.source, summand.dtype
        case Cast():
            parts: list[Hashable] = [_outline(summand.body)]
        case SummedSelect():
            return None
        case Extremum():
            parts = [_outline(family.body) for family in summand.families]
        case Product():
            parts = []
            for family, power in summand.factors:
                inside = _outline(family.body)
                parts.append(None if inside is None else (inside, power))
    return None if None in parts else (type(summand), frozenset(Counter(parts).items()))


def coordinate_variable(mesh: Mesh, axis: str) -> Var:
    """Return the variable for the coordinate of a device on a sub-axis."""
    return Var("device", axis, mesh.by_name[axis].size)


def position_variable(dim: int, size: int) -> Var:
    """Return the variable for the position of an element in a dimension of a buffer."""
    return Var("index", dim, size)


class Casts(Enum):
    """The conversions that stay casts in an expression."""

    KEPT = auto()
    """Conversions to a type that does not hold every value of the operand's type."""
    ERASED = auto()
    """None: only constants are converted."""
    UNDERFLOW = auto()
    """Conversions that may underflow or lose a fraction: casts to integers or to a type of short
    range, and scaling by less than 1 within such a type."""
