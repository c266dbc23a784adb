"""Expressions say of every element what the numpy executor computes; indices are what they say."""

import itertools
import math
import random
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from checks import functions_of
from hypothesis import given, settings
from programs import RANDOM, random_module
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.layout import Mesh, Reduction
from collir.semantics.reference.buffers import NUMPY, distribute, random_tensor
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.devices import block_of, coordinate
from collir.semantics.reference.exactness import exact
from collir.semantics.reference.executor import execute
from collir.semantics.symbolic.execution import Computations, place, results
from collir.semantics.symbolic.expressions import (
    Best,
    Cast,
    Expr,
    Input,
    Node,
    Opaque,
    Over,
    Product,
    Select,
    Total,
)
from collir.semantics.symbolic.indices import (
    Index,
    Var,
    bounds,
    digit_of,
    mixed,
    put,
    shifted,
    value,
    variable,
    weighted,
)

Point = Mapping[Var, int]


class Evaluation:
    """The number that an expression is, where its variables have values."""

    def __init__(self, inputs: list[dict[tuple[int, ...], float]]):
        self.inputs = inputs

    def expr(self, one: Expr, at: Point) -> float:
        if isinstance(one, Select):
            where = value(one.at, at)
            for start, var, inner in one.pieces:
                if start <= where < start + var.size:
                    return self.expr(inner, {**at, var: where - start})
            raise AssertionError("an index outside of all intervals")
        total = float(one.number)
        for key, times in one.terms:
            total += sum(float(times) * self.node(key.node, p) for p in points(key.bound, at))
        return total

    def node(self, node: Node, at: Point) -> float:
        match node:
            case Input():
                return self.inputs[node.argument][tuple(value(index, at) for index in node.at)]
            case Cast():
                number = np.array(self.expr(node.body, at))
                return float(number.astype(NUMPY[node.dtype]))
            case Total():
                return self.expr(node.body, at)
            case Best():
                numbers = [n for one in node.of for n in self.over(one, at)]
                return max(numbers) if node.reduction is Reduction.MAX else min(numbers)
            case Product():
                return math.prod(n**times for one, times in node.of for n in self.over(one, at))
            case Opaque():
                raise AssertionError("there is no computation here")

    def over(self, one: Over, at: Point) -> list[float]:
        return [self.expr(one.body, p) for p in points(one.bound, at)]


def points(bound: tuple[Var, ...], at: Point) -> list[Point]:
    every = itertools.product(*(range(var.size) for var in bound))
    return [{**at, **dict(zip(bound, one, strict=True))} for one in every]


def table(
    mesh: Mesh, function: FuncOp, buffers: list[Buffers]
) -> list[dict[tuple[int, ...], float]]:
    """For every argument its elements by place in the whole and on partial sub-axes."""
    tables: list[dict[tuple[int, ...], float]] = []
    for arg, listed in zip(function.args, buffers, strict=True):
        x = dist_type(arg)
        found: dict[tuple[int, ...], float] = {}
        for rank, buffer in enumerate(listed):
            if buffer is None:
                continue
            part = tuple(coordinate(mesh, rank, axis) for axis in mesh.ordered(x.partial))
            corner = block_of(mesh, rank, x.dims)
            for local in np.ndindex(buffer.shape):
                whole = zip(corner, buffer.shape, local, strict=True)
                found[tuple(b * n + i for b, n, i in whole) + part] = float(buffer[local])
        tables.append(found)
    return tables


def without_computations(module: ModuleOp) -> None:
    for op in list(module.walk()):
        if isinstance(op, OPERATIONS["compute"]):
            op.result.replace_all_uses_with(op.operands[0])
            op.detach()
            op.erase()


