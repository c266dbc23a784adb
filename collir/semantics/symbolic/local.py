"""Local steps on symbolic values: what devices with buffers of one shape do by themselves."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DType
from collir.semantics.symbolic.algebra import (
    added,
    cast_expr,
    constant_cast,
    mapped,
    scaled,
    selection,
    substituted,
)
from collir.semantics.symbolic.expressions import (
    Cast,
    Expr,
    UnprovenError,
    constant_expr,
    interval_variable,
    term_expr,
)
from collir.semantics.symbolic.indices import (
    ZERO_INDEX,
    Index,
    Var,
    digit_of,
    mixed_radix,
    shifted,
    variable,
)
from collir.semantics.symbolic.values import (
    Casts,
    ImpossibleError,
    SymbolicValue,
    position_variable,
)


def position_in(dim: int, size: int) -> tuple[Index, int]:
    """Return the position in a dimension of a buffer, and the size of the dimension."""
    return variable(position_variable(dim, size)), size


def with_size(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    """Return a shape with another size of a dimension."""
    return (*shape[:dim], size, *shape[dim + 1 :])


@dataclass(frozen=True)
class SymbolicLocalStep:
    """A step that devices with buffers of one shape carry out by themselves.

    Attributes:
        shape: the shape of the result in their memory.
        casts: the conversions that stay casts.
    """

    op: DistOp
    operands: Sequence[SymbolicValue]
    shape: tuple[int, ...]
    casts: Casts


def viewed(s: SymbolicLocalStep) -> SymbolicValue:
    """Return the same elements, in row-major order, under another shape."""
    (x,), shape = s.operands, s.shape
    if math.prod(shape) != math.prod(x.shape):
        raise ImpossibleError(s.op, "the number of elements differs")
    flat = mixed_radix(position_in(dim, size) for dim, size in enumerate(shape))
    values: dict[Var, Index] = {}
    stride = 1
    for dim in reversed(range(len(x.shape))):
        size = x.shape[dim]
        values[position_variable(dim, size)] = digit_of(flat, stride, size)
        stride *= size
    return SymbolicValue(shape, x.place, substituted(x.expr, values))


Part = tuple[int, Expr | Callable[[Index], Expr]]


def by_intervals(at: Index, parts: Iterable[Part]) -> Expr:
    """Return the choice by an index between intervals, which follow each other from 0 on.

    Args:
        parts: the size of each interval; and its value, or a function of the position in it.
    """
    pieces: list[tuple[int, Var, Expr]] = []
    start = 0
    for size, value in parts:
        if size > 0:
            var = interval_variable(at, start, size)
            pieces.append((size, var, value(variable(var)) if callable(value) else value))
            start += size
    return selection(at, pieces)


def padded(x: SymbolicValue, dim: int, low: int, high: int, fill: float) -> SymbolicValue:
    """Return a value with elements added in front of and behind a dimension, or cut off."""
    local = x.shape[dim]
    shape = with_size(x.shape, dim, local + low + high)
    inside = position_variable(dim, local)

    def kept(at: Index) -> Expr:
        return substituted(x.expr, {inside: shifted(at, max(-low, 0))})

    inner = local + min(low, 0) + min(high, 0)
    parts: list[Part] = [(low, constant_expr(fill)), (inner, kept), (high, constant_expr(fill))]
    at = variable(position_variable(dim, shape[dim]))
    return SymbolicValue(shape, x.place, by_intervals(at, parts))


def concatenated(operands: Sequence[SymbolicValue], dim: int) -> SymbolicValue:
    """Return the concatenation of values along a dimension."""
    total = sum(x.shape[dim] for x in operands)

    def part(x: SymbolicValue) -> Part:
        inside = position_variable(dim, x.shape[dim])
        return x.shape[dim], lambda at: substituted(x.expr, {inside: at})

    x = operands[0]
    expr = by_intervals(variable(position_variable(dim, total)), map(part, operands))
    return SymbolicValue(with_size(x.shape, dim, total), x.place, expr)


def converted(s: SymbolicLocalStep) -> SymbolicValue:
    """Return a value in another dtype, as far as casts are kept."""
    (x,), dtype, source = s.operands, DType(s.op.word("dtype")), dist_type(s.op.input).dtype
    if dtype is DType.BOOL is not source and s.casts is Casts.ERASED:
        raise UnprovenError("a cast to bool forgets the number")
    cuts = not dtype.is_float or (dtype.short_range and source.is_float)
    if s.casts is Casts.KEPT or (s.casts is Casts.UNDERFLOW and cuts):
        expr = cast_expr(x.expr, dtype, source)
    else:
        expr = mapped(x.expr, lambda leaf: constant_cast(leaf, dtype))
    return SymbolicValue(x.shape, x.place, expr)


def times_constant(s: SymbolicLocalStep) -> SymbolicValue:
    """Return a value times the factor of a step."""
    (x,), factor = s.operands, Fraction(s.op.number("factor"))
    dtype = dist_type(s.op.input).dtype
    expr = scaled(x.expr, factor)
    if s.casts is Casts.UNDERFLOW and dtype.short_range and abs(factor) < 1:
        expr = mapped(expr, lambda leaf: term_expr(Cast(dtype, leaf)) if leaf.terms else leaf)
    return SymbolicValue(x.shape, x.place, expr)


def transposed(s: SymbolicLocalStep) -> SymbolicValue:
    """Return a value with its dimensions in another order."""
    (x,), order = s.operands, s.op.sizes("order")
    values = {
        position_variable(dim, x.shape[dim]): variable(position_variable(new, x.shape[dim]))
        for new, dim in enumerate(order)
    }
    return SymbolicValue(tuple(x.shape[dim] for dim in order), x.place, substituted(x.expr, values))


def repeated(s: SymbolicLocalStep) -> SymbolicValue:
    """Return a value in the shape of the result of a step that repeats dimensions."""
    return _repeated(s, s.operands[0])


def _repeated(s: SymbolicLocalStep, x: SymbolicValue) -> SymbolicValue:
    """Return a value repeated along new dimensions and those of size 1, in the result's shape."""
    before = len(s.shape) - len(x.shape)
    values: dict[Var, Index] = {}
    for dim, size in enumerate(x.shape):
        if before < 0 or size not in (1, s.shape[before + dim]):
            raise ImpossibleError(s.op, f"{list(x.shape)} does not fit {list(s.shape)}")
        whole = size == s.shape[before + dim]
        at = variable(position_variable(before + dim, size)) if whole else ZERO_INDEX
        values[position_variable(dim, size)] = at
    return SymbolicValue(s.shape, x.place, substituted(x.expr, values))


def summed(s: SymbolicLocalStep) -> SymbolicValue:
    """Return the sum of two values, repeated to one shape."""
    x, y = (x if x.shape == s.shape else _repeated(s, x) for x in s.operands)
    return SymbolicValue(x.shape, x.place, added(x.expr, y.expr))


def constants(s: SymbolicLocalStep) -> SymbolicValue:
    """Return a value all of whose elements are one number."""
    to = s.op.layout("to")
    expr = constant_cast(constant_expr(s.op.number("value")), to.dtype)
    return SymbolicValue(s.shape, to.place, expr)
