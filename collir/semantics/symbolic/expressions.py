"""What an element of a distributed tensor is made of, for all elements and all devices at once.

An expression is a function of where a device stands (a variable for each sub-axis) and of where an
element lies (a variable for each dimension of the buffer). It is a sum of terms with exact
factors, or a choice between sums:

- ``Sum``: a constant and terms. A term is a node, summed over its bound variables: "the sum of
  input 0 at [i, j] of data.gpu = b, over all b below 8".
- ``Select``: which interval an index lies in decides; put together by concat, pad and mask.

Nodes are elements of the inputs, and what is no sum: the largest or smallest of many, products,
casts, computations. The size of an expression depends on the number of steps that made it, not on
how many devices or elements there are. Numbers are exact: rounding is not modelled.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from collir.layout import DType, Reduction
from collir.semantics.symbolic.indices import Index, Var, variables

Variables = frozenset[Var]


class UnprovenError(Exception):
    """Something that is not expressed here; nothing is known of the program then."""


def _all(sets: Iterable[Variables]) -> Variables:
    return frozenset[Var]().union(*sets)


@dataclass(frozen=True)
class Input:
    """An element of an argument: where in the global tensor, then on which coordinates of the
    sub-axes it is partial over."""

    argument: int
    at: tuple[Index, ...]
    dtype: DType

    @property
    def which(self) -> int:
        """The argument's number."""
        return self.argument

    @cached_property
    def free(self) -> Variables:
        """The variables it depends on."""
        return _all(variables(index) for index in self.at)


@dataclass(frozen=True)
class Opaque:
    """An element of what a ``compute`` gives: which one (all that compute the same of the same have
    one number), where in the buffer and on which coordinates."""

    number: int
    at: tuple[Index, ...]
    dtype: DType

    @property
    def which(self) -> int:
        """The computation's number."""
        return self.number

    @cached_property
    def free(self) -> Variables:
        """The variables it depends on."""
        return _all(variables(index) for index in self.at)


@dataclass(frozen=True)
class Cast:
    """A value in another element type, which may round."""

    dtype: DType
    body: "Expr"

    @property
    def free(self) -> Variables:
        """The variables it depends on."""
        return self.body.free


@dataclass(frozen=True)
class Over:
    """An expression for all values of bound variables."""

    bound: tuple[Var, ...]
    body: "Expr"

    @cached_property
    def free(self) -> Variables:
        """The variables it depends on."""
        return self.body.free - frozenset(self.bound)


@dataclass(frozen=True)
class Best:
    """The largest (``max``) or smallest (``min``) of all of these."""

    reduction: Reduction
    of: frozenset[Over]

    @cached_property
    def free(self) -> Variables:
        """The variables it depends on."""
        return _all(one.free for one in self.of)


@dataclass(frozen=True)
class Product:
    """The product of all of these, each as often as its number says."""

    of: frozenset[tuple[Over, int]]

    @cached_property
    def free(self) -> Variables:
        """The variables it depends on."""
        return _all(one.free for one, _ in self.of)


@dataclass(frozen=True)
class Total:
    """A ``Select`` that the variables of the term around it decide upon in part."""

    body: "Expr"

    @property
    def free(self) -> Variables:
        """The variables it depends on."""
        return self.body.free


Node = Input | Opaque | Cast | Best | Product | Total


@dataclass(frozen=True)
class Term:
    """A node, summed over all values of bound variables."""

    bound: tuple[Var, ...]
    node: Node

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.bound, self.node))

    @cached_property
    def free(self) -> Variables:
        """The variables it depends on."""
        return self.node.free - frozenset(self.bound) if self.bound else self.node.free


@dataclass(frozen=True)
class Sum:
    """A constant, and terms times factors that are not 0."""

    number: Fraction
    terms: frozenset[tuple[Term, Fraction]] = frozenset()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.number, self.terms))

    @cached_property
    def free(self) -> Variables:
        """The variables it depends on."""
        return _all(term.free for term, _ in self.terms)

    @property
    def only(self) -> tuple[Term, Fraction] | None:
        """The one term there is, where there is nothing else."""
        if self.number or len(self.terms) != 1:
            return None
        return next(iter(self.terms))


@dataclass(frozen=True)
class Select:
    """The branch whose interval an index lies in.

    ``branches`` are the lengths of the intervals, from 0 on, and what the value is there: in terms
    of the place in the interval too, which is the variable ``branch(at, start, length)``.
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
        """The variables it depends on."""
        own = frozenset(var for _, var, _ in self.pieces)
        return (_all(e.free for _, e in self.branches) - own) | variables(self.at)

    @cached_property
    def pieces(self) -> tuple[tuple[int, Var, "Expr"], ...]:
        """For every branch where it starts, its variable, and the value."""
        found: list[tuple[int, Var, Expr]] = []
        start = 0
        for length, value in self.branches:
            found.append((start, branch(self.at, start, length), value))
            start += length
        return tuple(found)


Expr = Sum | Select

_branches: dict[tuple[Index, int], int] = {}


MOST_BRANCHES = 2**18
"""The most intervals of choices in one proof."""


def branch(at: Index, start: int, length: int) -> Var:
    """The variable that is ``at - start`` in an interval: the same one wherever these are.

    Raises:
        UnprovenError: there are too many.
    """
    number = _branches.setdefault((at, start), len(_branches))
    if number > MOST_BRANCHES:
        raise UnprovenError("what is put together and cut has too many pieces")
    return Var("branch", number, length)


def forget_branches() -> None:
    """Begins a proof: drops what ``branch`` remembers. No expression may be kept beyond."""
    _branches.clear()


ZERO = Sum(Fraction(0))


def number(value: Fraction | float) -> Sum:
    """A constant."""
    return Sum(Fraction(value))


def term(node: Node, times: Fraction | int = 1) -> Sum:
    """A node times a factor."""
    return Sum(Fraction(0), frozenset([(Term((), node), Fraction(times))])) if times else ZERO
