"""Where a function loses more than another to underflow.

A value of a type of short range that is made small may become 0. At the end of a program that is
a rounding like others. If many such values are added up, or one is scaled up again, what is lost
counts as often. Functions are run on expressions (symbolic.py) in which every value that may
underflow is a cast; what is lost in an element is the sum of the factors of its casts.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.layout import DistType
from collir.semantics.symbolic.algebra import zipped
from collir.semantics.symbolic.execution import Casts, Computations, ImpossibleError, results
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
    Sum,
    Total,
    UnprovenError,
    number,
)
from collir.semantics.validation.proof import meant, of_attribute

_SMALL = Fraction(1, 1000)
"""By how much losses have to differ, as a part of them."""


def more_lost(before: FuncOp, after: FuncOp) -> tuple[int, Fraction] | None:
    """The first result that loses more to underflow than before, and how many times as much."""
    types: list[DistType] = [of_attribute(output) for output in before.function_type.outputs]
    mesh = mesh_of(before)
    try:
        sides: list[list[Expr]] = []
        for function in (after, before):
            values = results(function, Computations(), Casts.UNDERFLOW)
            sides.append([meant(mesh, x, v) for x, v in zip(types, values, strict=True)])
            if all(_lost(expr) <= 1 for expr in sides[0]):
                return None
        for index, (new, old) in enumerate(zip(*sides, strict=True)):
            if found := max(_numbers(zipped(new, old, _times)), default=Fraction(0)):
                return index, found
    except (UnprovenError, ImpossibleError, RecursionError):
        pass
    return None


def _times(new: Sum, old: Sum) -> Expr:
    """How many times as much the one sum loses as the other; 0, if that is not more."""
    times = _lost(new) / max(_lost(old), Fraction(1))
    return number(times) if times > 1 + _SMALL else ZERO


def _numbers(one: Expr) -> Iterator[Fraction]:
    """The constants that an expression of nothing else may be."""
    if isinstance(one, Sum):
        yield one.number
    else:
        for _, value in one.branches:
            yield from _numbers(value)


def _lost(one: Expr) -> Fraction:
    """How many values that underflowed are lost in an element at most."""
    if not isinstance(one, Sum):
        return max(_lost(value) for _, value in one.branches)
    each = (abs(n) * prod(v.size for v in key.bound) * _lost_in(key.node) for key, n in one.terms)
    return sum(each, Fraction(0))


def _lost_in(node: Node) -> Fraction:
    match node:
        case Input() | Opaque():
            return Fraction(0)
        case Cast():
            return max(_lost(node.body), Fraction(1)) if node.dtype.short_range else Fraction(0)
        case Total():
            return _lost(node.body)
        case Best() | Product():
            of = [one if isinstance(one, Over) else one[0] for one in node.of]
            return max(_lost(one.body) for one in of)
