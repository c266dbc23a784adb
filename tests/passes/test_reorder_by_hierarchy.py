"""Steps that change a layout and local ones, in the order that costs least."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from support.harness.hanging import within
from support.harness.seeds import some
from support.programs.collectives import (
    RANDOM,
    FunctionBuilder,
    Move,
    axis_moves,
    integer,
    local_moves,
    module_of,
    random_layout,
    random_mesh,
    random_module,
)
from support.semantics.checks import agree, functions_of, results_on_all_devices
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import SSAValue

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr, mesh_of
from collir.dialects.tensor import AxesAttr, SizesAttr, dist_type
from collir.layout import Dim, DistType, DType, Mesh
from collir.machine import Device
from collir.passes.reorder_by_hierarchy import ReorderByHierarchyPass
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.synthesis.reorder.prices import Price

PASS = "reorder-by-hierarchy"

MACHINE = """\
machine @c {
  device { compute f32 = 19.5 TFLOP/s; memory = 40 GiB @ 1.5 TB/s }
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency = 3 us }
}
mesh @m on @c { data = node:2 * gpu:4 }
"""
EMPTY = "func @f(%x: f32[8]) -> f32[8] on @m {\n  return %x\n}\n"


def reordered(signature: str, *steps: str) -> list[str]:
    """Return the steps of a function after the pass."""
    arguments, results = signature.split(" -> ")
    body = "\n".join(f"  {step}" for step in steps)
    module = collir.parse(f"{MACHINE}func @f({arguments}) -> {results} on @m {{\n{body}\n}}\n")
    collir.run_passes(module, PASS + "{algorithm=ring}")
    function = collir.emit(module, "coll").split("func @f")[1]
    return [line.strip() for line in function.splitlines()[1:-1]]


def test_a_cut_goes_through_any_number_of_sums_and_local_steps() -> None:
    count = 20
    arguments = ", ".join(f"%x{n}: f32[4096]" for n in range(count + 1))
    steps = ["%0 = scale %x0 by 1"]
    for n in range(count):
        steps.append(f"%{2 * n + 1} = add %{2 * n}, %x{n + 1}")
        steps.append(f"%{2 * n + 2} = scale %{2 * n + 1} by 2")
    last = f"%{2 * count}"
    steps_after = reordered(
        f"{arguments} -> f32[4096@data]", *steps, f"%r = slice {last} over data dim 0", "return %r"
    )
    assert all(f"slice %x{n} over data dim 0" in " ".join(steps_after) for n in range(count + 1))


def test_limits_are_not_negative() -> None:
    with pytest.raises(ValueError, match="limit"):
        ReorderByHierarchyPass(limit=-1)


# --- random programs ------------------------------------------------------------------------------


def mesh_with_memory(rng: random.Random) -> Mesh:
    """Return a placed mesh, whose devices mostly say how fast their memory is."""
    while not (mesh := random_mesh(rng)).placed:
        pass
    speed = rng.choice([None, 1e9, 1e11, 2e12])
    device = mesh.machine.device or Device((("f32", 1e12),), memory=None)
    return replace(
        mesh, machine=replace(mesh.machine, device=replace(device, memory_bandwidth=speed))
    )


def step(builder: FunctionBuilder, value: SSAValue, moves: list[Move]) -> SSAValue | None:
    """Add the first of some steps that is well typed; return its result."""
    for move in moves:
        result = builder.try_move(value, move)
        if result is not None:
            return result
    return None


def thread(builder: FunctionBuilder, value: SSAValue, rng: random.Random) -> SSAValue:
    """Add steps on a value that change its layout, and local steps; return the result."""
    for _ in range(rng.randint(2, 7)):
        x = dist_type(value)
        moves = list(axis_moves(builder.mesh, len(x.dims)))
        if rng.random() < 0.5:
            moves = [move for move in local_moves(x, rng) if x.elements <= 4096]
        rng.shuffle(moves)
        value = step(builder, value, moves) or value
    return value


def row(rng: random.Random) -> ModuleOp:
    """Return a program of a row of steps on one value."""
    mesh = mesh_with_memory(rng)
    builder = FunctionBuilder(mesh, [random_layout(rng, mesh)])
    return module_of([mesh], [builder.function([thread(builder, builder.values[0], rng)])])


def joined(rng: random.Random) -> ModuleOp:
    """Return a program of two rows of mostly the same steps, a join, and more steps behind it."""
    mesh = mesh_with_memory(rng)
    x = random_layout(rng, mesh)
    builder = FunctionBuilder(mesh, [x, x, x])
    pair = list(builder.values[:2])
    for _ in range(rng.randint(1, 4)):
        y = dist_type(pair[0])
        moves = list(axis_moves(mesh, len(y.dims)))
        if rng.random() < 0.3:
            moves = [move for move in local_moves(y, rng) if y.elements <= 4096]
        rng.shuffle(moves)
        for move in moves:
            left = builder.try_move(pair[0], move)
            if left is not None:
                right = builder.try_move(pair[1], move)
                assert right is not None
                pair = [left, right]
                break
    if rng.random() < 0.5:
        same = [value for value in builder.values if value.type == pair[0].type]
        pair[1] = rng.choice(same)
    dims = range(len(dist_type(pair[0]).dims))
    join = None
    if dims and rng.random() < 0.4:
        join = builder.try_op(OPERATIONS["concat"], pair, {"dim": integer(rng.choice(dims))})
    if join is None:
        join = builder.try_op(OPERATIONS["add"], pair, {})
    return module_of([mesh], [builder.function([thread(builder, join or pair[0], rng)])])


def times(module: ModuleOp, model: str) -> list[float] | None:
    """Return the seconds of every function; None if one cannot be simulated."""
    try:
        return [simulation.time for simulation in simulate(module, CostModel(model))]
    except collir.DiagnosticError:
        return None


MADE = [row, joined, random_module]


def assert_same_meaning(before: ModuleOp, after: ModuleOp) -> None:
    for old, new in zip(functions_of(before), functions_of(after), strict=True):
        assert old.function_type == new.function_type
        results = [results_on_all_devices(m, f, seed=2) for m, f in ((after, new), (before, old))]
        assert agree(results[0], results[1], mesh_of(old).devices)
    assert write(read(write(after))) == write(after)


def assert_no_dearer(before: ModuleOp, after: ModuleOp, model: str) -> None:
    old, new = times(before, model), times(after, model)
    assert (old is None) == (new is None)
    pairs = zip(old or [], new or [], strict=True)
    assert all(b <= a * (1 + 1e-9) for a, b in pairs)


@pytest.mark.turns
@pytest.mark.parametrize("made", some(MADE, 1, "same"))
@given(rng=RANDOM)
@settings(max_examples=10)
def test_it_computes_the_same(
    made: Callable[[random.Random], ModuleOp], rng: random.Random
) -> None:
    before = made(rng)
    after = before.clone()
    collir.run_passes(after, PASS)
    assert_same_meaning(before, after)


@pytest.mark.parametrize("made", some(MADE, 1, "costs"))
@given(rng=RANDOM)
@settings(max_examples=6)
def test_it_never_costs_more(made: Callable[[random.Random], ModuleOp], rng: random.Random) -> None:
    no_dearer(made, rng)


@pytest.mark.slow
@pytest.mark.parametrize("made", MADE)
@given(rng=RANDOM)
@settings(max_examples=105)
def test_it_never_costs_more_on_a_thousand_programs(
    made: Callable[[random.Random], ModuleOp], rng: random.Random
) -> None:
    no_dearer(made, rng)


def no_dearer(made: Callable[[random.Random], ModuleOp], rng: random.Random) -> None:
    before = made(rng)
    after = before.clone()
    model = rng.choice(["alpha-beta", "alpha-beta", "p2", "nccl"])
    collir.run_passes(after, f"{PASS}{{model={model}}}")
    assert_no_dearer(before, after, model)


def test_a_function_that_would_be_dearer_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of prices is turned around, so that dearer rewrites seem to pay."""

    def dearer(self: Price, other: Price, sending_first: bool = False) -> bool:
        return self.time > other.time

    monkeypatch.setattr(Price, "pays", dearer)
    monkeypatch.setattr(Price, "before", dearer)
    steps = ["%a = all_gather %x over data dim 0", "%b = cast %a to f32", "return %b"]
    assert reordered("%x: bf16[1024@data] -> f32[1024]", *steps) == steps


