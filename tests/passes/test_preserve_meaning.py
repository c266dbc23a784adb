"""Every pass preserves the meaning of random programs, keeps types valid and positions known."""

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from support.harness.seeds import some
from support.programs.collectives import (
    RANDOM,
    FunctionBuilder,
    module_of,
    random_layout,
    random_mesh,
    random_module,
)
from support.semantics.checks import agree, functions_of, results_on_all_devices
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.dialects.func import FuncOp

from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import AxesAttr, dist_type
from collir.layout import DType
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.synthesis.programs.fixed import Strategy
from collir.tools.api import run_passes

PASSES = [
    *(f"decompose{{strategy={strategy}}}" for strategy in get_args(Strategy)),
    "canonicalize",
    "cse",
    "dce",
    "decompose",
    "decompose{model=p2},canonicalize,cse,dce",
    "fuse",
    "fuse{model=p2},dce",
    "reorder-by-hierarchy",
    "reorder-by-hierarchy{model=p2},fuse,decompose",
    "split-backward",
]


def all_reduces(rng: random.Random, weights: float = 0.3) -> ModuleOp:
    """Return functions that all_reduce a partial value of an awkward shape, on a random mesh."""
    mesh = random_mesh(rng, weights=weights)
    functions: list[FuncOp] = []
    for index in range(3):
        x = random_layout(rng, mesh, rng.choice(list(DType)))
        builder = FunctionBuilder(mesh, [x], f"f{index}")
        value = builder.values[0]
        if x.partial:
            axes = list(mesh.ordered(x.partial))
            rng.shuffle(axes)
            reduced = builder.try_op(
                OPERATIONS["all_reduce"], [value], {"axes": AxesAttr(tuple(axes))}
            )
            assert reduced is not None
            value = reduced
        functions.append(builder.function([value]))
    return module_of([mesh], functions)


def assert_same_meaning(before: ModuleOp, passes: str) -> None:
    located = read(write(before), "x.coll")
    after = run_passes(located.clone(), passes)
    for old, new in zip(functions_of(located), functions_of(after), strict=True):
        assert old.function_type == new.function_type
        assert agree(
            results_on_all_devices(after, new, seed=2),
            results_on_all_devices(located, old, seed=2),
            mesh_of(old).devices,
        )
    for op in after.walk():
        assert op is after or not isinstance(op.location, UnknownLoc)
    assert write(read(write(after))) == write(after)


@pytest.mark.turns
@pytest.mark.parametrize("passes", some(PASSES, 3))
@given(rng=RANDOM)
@settings(max_examples=12)
def test_random_programs(passes: str, rng: random.Random) -> None:
    module = random_module(rng, functions=2, steps=6, weights=0.3, models=rng.random() < 0.3)
    assert_same_meaning(module, passes)


@pytest.mark.turns
@pytest.mark.parametrize("strategy", get_args(Strategy))
@given(rng=RANDOM)
@settings(max_examples=14)
def test_all_reduces_of_awkward_shapes(strategy: str, rng: random.Random) -> None:
    assert_same_meaning(all_reduces(rng), f"decompose{{strategy={strategy}}}")


@given(rng=RANDOM)
@settings(max_examples=18)
def test_scatter_and_gather_keep_each_step_on_one_level(rng: random.Random) -> None:
    module = run_passes(all_reduces(rng, weights=0.0), "decompose{strategy=rs-ar-ag}")
    for function in functions_of(module):
        mesh = mesh_of(function)
        if not mesh.placed:
            continue
        for op in function.body.ops:
            axes = op.properties.get("axes")
            if isinstance(op, coll.COLLECTIVES) and isinstance(axes, AxesAttr):
                assert len({mesh.by_name[axis].level for axis in axes.data}) == 1
                assert dist_type(op.operands[0]) != dist_type(op.results[0])
