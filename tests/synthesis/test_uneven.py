"""Programs over axes with weights: they are typed, proven, never slower, and run on ranks."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs.collectives import (
    RANDOM,
    FunctionBuilder,
    module_of,
    random_layout,
    random_mesh,
    redistributions,
)
from support.semantics.checks import agree, results_on_all_devices, results_on_one_device
from support.targets import on_ranks, python_ranks
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.tensor import AxesAttr, dist_type
from collir.ir.functions import functions_of
from collir.ir.verification import verify
from collir.layout import Dim, DistType, DType, Mesh, Reduction
from collir.layout.cuts import units
from collir.semantics.validation.proof import proven
from collir.semantics.validation.verdict import Outcome


def random_redistribute(rng: random.Random, mesh: Mesh, name: str) -> FuncOp:
    """Return a function that redistributes a value from one random layout to another."""
    while True:
        x = random_layout(rng, mesh, rng.choice([DType.F32, DType.F64, DType.I32]))
        builder = FunctionBuilder(mesh, [x], name)
        y = builder.try_first(builder.values[0], redistributions(mesh, x, rng))
        if y is not None and dist_type(y) != x:
            return builder.function([y])


def redistributes(rng: random.Random, ranks: int | None, count: int) -> ModuleOp:
    """Return a module of redistributes on a placed mesh with weights."""
    while True:
        mesh = random_mesh(rng, ranks, weights=1.0)
        if mesh.placed and mesh.uneven:
            return module_of(
                [mesh], [random_redistribute(rng, mesh, f"f{n}") for n in range(count)]
            )


@given(rng=RANDOM)
@settings(max_examples=6)
def test_redistributes_become_steps_that_compute_the_same(rng: random.Random) -> None:
    before = redistributes(rng, rng.choice([2, 3, 4, 6, 8]), 2)
    after = collir.run_passes(before.clone(), "decompose")
    verify(after)
    for old, new in zip(functions_of(before), functions_of(after), strict=True):
        assert all(op.name != "coll.redistribute" for op in new.body.ops)
        assert proven(old, new).outcome is Outcome.SAME
        results = results_on_all_devices(after, new, seed=1)
        assert agree(results, results_on_one_device(old, seed=1), 1)
    for target in ("mpi", "mpi4py", "nccl", "torch"):
        assert collir.emit(after, target)


@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_redistributes_run_on_ranks(ranks: int, tmp_path: Path) -> None:
    module = redistributes(fresh("redistributes", ranks), ranks, 6)
    collir.run_passes(module, "decompose")
    assert on_ranks.differences(module, functions_of(module), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mpi4py", "torch"])
def test_redistributes_run_on_ranks_in_python(target: python_ranks.Target, tmp_path: Path) -> None:
    module = redistributes(fresh("redistributes", target), 4, 12)
    collir.run_passes(module, "decompose")
    assert python_ranks.differences(target, module, functions_of(module), tmp_path) == []


EXAMPLE = """
machine @box { level gpu[4] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:4 weights [3, 1, 2, 2] }
func @exchanged(%x: f32[8000@data, 8000]) -> f32[8000, 8000@data] on @m {
  %y = redistribute %x to f32[8000, 8000@data]
  return %y
}
func @gathered(%x: f32[8@data, 16]) -> f32[8, 16] on @m {
  %y = redistribute %x to f32[8, 16]
  return %y
}
func @scattered(%x: f32[8, 16] partial(sum: data)) -> f32[8, 16@data] on @m {
  %y = redistribute %x to f32[8, 16@data]
  return %y
}
func @recut(%x: f32[8@data, 16], %w: f32[16@data, 4]) -> f32[8@data, 4] on @m auto {
  %y = einsum "b i, i j -> b j" %x, %w
  return %y
}
"""


def test_a_redistribute_is_the_step_that_it_names() -> None:
    module = collir.run_passes(collir.parse(EXAMPLE), "decompose")
    steps = [[op.name.removeprefix("coll.") for op in f.body.ops] for f in functions_of(module)]
    assert steps[:3] == [
        ["all_to_all", "func.return"],
        ["all_gather", "func.return"],
        ["reduce_scatter", "func.return"],
    ]
    for target in ("mpi", "mpi4py", "torch"):
        assert collir.emit(module, target)


@given(rng=RANDOM)
@settings(max_examples=14)
def test_splitting_is_proven_and_pays(rng: random.Random) -> None:
    mesh = random_mesh(rng, weights=1.0)
    axes = list(mesh.by_name)
    if not mesh.placed or not axes:
        return
    rng.shuffle(axes)
    over = tuple(axes[: rng.randint(1, len(axes))])
    size = units(mesh, list(mesh.by_name)) * rng.choice([1, 8, 4096])
    dims = (Dim(rng.choice([1, 6, size])), Dim(size))
    x = DistType(DType.F32, dims, frozenset(over), Reduction.SUM)
    builder = FunctionBuilder(mesh, [x])
    result = builder.try_op(OPERATIONS["all_reduce"], [builder.values[0]], {"axes": AxesAttr(over)})
    assert result is not None
    before = module_of([mesh], [builder.function([result])])
    after = collir.run_passes(before.clone(), "decompose")
    verify(after)
    [old], [new] = functions_of(before), functions_of(after)
    assert proven(old, new).outcome is Outcome.SAME
    assert collir.simulate(after)[0].time <= collir.simulate(before)[0].time * (1 + 1e-9)


def test_copies_along_an_axis_with_weights_are_not_divided() -> None:
    module = collir.parse(
        """
        machine @box { level cpu[16] { port = 1 GB/s, latency = 1 us, fabric = network } }
        mesh @m on @box { x = cpu:4 weights [3, 2, 1, 2], y = cpu:4 }
        func @f(%g: f32[256, 256] partial(sum: y)) -> f32[256, 256] on @m {
          %r = all_reduce %g over y
          return %r
        }
        """
    )
    after = collir.run_passes(module.clone(), "decompose")
    assert collir.simulate(after)[0].time <= collir.simulate(module)[0].time
    assert collir.emit(after, "coll") == collir.emit(module, "coll")


def test_inside_a_node_first() -> None:
    module = collir.parse(
        """
        machine @box { level node[2] { port = 8 GB/s, latency = 20 us }
                       level gpu[4] { port = 270 GB/s, latency = 3 us } }
        mesh @m on @box { data = node:2 * gpu:4 weights [3, 3, 3, 3, 1, 1, 1, 1] }
        func @f(%g: f32[5, 16000000] partial(sum: data)) -> f32[5, 16000000] on @m {
          %r = all_reduce %g over data
          return %r
        }
        """
    )
    before = collir.simulate(module)[0].time
    collir.run_passes(module, "decompose")
    names = [op.name.removeprefix("coll.") for op in functions_of(module)[0].body.ops]
    assert names == ["reduce_scatter", "all_reduce", "all_gather", "func.return"]
    assert collir.simulate(module)[0].time < 0.7 * before
