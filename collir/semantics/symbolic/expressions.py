"""Symbolic values of all elements of a distributed tensor, on all devices at once.

An expression is a function of variables: the coordinate of the device on each sub-axis, and the
position of the element in each dimension of the buffer. It is one of:

- ``Sum``: a constant plus factors times terms; a ``SummedTerm`` sums a summand over bound
  variables.
- ``Select``: a choice by the interval that an index lies in, as concat, pad and mask make it.

Example: ``%g: f32[8@data.gpu] partial(sum: data.node)``, with a block of 4 elements per device, is

    1 * Input(argument=0, at=(4 * gpu + i, node))

where gpu and node are coordinates and i is the position in the buffer. After ``all_reduce %g over
data.node`` it is 1 times the sum over b of ``Input(0, (4 * gpu + i, b))``, for all b below the size
of data.node.

A summand is an element of an input, or something that is no sum: a maximum, a product, a cast, an
element of the result of a computation. The size of an expression depends on the number of steps
that made it, not on the number of devices or elements. Numbers are exact: rounding is not modelled.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from collir.layout import DType, Reduction
from collir.semantics.symbolic.indices import Index, Var, variables
from collir.semantics.symbolic.numbering import interval_number

Variables = frozenset[Var]


class UnprovenError(Exception):
    """A step that symbolic execution cannot express; nothing is then known of the program."""


def _union(sets: Iterable[Variables]) -> Variables:
    return frozenset[Var]().union(*sets)


@dataclass(frozen=True)
class Input:
    """An element of an argument.

    Attributes:
        argument: the number of the argument.
        at: the position in each dimension of the global tensor, then the coordinate on each
            sub-axis that the argument is partial over.
    """

    argument: int
    at: tuple[Index, ...]
    dtype: DType

    @property
    def source(self) -> int:
        """The number of the argument."""
        return self.argument

    @cached_property
    def free(self) -> Variables:
        """The variables that occur free."""
        return _union(variables(index) for index in self.at)


@dataclass(frozen=True)
class Opaque:
    """An element of the result of a ``compute``, an unknown function of its operands.

    Attributes:
        number: the number of the computation; equal computations of equal operands share one.
        at: the position in each dimension of the buffer, then the coordinates that matter.
    """

    number: int
    at: tuple[Index, ...]
    dtype: DType

    @property
    def source(self) -> int:
        """The number of the computation."""
        return self.number

    @cached_property
    def free(self) -> Variables:
        """The variables that occur free."""
        return _union(variables(index) for index in self.at)


@dataclass(frozen=True)
class Cast:
    """A value converted to another element type, which may round."""

    dtype: DType
    body: "Expr"

    @property
    def free(self) -> Variables:
        """The variables that occur free."""
        return self.body.free


@dataclass(frozen=True)
class Family:
    """The values of an expression for all values of bound variables."""

    bound: tuple[Var, ...]
    body: "Expr"

    @cached_property
    def free(self) -> Variables:
        """The variables that occur free."""
        return self.body.free - frozenset(self.bound)


@dataclass(frozen=True)
class Extremum:
    """The largest (``max``) or smallest (``min``) of all values of families."""

    reduction: Reduction
    families: frozenset[Family]

    @cached_property
    def free(self) -> Variables:
        """The variables that occur free."""
        return _union(family.free for family in self.families)


@dataclass(frozen=True)
class Product:
    """The product of all values of families, each to the power behind its family."""

    factors: frozenset[tuple[Family, int]]

    @cached_property
    def free(self) -> Variables:
        """The variables that occur free."""
        return _union(family.free for family, _ in self.factors)


@dataclass(frozen=True)
class SummedSelect:
    """A ``Select`` as a summand, where its index depends in part on the term's bound variables."""

    body: "Expr"

    @property
    def free(self) -> Variables:
        """The variables that occur free."""
        return self.body.free


Summand = Input | Opaque | Cast | Extremum | Product | SummedSelect


@dataclass(frozen=True)
class SummedTerm:
    """The sum of a summand over all values of bound variables."""

    bound: tuple[Var, ...]
    summand: Summand

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.bound, self.summand))

    @cached_property
    def free(self) -> Variables:
        """The variables that occur free."""
        return self.summand.free - frozenset(self.bound) if self.bound else self.summand.free


@dataclass(frozen=True)
class Sum:
    """A constant (``number``) plus the sum of terms times factors that are not 0."""

    number: Fraction
    terms: frozenset[tuple[SummedTerm, Fraction]] = frozenset()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.number, self.terms))

    @cached_property
    def free(self) -> Variables:
        """The variables that occur free."""
        return _union(term.free for term, _ in self.terms)

    @property
    def only(self) -> tuple[SummedTerm, Fraction] | None:
        """The term and its factor, if the sum is a single term and no constant."""
        if self.number or len(self.terms) != 1:
            return None
        return next(iter(self.terms))

    @property
    def sole_summand(self) -> Summand | None:
        """The summand that the sum is equal to, if it is a single summand times 1."""
        if (only := self.only) is None or only[1] != 1 or only[0].bound:
            return None
        return only[0].summand


@dataclass(frozen=True)
class Select:
    """The value of the branch whose interval contains an index.

    ``branches`` are the lengths of the intervals, which follow each other from 0, and the value in
    each. A value may depend on the position in its interval, which is the variable
    ``interval_variable(at, start, length)``.
    """

    at: Index
    branches: tuple[tuple[int, "Expr"], ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.at, self.branches))

    @cached_property
    def free(self) -> Variables:
        """The variables that occur free."""
        own = frozenset(var for _, var, _ in self.pieces)
        return (_union(e.free for _, e in self.branches) - own) | variables(self.at)

    @cached_property
    def pieces(self) -> tuple[tuple[int, Var, "Expr"], ...]:
        """The start, the variable and the value of every branch."""
        pieces: list[tuple[int, Var, Expr]] = []
        start = 0
        for length, value in self.branches:
            pieces.append((start, interval_variable(self.at, start, length), value))
            start += length
        return tuple(pieces)


Expr = Sum | Select

MAX_INTERVALS = 2**18
"""The most intervals of choices in one proof."""


def interval_variable(at: Index, start: int, length: int) -> Var:
    """Return the variable for the position ``at - start`` in an interval, one for each (at, start).

    Raises:
        UnprovenError: there are more than ``MAX_INTERVALS``.
    """
    number = interval_number((at, start))
    if number > MAX_INTERVALS:
        raise UnprovenError("what is put together and cut has too many pieces")
    return Var("branch", number, length)


ZERO_EXPR = Sum(Fraction(0))


def constant_expr(value: Fraction | float) -> Sum:
    """Return the expression of a constant."""
    return Sum(Fraction(value))


def term_expr(summand: Summand, times: Fraction | int = 1) -> Sum:
    """Return the expression of a summand times a factor."""
    if not times:
        return ZERO_EXPR
    return Sum(Fraction(0), frozenset([(SummedTerm((), summand), Fraction(times))]))