@given(rng=RANDOM)
@settings(max_examples=60, deadline=None)
def test_expressions_are_what_is_executed(rng: random.Random) -> None:
    module = random_module(rng, functions=1)
    without_computations(module)
    (function,) = functions_of(module)
    if not exact(function):
        return
    mesh = mesh_of(function)
    numbers = np.random.default_rng(rng.randrange(2**32))
    types = [dist_type(arg) for arg in function.args]
    buffers = [distribute(mesh, random_tensor(x, numbers), x, numbers) for x in types]
    run = Evaluation(table(mesh, function, buffers))
    executed = execute(module, function, buffers)
    last = function.body.block.last_op
    assert last is not None
    for operand, symbolic, found in zip(
        last.operands, results(function, Computations()), executed, strict=True
    ):
        if not dist_type(operand).dtype.is_float:
            continue  # integers wrap around
        for rank, buffer in enumerate(found):
            where = {
                Var("device", a, s.size): coordinate(mesh, rank, a) for a, s in mesh.by_name.items()
            }
            assert (buffer is None) == any(coordinate(mesh, rank, axis) for axis in symbolic.roots)
            if buffer is None:
                continue
            assert buffer.shape == symbolic.shape
            for _ in range(3):
                local = tuple(rng.randrange(size) for size in buffer.shape)
                inside = {
                    place(d, n): i for d, (n, i) in enumerate(zip(buffer.shape, local, strict=True))
                }
                assert run.expr(symbolic.expr, where | inside) == pytest.approx(
                    float(buffer[local])
                )


# --- indices ------------------------------------------------------------------------------------


def random_index(rng: random.Random, known: list[tuple[Index, Callable[[Point], int]]]) -> None:
    """Adds an index made of known ones, with what it is by definition."""
    one, mine = rng.choice(known)
    other, theirs = rng.choice(known)
    lo, n = rng.choice([1, 2, 3, 4, 5, 6, 8]), rng.choice([2, 3, 4, 6, 12])
    if rng.random() < 0.5:
        known.append((digit_of(one, lo, n), lambda at: mine(at) // lo % n))
    else:
        plus = rng.choice([0, 1, 5])
        total = weighted([(lo, one), (n, other)], plus)
        known.append((total, lambda at: lo * mine(at) + n * theirs(at) + plus))


@given(rng=RANDOM)
@settings(max_examples=75, deadline=None)
def test_indices_are_what_they_say(rng: random.Random) -> None:
    variables = [Var("index", k, rng.choice([2, 3, 4, 6, 8, 10, 12])) for k in range(3)]
    sizes = [(variable(var), var.size) for var in variables]
    known: list[tuple[Index, Callable[[Point], int]]] = [
        (mixed(sizes), lambda at: _mixed([(at[var], var.size) for var in variables]))
    ]
    for _ in range(5):
        random_index(rng, known)
    smaller = Var("index", "smaller", variables[0].size - 1)
    for index, function in known:
        least, most = bounds(index)
        moved = put(index, {variables[0]: shifted(variable(smaller), 1)})
        for _ in range(10):
            at = {var: rng.randrange(var.size) for var in (*variables, smaller)}
            assert value(index, at) == function(at)
            assert least <= value(index, at) <= most
            assert value(moved, at) == value(index, {**at, variables[0]: at[smaller] + 1})


def _mixed(digits: list[tuple[int, int]]) -> int:
    total = 0
    for digit, size in digits:
        total = total * size + digit
    return total


@pytest.mark.parametrize(("one", "other"), [((2, 3), (3, 2)), ((4, 6), (3, 8)), ((6, 10), (15, 4))])
def test_views_and_back_are_nothing(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Also where the cuts of the one shape are not those of the other."""
    first = [Var("index", k, n) for k, n in enumerate(one)]
    second = [Var("index", k + 2, n) for k, n in enumerate(other)]
    flat = mixed((variable(var), var.size) for var in first)
    new = mixed((variable(var), var.size) for var in second)
    there = put(flat, {first[0]: digit_of(new, one[1], one[0]), first[1]: digit_of(new, 1, one[1])})
    assert there == new