@pytest.mark.slow
def test_many_operations_are_not_much_work_each() -> None:
    layers_take(250)


@pytest.mark.slow
def test_twenty_thousand_operations_end_soon() -> None:
    layers_take(2500)


def layers_take(count: int) -> None:
    """Check that the pass makes layers faster.

    Layers have 8 operations of the same kinds, but sizes of their own.
    """
    mesh = mesh_of(functions_of(collir.parse(MACHINE + EMPTY))[0])
    x = DistType(DType.BF16, (Dim(4096, tuple(mesh.by_name)), Dim(512)))
    sizes = [replace(x, dims=(x.dims[0], Dim(512 + n % 100))) for n in range(count)]
    builder = FunctionBuilder(mesh, sizes)
    over, f32 = AxesAttr(tuple(mesh.by_name)), StringAttr(DType.F32)
    results: list[SSAValue] = []
    for argument in builder.values[:count]:
        value = argument
        for move in (
            Move(OPERATIONS["cast"], {"dtype": f32}),
            Move(OPERATIONS["all_gather"], {"axes": over, "dim": integer(0)}),
            Move(OPERATIONS["scale"], {"factor": NumberAttr(0.5)}),
            Move(OPERATIONS["transpose"], {"order": SizesAttr((1, 0))}),
        ):
            value = step(builder, value, [move])
            assert value is not None
        total = builder.try_op(OPERATIONS["add"], [value, value], {})
        assert total is not None
        cut = step(builder, total, [Move(OPERATIONS["slice"], {"axes": over, "dim": integer(1)})])
        assert cut is not None
        scaled = step(builder, cut, [Move(OPERATIONS["scale"], {"factor": NumberAttr(2.0)})])
        assert scaled is not None
        last = step(builder, scaled, [Move(OPERATIONS["transpose"], {"order": SizesAttr((1, 0))})])
        assert last is not None
        results.append(last)
    module = module_of([mesh], [builder.function(results)])
    before = simulate(module, CostModel("alpha-beta", order="written"))[0].time
    with within():
        collir.run_passes(module, PASS)
    assert simulate(module, CostModel("alpha-beta", order="written"))[0].time < before / 10


@given(rng=RANDOM)
@settings(max_examples=12)
def test_every_step_stands_where_one_of_the_program_stood(rng: random.Random) -> None:
    module = read(write(joined(rng)), "x.coll")
    places = {op.location for op in module.walk()}
    collir.run_passes(module, PASS)
    assert {op.location for op in module.walk()} <= places
    assert not any(isinstance(op.location, UnknownLoc) for op in module.walk() if op is not module)


@given(rng=RANDOM)
@settings(max_examples=12)
def test_the_same_program_becomes_the_same(rng: random.Random) -> None:
    before = joined(rng)
    once, again = before.clone(), before.clone()
    for module in (once, again):
        collir.run_passes(module, PASS)
    assert write(once) == write(again)
