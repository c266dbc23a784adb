"""The parts of gradients in rows, and the gradients that rows have in common.

A gradient takes a step of the reverse program, and the number of an operand. It returns the
cotangent of this operand, or None if the operand has none. The cotangent may have dimensions in
which the operand was repeated: it is summed over them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from collir.layout.types import DistType


class Term(Protocol):
    """A value of the program that a gradient writes; arithmetic adds a step."""

    def __add__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...
    def __mul__(self, other: Self) -> Self: ...
    def __truediv__(self, other: Self) -> Self: ...
    def __neg__(self) -> Self: ...

    def step(self, operation: str, *others: Self, **arguments: Any) -> Self:
        """Add a step whose first operand is this value, and return its result."""
        ...

    def full(self, value: float) -> Self:
        """Return a constant without dimensions, of the dtype of this value and where it is."""
        ...

    def whole(self) -> Self:
        """Return this value behind its reduction, if it is partial."""
        ...

    def repeated(self, x: DistType) -> Self:
        """Return this value repeated along dimensions of size 1, to the shape and the layout of a
        type."""
        ...


class Forward(Protocol):
    """A step, as what is derived from it sees it."""

    @property
    def x(self) -> Sequence[Term]:
        """The operands."""
        ...

    @property
    def types(self) -> Sequence[DistType]:
        """The types of the operands."""
        ...

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the step."""
        ...


class Reverse(Forward, Protocol):
    """A step of the reverse program, as gradients see it.

    Operands and results that a gradient asks for are kept from the forward program, and no others.
    """

    @property
    def g(self) -> Term:
        """The cotangent of the result, which is not partial."""
        ...

    @property
    def y(self) -> Term:
        """The result, which is not partial either."""
        ...


Gradient = Callable[[Reverse, int], Term | None]
"""A function from a step and the number of an operand to the cotangent of the operand."""


def same(r: Reverse, operand: int) -> Term:
    """Return the cotangent of the result."""
    return r.g


def nothing(r: Reverse, operand: int) -> None:
    """Return no cotangent: gradients do not pass the operation."""


def reshaped(r: Reverse, operand: int) -> Term:
    """Return the cotangent in the shape of the operand."""
    return r.g.step("reshape", shape=r.types[operand].shape)


def transposed(r: Reverse, operand: int) -> Term:
    """Return the cotangent with its dimensions in the order of the operand."""
    order: Sequence[int] = r.arguments["order"]
    return r.g.step("transpose", order=tuple(order.index(d) for d in range(len(order))))


def cut_out(r: Reverse, operand: int) -> Term:
    """Return the cotangent without added elements, and with zeros for those that were cut off."""
    low, high = r.arguments["low"], r.arguments["high"]
    return r.g.step("pad", dim=r.arguments["dim"], low=-low, high=-high)


def part_of(r: Reverse, operand: int) -> Term:
    """Return the part of the cotangent that belongs to an operand of a concatenation."""
    dim: int = r.arguments["dim"]
    sizes = [x.shape[dim] for x in r.types]
    before, behind = sum(sizes[:operand]), sum(sizes[operand + 1 :])
    return r.g.step("pad", dim=dim, low=-before, high=-behind)


def scaled(r: Reverse, operand: int) -> Term:
    """Return the cotangent times the constant of the step."""
    return r.g.step("scale", factor=r.arguments["factor"])


def shifted_back(r: Reverse, operand: int) -> Term:
    """Return the cotangent with its blocks where those of the operand were."""
    distance: int = r.arguments["distance"]
    ring = {"axes": r.arguments["axes"], "open": r.arguments.get("open")}
    return r.g.step("shift", **ring, distance=-distance)


def cast_back(r: Reverse, operand: int) -> Term:
    """Return the cotangent in the element type of the operand."""
    return r.g.step("cast", dtype=str(r.types[operand].dtype))
