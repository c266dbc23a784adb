"""No pass makes a program slower in simulation, and a pass that fails leaves it as it was."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.harness.seeds import fresh, some
from support.programs.collectives import (
    FunctionBuilder,
    integer,
    module_of,
    random_layout,
    random_mesh,
    random_module,
)
from support.programs.gradients import gradients
from support.targets.async_code import make_async
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr
from collir.ir.functions import functions_of
from collir.ir.names import keep_names
from collir.machine import Device

PASSES = [
    "canonicalize",
    "cse",
    "fuse",
    "reorder-by-hierarchy",
    "bucket",
    "decompose",
    "decompose{{chunks=4}}",
    "overlap",
]


def steps(rng: random.Random) -> ModuleOp:
    return random_module(rng, functions=1, steps=8, weights=0.2)


def under_way(rng: random.Random) -> ModuleOp:
    module = gradients(rng)
    make_async(functions_of(module), rng, 0.5)
    return module


def idle(rng: random.Random) -> ModuleOp:
    """Return a program of steps that change nothing and of concats, where copies take time."""
    mesh = random_mesh(rng)
    device = replace(mesh.machine.device or Device(), memory=1e12, memory_bandwidth=1e9)
    mesh = replace(mesh, machine=replace(mesh.machine, device=device))
    builder = FunctionBuilder(mesh, [random_layout(rng, mesh)] * 2, "f")
    for _ in range(8):
        left, right = rng.choices(builder.values, k=2)
        match rng.choice(["permute", "scale", "add", "concat", "concat"]):
            case "permute":
                builder.try_op(OPERATIONS["permute"], [left], {"to": left.type})
            case "scale":
                builder.try_op(OPERATIONS["scale"], [left], {"factor": NumberAttr(1.0)})
            case "add":
                builder.try_op(OPERATIONS["add"], [left, right], {})
            case _:
                builder.try_op(OPERATIONS["concat"], [left, right], {"dim": integer(0)})
    return module_of([mesh], [builder.function(rng.choices(builder.values, k=2))])


PROGRAMS: list[Callable[[random.Random], ModuleOp]] = [steps, gradients]


def check(passes: str, made: Callable[[random.Random], ModuleOp], seed: int) -> bool:
    """Check that a pass makes a program no slower; return whether both could be simulated."""
    rng = fresh(seed)
    module = made(rng)
    model = rng.choice(["alpha-beta", "alpha-beta", "p2", "nccl"])
    try:
        before = [run.time for run in simulate(module, CostModel(model))]
    except collir.DiagnosticError:
        return False
    keep_names(module)
    text = str(module)
    options = "" if passes in ("canonicalize", "cse") else f"model={model}"
    named = passes.format() if not options else _with(passes.format(), options)
    try:
        collir.run_passes(module, named)
    except collir.DiagnosticError:
        assert str(module) == text
        return False
    after = [run.time for run in simulate(module, CostModel(model))]
    for old, new in zip(before, after, strict=True):
        assert new <= old * (1 + 1e-9) + 1e-15, f"seed {seed}: {old} s, then {new} s"
    return True


def _with(passes: str, option: str) -> str:
    """Return a pass with one more option."""
    name, _, rest = passes.partition("{")
    return f"{name}{{{rest.rstrip('}')} {option}}}" if rest else f"{name}{{{option}}}"


@pytest.mark.turns
@pytest.mark.parametrize("made", PROGRAMS)
@pytest.mark.parametrize("passes", some(PASSES, 2))
def test_some_programs(passes: str, made: Callable[[random.Random], ModuleOp]) -> None:
    assert sum(check(passes, made, seed) for seed in range(18)) >= 6


WAITING = """\
machine @c {
  level node[2] { port =  2 GB/s, latency = 1 us }
  level gpu[8]  { port = 12 GB/s, latency = 1 us }
}
mesh @m on @c { data = node:2 * gpu:8 }
func @f(%g: f32[1048576] partial(sum: data), %h: f32[8388608@data.gpu])
    -> (f32[1048576], f32[8388608]) on @m {
  %a = all_reduce %g over data async
  %b = all_gather %h over data.gpu dim 0 async
  return %a, %b
}
"""


def test_a_program_that_is_faster_alone_may_keep_others_waiting() -> None:
    """In three steps the all_reduce is faster, but the all_gather waits behind the third."""
    module = collir.parse(WAITING)
    model = "model=alpha-beta algorithm=ring"
    alone = collir.parse(WAITING.replace(" async", ""))
    [before] = simulate(alone, CostModel("alpha-beta", algorithm="ring"))
    collir.run_passes(alone, f"decompose{{{model}}}")
    [after] = simulate(alone, CostModel("alpha-beta", algorithm="ring"))
    assert after.time < before.time
    text = str(module)
    collir.run_passes(module, f"decompose{{{model}}}")
    assert str(module) == text


@pytest.mark.turns
def test_what_is_left_copies_no_more_than_what_folds() -> None:
    assert sum(check("canonicalize", idle, seed) for seed in range(100)) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("made", [*PROGRAMS, under_way])
@pytest.mark.parametrize("passes", PASSES)
def test_a_thousand_programs(passes: str, made: Callable[[random.Random], ModuleOp]) -> None:
    for seed in range(1000):
        check(passes, made, seed)
