"""Steps that follow each other become fewer or cheaper ones, and never dearer ones."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from support.programs.collectives import (
    RANDOM,
    FunctionBuilder,
    axis_moves,
    integer,
    module_of,
    random_layout,
    random_mesh,
)
from support.semantics.checks import agree, functions_of, results_on_all_devices
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Block, SSAValue

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout.loops import stack_type
from collir.layout.steps import ArgumentKind
from collir.syntax.reader import read


def chain(rng: random.Random) -> ModuleOp:
    """Return a program of steps on one value, each on the result of the step before."""
    mesh = random_mesh(rng)
    builder = FunctionBuilder(mesh, [random_layout(rng, mesh)], "f")
    for _ in range(rng.randint(2, 6)):
        value = builder.values[-1]
        moves = list(axis_moves(mesh, len(dist_type(value).dims)))
        rng.shuffle(moves)
        for move in moves:
            if builder.try_move(value, move) is not None:
                break
    return module_of([mesh], [builder.function(builder.values[-1:])])


def sums(rng: random.Random) -> ModuleOp:
    """Return a program of the same steps on two values, whose results are added."""
    mesh = random_mesh(rng)
    x = random_layout(rng, mesh)
    builder = FunctionBuilder(mesh, [x, x], "f")
    pair = list(builder.values)
    for _ in range(rng.randint(1, 3)):
        moves = list(axis_moves(mesh, len(dist_type(pair[0]).dims)))
        rng.shuffle(moves)
        for move in moves:
            left = builder.try_move(pair[0], move)
            if left is not None:
                right = builder.try_move(pair[1], move)
                assert right is not None
                pair = [left, right]
                break
    added = builder.try_op(OPERATIONS["add"], pair, {})
    return module_of([mesh], [builder.function([pair[0]] if added is None else [added])])


def stacked(rng: random.Random) -> ModuleOp:
    """Return a program with a loop of the first steps of a chain, and the others on its stack."""
    module = chain(rng)
    [function] = functions_of(module)
    mesh, x = mesh_of(function), dist_type(function.args[0])
    ops = [op for op in function.body.ops if isinstance(op, DistOp)]
    inside = rng.randint(0, len(ops))
    builder = FunctionBuilder(mesh, [stack_type(mesh, x, 3)], "f")
    body = Block(arg_types=[function.args[0].type])
    values: dict[SSAValue, SSAValue] = {function.args[0]: body.args[0]}
    for op in ops[:inside]:
        body.add_op(op.clone(values))
    last = ops[inside - 1].result if inside else function.args[0]
    body.add_op(YieldOp.create(operands=[values[last]]))
    loop = RepeatOp.of(mesh, 3, [[], builder.values, []], body)
    builder.block.add_op(loop)
    builder.values.append(loop.results[0])
    for op in ops[inside:]:
        dims = {p.name for p in op.kind.parameters if p.kind is ArgumentKind.INTEGER}
        properties = {
            name: integer(x.value.data + 1) if name in dims and isinstance(x, IntegerAttr) else x
            for name, x in op.properties.items()
        }
        assert builder.try_op(type(op), builder.values[-1:], properties) is not None
    return module_of([mesh], [builder.function(builder.values[-1:])])


@pytest.mark.turns
@pytest.mark.parametrize("made", [chain, sums, stacked])
@given(rng=RANDOM)
@settings(max_examples=18)
def test_it_computes_the_same(
    made: Callable[[random.Random], ModuleOp], rng: random.Random
) -> None:
    before = made(rng)
    after = before.clone()
    collir.run_passes(after, "fuse")
    for old, new in zip(functions_of(before), functions_of(after), strict=True):
        assert old.function_type == new.function_type
        results = [results_on_all_devices(m, f, seed=2) for m, f in ((after, new), (before, old))]
        assert agree(results[0], results[1], mesh_of(old).devices)


@pytest.mark.parametrize("made", [chain, sums, stacked])
@given(rng=RANDOM)
@settings(max_examples=18)
def test_what_was_only_tried_is_gone(
    made: Callable[[random.Random], ModuleOp], rng: random.Random
) -> None:
    """Every user of a value is in the program: an erased operation would still count as a user."""
    after = made(rng)
    collir.run_passes(after, "fuse")
    for function in functions_of(after):
        values = [*function.args, *(result for op in function.walk() for result in op.results)]
        for value in values:
            assert all(use.operation.parent is not None for use in value.uses)


@given(rng=RANDOM)
@settings(max_examples=18)
def test_it_never_costs_more_and_again_does_nothing(rng: random.Random) -> None:
    module = chain(rng)
    model = rng.choice(["alpha-beta", "p2", "nccl"])
    try:
        [before] = collir.simulate(module, model=model)
    except collir.DiagnosticError:
        return
    after = module.clone()
    collir.run_passes(after, f"fuse{{model={model}}}")
    [fused] = collir.simulate(after, model=model)
    assert fused.time <= before.time * (1 + 1e-9)
    again = read(collir.emit(after, "coll"))
    collir.run_passes(again, f"fuse{{model={model}}}")
    [twice] = collir.simulate(again, model=model)
    assert twice.time == pytest.approx(fused.time, rel=1e-9)
