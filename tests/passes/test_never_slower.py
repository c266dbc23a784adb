"""No pass makes a program slower, simulated; and none leaves it changed where it fails."""

import random
from collections.abc import Callable

import pytest
from async_code import make_async
from gradients import gradients
from programs import random_module
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.cost.simulation import simulate
from collir.syntax.mlir import functions_of

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
    return random_module(rng, functions=1, steps=8)


def under_way(rng: random.Random) -> ModuleOp:
    module = gradients(rng)
    make_async(functions_of(module), rng, 0.5)
    return module


PROGRAMS: list[Callable[[random.Random], ModuleOp]] = [steps, gradients]


def check(passes: str, made: Callable[[random.Random], ModuleOp], seed: int) -> bool:
    """Whether there is something to compare; it is, then."""
    rng = random.Random(seed)
    module = made(rng)
    model = rng.choice(["alpha-beta", "alpha-beta", "p2", "nccl"])
    try:
        before = [one.time for one in simulate(module, CostModel(model))]
    except collir.DiagnosticError:
        return False
    text = str(module)
    options = "" if passes in ("canonicalize", "cse") else f"model={model}"
    named = passes.format() if not options else _with(passes.format(), options)
    try:
        collir.run_passes(module, named)
    except collir.DiagnosticError:
        assert str(module) == text
        return False
    after = [one.time for one in simulate(module, CostModel(model))]
    for old, new in zip(before, after, strict=True):
        assert new <= old * (1 + 1e-9) + 1e-15, f"seed {seed}: {old} s, then {new} s"
    return True


def _with(passes: str, option: str) -> str:
    """A pass with one more option."""
    name, _, rest = passes.partition("{")
    return f"{name}{{{rest.rstrip('}')} {option}}}" if rest else f"{name}{{{option}}}"


@pytest.mark.parametrize("made", PROGRAMS)
@pytest.mark.parametrize("passes", PASSES)
def test_some_programs(passes: str, made: Callable[[random.Random], ModuleOp]) -> None:
    assert sum(check(passes, made, seed) for seed in range(30)) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("made", [*PROGRAMS, under_way])
@pytest.mark.parametrize("passes", PASSES)
def test_a_thousand_programs(passes: str, made: Callable[[random.Random], ModuleOp]) -> None:
    for seed in range(1000):
        check(passes, made, seed)
