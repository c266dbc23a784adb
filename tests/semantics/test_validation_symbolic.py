"""Expressions have the values that the numpy executor computes; indices have their definition's."""

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_module
from support.semantics.checks import functions_of
from support.semantics.evaluation import Evaluation, Point, table
from xdsl.dialects.builtin import ModuleOp

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.semantics.reference.buffers import distribute, random_tensor
from collir.semantics.reference.devices import coordinate
from collir.semantics.reference.exactness import exact
from collir.semantics.reference.executor import execute
from collir.semantics.symbolic.algebra import coarsened
from collir.semantics.symbolic.expressions import UnprovenError
from collir.semantics.symbolic.indices import (
    Index,
    Var,
    bounds,
    digit_of,
    evaluated,
    mixed_radix,
    shifted,
    substituted_index,
    variable,
    weighted_sum,
)
from collir.semantics.symbolic.uneven import results_by_class
from collir.semantics.symbolic.values import Computations, position_variable


def without_computations(module: ModuleOp) -> None:
    for op in list(module.walk()):
        if isinstance(op, OPERATIONS["compute"]):
            op.result.replace_all_uses_with(op.operands[0])
            op.detach()
            op.erase()


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=22)
def test_expressions_are_what_is_executed(rng: random.Random) -> None:
    module = random_module(rng, functions=1, weights=0.4, nested=False, models=rng.random() < 0.3)
    without_computations(module)
    (function,) = functions_of(module)
    if not exact(function):
        return
    mesh = mesh_of(function)
    numbers = np.random.default_rng(rng.randrange(2**32))
    types = [dist_type(arg) for arg in function.args]
    buffers = [distribute(mesh, random_tensor(x, numbers), x, numbers) for x in types]
    computations = Computations()
    run = Evaluation(table(mesh, function, buffers), computations)
    executed = execute(module, function, buffers)
    last = function.body.block.last_op
    assert last is not None
    try:
        results = list(results_by_class(function, computations))
    except UnprovenError:  # a ring over axes with and without weights
        return
    for operand, pieces, parts in zip(last.operands, results, executed, strict=True):
        if not dist_type(operand).dtype.is_float:
            continue  # integers wrap around
        for rank, buffer in enumerate(parts):
            symbolic = pieces.values[tuple(coordinate(mesh, rank, axis) for axis in mesh.uneven)]
            coordinates = {
                Var("device", a, s.size): coordinate(mesh, rank, a) for a, s in mesh.by_name.items()
            }
            away = any(coordinate(mesh, rank, axis) != at for axis, at in symbolic.place)
            assert (buffer is None) == away
            if buffer is None:
                continue
            assert buffer.shape == symbolic.shape
            for _ in range(3):
                local = tuple(rng.randrange(size) for size in buffer.shape)
                positions = {
                    position_variable(dim, size): i
                    for dim, (size, i) in enumerate(zip(buffer.shape, local, strict=True))
                }
                for expr in (symbolic.expr, coarsened(symbolic.expr)):
                    found = run.expr(expr, coordinates | positions)
                    assert found == pytest.approx(float(buffer[local]))


# --- indices ------------------------------------------------------------------------------------


def random_index(rng: random.Random, known: list[tuple[Index, Callable[[Point], int]]]) -> None:
    """Append an index made of known indices, with its value by definition."""
    first, first_value = rng.choice(known)
    second, second_value = rng.choice(known)
    lo, n = rng.choice([1, 2, 3, 4, 5, 6, 8]), rng.choice([2, 3, 4, 6, 12])
    if rng.random() < 0.5:
        known.append((digit_of(first, lo, n), lambda at: first_value(at) // lo % n))
    else:
        plus = rng.choice([0, 1, 5])
        total = weighted_sum([(lo, first), (n, second)], plus)
        known.append((total, lambda at: lo * first_value(at) + n * second_value(at) + plus))


@given(rng=RANDOM)
@settings(max_examples=27)
def test_indices_are_what_they_say(rng: random.Random) -> None:
    variables = [Var("index", k, rng.choice([2, 3, 4, 6, 8, 10, 12])) for k in range(3)]
    sizes = [(variable(var), var.size) for var in variables]
    known: list[tuple[Index, Callable[[Point], int]]] = [
        (mixed_radix(sizes), lambda at: _mixed([(at[var], var.size) for var in variables]))
    ]
    for _ in range(5):
        random_index(rng, known)
    smaller = Var("index", "smaller", variables[0].size - 1)
    for index, function in known:
        least, most = bounds(index)
        shorter = substituted_index(index, {variables[0]: shifted(variable(smaller), 1)})
        for _ in range(10):
            at = {var: rng.randrange(var.size) for var in (*variables, smaller)}
            assert evaluated(index, at) == function(at)
            assert least <= evaluated(index, at) <= most
            assert evaluated(shorter, at) == evaluated(index, {**at, variables[0]: at[smaller] + 1})


def _mixed(digits: list[tuple[int, int]]) -> int:
    total = 0
    for digit, size in digits:
        total = total * size + digit
    return total


@pytest.mark.parametrize(("one", "other"), [((2, 3), (3, 2)), ((4, 6), (3, 8)), ((6, 10), (15, 4))])
def test_views_and_back_are_nothing(one: tuple[int, int], other: tuple[int, int]) -> None:
    """The dimensions of the two shapes need not be cut at the same places."""
    first = [Var("index", k, n) for k, n in enumerate(one)]
    second = [Var("index", k + 2, n) for k, n in enumerate(other)]
    flat = mixed_radix((variable(var), var.size) for var in first)
    new = mixed_radix((variable(var), var.size) for var in second)
    rows, columns = digit_of(new, one[1], one[0]), digit_of(new, 1, one[1])
    assert substituted_index(flat, {first[0]: rows, first[1]: columns}) == new
