"""Steps that follow each other as fewer or cheaper ones, and never as dearer ones."""

import random
from collections.abc import Callable

import pytest
from checks import agree, functions_of, results_on_all_devices
from hypothesis import given, settings
from programs import RANDOM, FunctionBuilder, axis_moves, module_of, random_layout, random_mesh
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects import coll
from collir.dialects.coll import dist_type
from collir.dialects.machine import mesh_of
from collir.syntax.reader import read

MACHINE = """\
machine @c {
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency = 3 us }
}
mesh @m on @c { data = node:2 * gpu:4 }
"""
PARTIAL = "f32[4096] partial(sum: data)"


def fused(signature: str, *steps: str, options: str = "") -> list[str]:
    """The steps of a function after the pass."""
    arguments, results = signature.split(" -> ")
    body = "\n".join(f"  {step}" for step in steps)
    text = f"{MACHINE}func @f({arguments}) -> {results} on @m {{\n{body}\n}}\n"
    module = collir.parse(text)
    collir.run_passes(module, f"fuse{options}")
    function = collir.emit(module, "coll").split("func @f")[1]
    return [line.strip() for line in function.splitlines()[1:-1]]


def test_there_and_back_is_nothing() -> None:
    assert fused(
        "%x: f32[1024, 8@data] -> f32[1024, 8@data]",
        "%1 = all_gather %x over data dim 1",
        "%2 = slice %1 over data dim 1",
        "return %2",
    ) == ["return %x"]


def test_what_is_reduced_and_cut_is_scattered() -> None:
    steps = fused(
        f"%x: {PARTIAL} -> f32[4096@data]",
        "%1 = all_reduce %x over data",
        "%2 = slice %1 over data dim 0",
        "return %2",
    )
    assert any("reduce_scatter" in step for step in steps)
    assert not any("slice" in step or "all_reduce" in step for step in steps)


def test_a_reduction_level_by_level_is_one() -> None:
    """The cheapest program for all of it, whatever that is."""
    steps = fused(
        f"%x: {PARTIAL} -> f32[4096]",
        "%1 = reduce %x over data.gpu",
        "%2 = all_reduce %1 over data.node",
        "%3 = broadcast %2 over data.gpu",
        "return %3",
    )
    before = collir.parse(
        MACHINE
        + f"func @f(%x: {PARTIAL}) -> f32[4096] on @m {{\n"
        + "  %1 = all_reduce %x over data\n  return %1\n}\n"
    )
    collir.run_passes(before, "decompose")
    expected = collir.emit(before, "coll").split("func @f")[1].splitlines()[1:-1]
    assert steps == [line.strip() for line in expected]


def test_sums_are_reduced_once() -> None:
    steps = fused(
        f"%x: {PARTIAL}, %y: {PARTIAL} -> f32[4096]",
        "%1 = all_reduce %x over data.gpu",
        "%2 = all_reduce %1 over data.node",
        "%3 = all_reduce %y over data.gpu",
        "%4 = all_reduce %3 over data.node",
        "%5 = add %2, %4",
        "return %5",
    )
    assert steps[0] == "%0 = add %x, %y"
    assert sum("add" in step for step in steps) == 1


def test_sums_stay_where_they_are_smaller() -> None:
    """A slice before an add costs nothing; an add before a slice adds all of it."""
    steps = [
        "%a = slice %x over data dim 0",
        "%b = slice %y over data dim 0",
        "%c = add %a, %b",
        "return %c",
    ]
    assert fused("%x: f32[4096], %y: f32[4096] -> f32[4096@data]", *steps) == steps


def test_chains_are_merged_before_sums_are_moved() -> None:
    """Reductions over other axes, both cut: each becomes cheaper, and then they are added."""
    steps = fused(
        "%x: f32[4096] partial(sum: data), %y: f32[4096] partial(sum: data.gpu) -> f32[4096@data]",
        "%1 = all_reduce %x over data",
        "%2 = all_reduce %y over data.gpu",
        "%3 = slice %1 over data dim 0",
        "%4 = slice %2 over data dim 0",
        "%5 = add %3, %4",
        "return %5",
    )
    assert not any("all_reduce" in step for step in steps)
    assert sum("reduce_scatter" in step for step in steps) >= 2


def test_maxima_are_not_added() -> None:
    steps = [
        "%a = all_reduce %x over data",
        "%b = all_reduce %y over data",
        "%c = add %a, %b",
        "return %c",
    ]
    largest = PARTIAL.replace("sum", "max")
    assert fused(f"%x: {largest}, %y: {largest} -> f32[4096]", *steps) == steps


@pytest.mark.parametrize("said", ["using ring", "async"])
def test_what_is_said_stays(said: str) -> None:
    steps = [
        f"%a = all_gather %x over data dim 0 {said}",
        "%b = slice %a over data dim 0",
        "return %b",
    ]
    assert fused("%x: f32[4096@data] -> f32[4096@data]", *steps) == steps


def test_what_is_used_elsewhere_stays() -> None:
    steps = [
        "%a = all_gather %x over data dim 0",
        "%b = slice %a over data dim 0",
        "return %a, %b",
    ]
    assert fused("%x: f32[4096@data] -> (f32[4096], f32[4096@data])", *steps) == steps


def chain(rng: random.Random) -> ModuleOp:
    """A run of steps on one value, each on what the one before gives."""
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
    """The same steps on two values, whose results are added."""
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
    added = builder.try_op(coll.AddOp, pair, {})
    return module_of([mesh], [builder.function([pair[0]] if added is None else [added])])


@pytest.mark.parametrize("made", [chain, sums])
@given(rng=RANDOM)
@settings(max_examples=60, deadline=None, derandomize=True)
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


@pytest.mark.parametrize("made", [chain, sums])
@given(rng=RANDOM)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_what_was_only_tried_is_gone(
    made: Callable[[random.Random], ModuleOp], rng: random.Random
) -> None:
    """Every use of a value is by an operation of the program: others would count as users."""
    after = made(rng)
    collir.run_passes(after, "fuse")
    for function in functions_of(after):
        values = [*function.args, *(result for op in function.walk() for result in op.results)]
        for value in values:
            assert all(use.operation.parent is not None for use in value.uses)


@given(rng=RANDOM)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_it_never_costs_more_and_again_does_nothing(rng: random.Random) -> None:
    module = chain(rng)
    model = rng.choice(["alpha-beta", "p2", "nccl"])
    try:
        [before] = collir.cost(module, model=model)
    except collir.DiagnosticError:
        return
    after = module.clone()
    collir.run_passes(after, f"fuse{{model={model}}}")
    [found] = collir.cost(after, model=model)
    assert found.time <= before.time * (1 + 1e-9)
    again = read(collir.emit(after, "coll"))
    collir.run_passes(again, f"fuse{{model={model}}}")
    [twice] = collir.cost(again, model=model)
    assert twice.time == pytest.approx(found.time, rel=1e-9)
