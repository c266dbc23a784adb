"""Whether a function computes without rounding on the inputs that ``buffers`` generates.

Generated inputs are small integers. For every value two figures are followed through the steps:
all its elements, and all their reductions over any part of the devices, are multiples of a
``unit`` and at most ``largest`` in magnitude. As long as their ratio fits the mantissa of the
dtype, every order of computing gives the same bits, and results may be compared bit by bit.
"""

from dataclasses import dataclass
from fractions import Fraction

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects import coll
from collir.dialects.coll import dist_type
from collir.dialects.machine import mesh_of
from collir.layout import DistType, DType, Mesh, Reduction
from collir.semantics.buffers import NUMPY


@dataclass(frozen=True)
class _Grid:
    """Multiples of ``unit`` up to ``largest``; ``exact`` if nothing has been rounded so far."""

    largest: Fraction
    unit: Fraction
    exact: bool = True

    def within(self, dtype: DType) -> "_Grid":
        """The same, inexact where the dtype cannot hold all of it. Integers wrap, exactly."""
        fits = not dtype.is_float or (
            self.largest / self.unit <= 2**dtype.mantissa and dtype.represents(float(self.largest))
        )
        return _Grid(self.largest, self.unit, self.exact and fits)

    def with_constant(self, value: Fraction, times: int = 1) -> "_Grid":
        """Room for ``times`` a constant beside the elements."""
        unit = Fraction(1, value.denominator)
        return _Grid(max(self.largest, abs(value) * times), min(self.unit, unit), self.exact)


def _constant(value: float, dtype: DType) -> Fraction:
    """A constant as the dtype holds it."""
    return Fraction(float(NUMPY[dtype].type(value))) if dtype.is_float else Fraction(int(value))


def _input(mesh: Mesh, x: DistType) -> _Grid:
    """What ``buffers.distribute`` makes of ``buffers.random_tensor``."""
    parts = mesh.group_size(x.partial)
    largest = {
        None: 3,
        Reduction.SUM: 3 + 2 * parts * max(1, min(3, 48 // parts)),
        Reduction.PROD: 3,
        Reduction.MAX: 6,
        Reduction.MIN: 6,
        Reduction.AVG: 5 * parts,
    }[x.reduction]
    return _Grid(Fraction(largest), Fraction(1)).within(x.dtype)


def exact(function: FuncOp) -> bool:
    """Whether no step of a function rounds on generated inputs, in any order of reducing."""
    mesh = mesh_of(function)
    grids: dict[SSAValue, _Grid] = {arg: _input(mesh, dist_type(arg)) for arg in function.args}
    for op in function.body.ops:
        if isinstance(op, coll.CollOp):
            grid = _after(op, mesh, [grids[operand] for operand in op.operands])
            grids[op.result] = grid.within(dist_type(op.result).dtype)
    return all(grid.exact for grid in grids.values())


def _after(op: coll.CollOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    first, x = operands[0], dist_type(op.operands[0])
    parts = max(mesh.group_size(dist_type(operand).partial) for operand in op.operands)
    exact_so_far = all(grid.exact for grid in operands)
    match op:
        case coll.AddOp():
            # A replicated value that is added to a partial one is reduced with it.
            partial = [bool(dist_type(operand).partial) for operand in op.operands]
            times = [1 if own else parts for own in partial]
            total = sum((g.largest * n for g, n in zip(operands, times, strict=True)), Fraction(0))
            return _Grid(total, min(grid.unit for grid in operands), exact_so_far)
        case coll.ConcatOp():
            largest = max(grid.largest for grid in operands)
            return _Grid(largest, min(grid.unit for grid in operands), exact_so_far)
        case coll.ScaleOp():
            factor = _constant(op.factor.data, x.dtype)
            twos = factor.numerator & -factor.numerator or 1  # the power of two in it
            unit = first.unit * Fraction(twos, factor.denominator)
            return _Grid(first.largest * abs(factor), unit, first.exact)
        case coll.PadOp() if op.low.value.data > 0 or op.high.value.data > 0:
            return first.with_constant(_constant(op.value.data, x.dtype), parts)
        case coll.CastOp() if not DType(op.dtype.data).is_float:
            return _Grid(max(first.largest, Fraction(1)), max(first.unit, Fraction(1)), first.exact)
        case _:
            return first


def roundings(function: FuncOp) -> int:
    """How many roundings an element of a result may have seen, as a bound for comparisons."""
    mesh = mesh_of(function)
    reductions = sum(
        mesh.group_size(dist_type(op.operands[0]).partial - dist_type(op.result).partial)
        for op in function.body.ops
        if isinstance(op, (*coll.REDUCING, coll.RedistributeOp))
    )
    return 2 + reductions + len(list(function.body.ops))
