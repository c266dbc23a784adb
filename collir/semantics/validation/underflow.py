"""Losses to underflow: the result in which a function loses more than another.

A value of a type of short range that is made small may become 0. At the end of a program that is
a rounding like any other. If many such values are added up, or if one is scaled up again, the loss
is multiplied. Example: the sum of 8 values of f16 that were scaled by 1/8 before may lose 8 times
as much as the sum scaled afterwards.

Functions are executed symbolically (``semantics.symbolic``) with a cast for every value that may
underflow. The loss in an element is the sum of the factors of its casts.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import dist_type
from collir.semantics.symbolic.algebra import zipped
from collir.semantics.symbolic.expressions import (
    ZERO_EXPR,
    Cast,
    Expr,
    Extremum,
    Input,
    Opaque,
    Product,
    Sum,
    Summand,
    SummedSelect,
    UnprovenError,
    constant_expr,
)
from collir.semantics.symbolic.uneven import logical_values, results_by_class
from collir.semantics.symbolic.values import Casts, Computations, ImpossibleError
from collir.semantics.validation.proof import logical_value, result_types

_SMALL = Fraction(1, 1000)
"""The relative difference from which on losses count as different."""


def excess_loss(
    before: FuncOp, after: FuncOp, bodies: dict[RepeatOp, int] | None = None
) -> tuple[int, Fraction] | None:
    """Return the first result that loses more to underflow than before, and the ratio of losses.

    Args:
        bodies: the numbers of the bodies of loops, if there are any. What is lost inside of a loop
            does not count.
    """
    if not _has_short_values(after):
        return None
    types = result_types(before)
    mesh = mesh_of(before)
    try:
        sides: list[list[tuple[int, Expr]]] = []  # each with the index of its result
        for function in (after, before):
            computations = Computations(bodies=bodies or {})
            results = results_by_class(function, computations, Casts.UNDERFLOW)
            sides.append(
                [
                    (index, logical_value(mesh, x, value))
                    for index, (x, result) in enumerate(zip(types, results, strict=True))
                    for value in logical_values(mesh, x, result).values()
                ]
            )
            if all(_loss(expr) <= 1 for _, expr in sides[0]):
                return None
        for (index, new), (_, old) in zip(*sides, strict=True):
            if ratio := max(_constants(zipped(new, old, _loss_ratio)), default=Fraction(0)):
                return index, ratio
    except (UnprovenError, ImpossibleError, RecursionError):
        pass
    return None


def _has_short_values(function: FuncOp) -> bool:
    """Return whether a function has values of a type of short range, in loops too."""
    values = (*function.args, *(result for op in function.body.walk() for result in op.results))
    return any(dist_type(value).dtype.short_range for value in values)


def _loss_ratio(new: Sum, old: Sum) -> Expr:
    """Return the ratio of the losses of two sums, or 0 if the new loss is not larger."""
    ratio = _loss(new) / max(_loss(old), Fraction(1))
    return constant_expr(ratio) if ratio > 1 + _SMALL else ZERO_EXPR


def _constants(expr: Expr) -> Iterator[Fraction]:
    """Yield the constants in the branches of an expression."""
    if isinstance(expr, Sum):
        yield expr.number
    else:
        for _, value in expr.branches:
            yield from _constants(value)


def _loss(expr: Expr) -> Fraction:
    """Return an upper bound of the number of underflowed values that are lost in an element."""
    if not isinstance(expr, Sum):
        return max(_loss(value) for _, value in expr.branches)
    losses = (
        abs(times) * prod(var.size for var in term.bound) * _loss_in(term.summand)
        for term, times in expr.terms
    )
    return sum(losses, Fraction(0))


def _loss_in(summand: Summand) -> Fraction:
    match summand:
        case Input() | Opaque():
            return Fraction(0)
        case Cast():
            short = summand.dtype.short_range
            return max(_loss(summand.body), Fraction(1)) if short else Fraction(0)
        case SummedSelect():
            return _loss(summand.body)
        case Extremum():
            return max(_loss(family.body) for family in summand.families)
        case Product():
            return max(_loss(family.body) for family, _ in summand.factors)
