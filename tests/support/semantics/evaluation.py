"""The values of symbolic expressions, by definition, to compare with what is executed."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from xdsl.dialects.func import FuncOp

from collir.dialects.nn import OPERATIONS
from collir.dialects.tensor import dist_type
from collir.layout import Mesh, Reduction
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.devices import coordinate, slices_of
from collir.semantics.reference.nn import FUNCTIONS
from collir.semantics.symbolic.expressions import (
    Cast,
    Expr,
    Extremum,
    Family,
    Input,
    Opaque,
    Product,
    Select,
    Summand,
    SummedSelect,
)
from collir.semantics.symbolic.indices import Var, evaluated
from collir.semantics.symbolic.values import Computations

Point = Mapping[Var, int]


class Evaluation:
    """The values of expressions where their variables have values.

    ``inputs`` has, for each argument, the elements by global position and partial coordinates.
    Elements of computations are those of operations of models.
    """

    def __init__(
        self, inputs: list[dict[tuple[int, ...], float]], computations: Computations | None = None
    ):
        self.inputs = inputs
        self.computations = computations or Computations()
        self.known: dict[tuple[int, tuple[int, ...]], float] = {}

    def expr(self, expr: Expr, at: Point) -> float:
        if isinstance(expr, Select):
            position = evaluated(expr.at, at)
            for start, var, inner in expr.pieces:
                if start <= position < start + var.size:
                    return self.expr(inner, {**at, var: position - start})
            raise AssertionError("an index outside of all intervals")
        total = float(expr.number)
        for term, times in expr.terms:
            values = (self.summand(term.summand, point) for point in points(term.bound, at))
            total += sum(float(times) * value for value in values)
        return total

    def summand(self, summand: Summand, at: Point) -> float:
        match summand:
            case Input():
                position = tuple(evaluated(index, at) for index in summand.at)
                return self.inputs[summand.argument][position]
            case Cast():
                number = np.array(self.expr(summand.body, at))
                return float(number.astype(NUMPY[summand.dtype]))
            case SummedSelect():
                return self.expr(summand.body, at)
            case Extremum():
                numbers = [n for family in summand.families for n in self.family(family, at)]
                return max(numbers) if summand.reduction is Reduction.MAX else min(numbers)
            case Product():
                return math.prod(
                    n**times for family, times in summand.factors for n in self.family(family, at)
                )
            case Opaque():
                position = tuple(evaluated(index, at) for index in summand.at)
                key = summand.number, position
                if key not in self.known:
                    self.known[key] = self.element(*key)
                return self.known[key]

    def element(self, number: int, position: tuple[int, ...]) -> float:
        """Return an element of the result of an elementwise operation."""
        computation = self.computations.known[number]
        name = str(computation.operation[0])
        at = dict(zip(self.computations.variables[number], position, strict=True))
        operands = [np.float64(self.expr(x.expr, at)) for x in computation.operands]
        with np.errstate(all="ignore"):
            if name == "iota":  # the numbers themselves
                return float(position[0])
            if name == "itself":
                return float(operands[0])
            if name == "reciprocal":
                return float(1 / operands[0])
            if name == "where":
                return float(operands[1] if operands[0] else operands[2])
            arrays: list[Any] = [np.array(x) for x in operands]
            return float(FUNCTIONS[name](OPERATIONS[name].create(), arrays))

    def family(self, family: Family, at: Point) -> list[float]:
        return [self.expr(family.body, point) for point in points(family.bound, at)]


def work(expr: Expr) -> int:
    """Return the number of points that a value is evaluated at, apart from those of atoms."""
    if isinstance(expr, Select):
        return max(work(value) for _, value in expr.branches)
    total = 1
    for term, _ in expr.terms:
        total += math.prod(var.size for var in term.bound) * _work_of(term.summand)
    return total


def _work_of(summand: Summand) -> int:
    match summand:
        case Input() | Opaque():
            return 1
        case Cast() | SummedSelect():
            return work(summand.body)
        case Extremum():
            return sum(_work_of_family(family) for family in summand.families)
        case Product():
            return sum(_work_of_family(family) for family, _ in summand.factors)


def _work_of_family(family: Family) -> int:
    return math.prod(var.size for var in family.bound) * work(family.body)


def points(bound: tuple[Var, ...], at: Point) -> list[Point]:
    assignments = itertools.product(*(range(var.size) for var in bound))
    return [{**at, **dict(zip(bound, values, strict=True))} for values in assignments]


def table(
    mesh: Mesh, function: FuncOp, buffers: list[Buffers]
) -> list[dict[tuple[int, ...], float]]:
    """Return the elements of every argument by global position and partial coordinates."""
    tables: list[dict[tuple[int, ...], float]] = []
    for arg, parts in zip(function.args, buffers, strict=True):
        x = dist_type(arg)
        elements: dict[tuple[int, ...], float] = {}
        for rank, buffer in enumerate(parts):
            if buffer is None:
                continue
            partial = tuple(coordinate(mesh, rank, axis) for axis in mesh.ordered(x.partial))
            places = slices_of(mesh, rank, x.dims)
            for local in np.ndindex(buffer.shape):
                position = zip(places, local, strict=True)
                at = tuple(place.start + i for place, i in position)
                elements[at + partial] = float(buffer[local])
        tables.append(elements)
    return tables
