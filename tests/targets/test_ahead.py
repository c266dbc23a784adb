"""Loops with collectives that are ahead, on real MPI ranks, over the fake of NCCL, and in Python.

The results are compared with those of the executor on the loops as they are written. Some of the
code is checked for misuse of memory, as carries and rows of stacks share buffers.
"""

import random
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.harness.seeds import fresh, some
from support.programs.collectives import (
    FunctionBuilder,
    add_repeat,
    module_of,
    random_layout,
    random_mesh,
)
from support.semantics.checks import functions_of
from support.targets import on_fake_nccl, on_ranks, python_ranks
from support.targets.python_ranks import Target
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.nested import RepeatOp
from collir.ir.ahead import steps_ahead
from collir.ir.buffers import plan_buffers
from collir.ir.verification import verify
from collir.layout import Dim, Mesh
from collir.syntax.reader import read

EXAMPLES = Path(__file__).parents[2] / "examples"

SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def loops_ahead(rng: random.Random, mesh: Mesh, name: str) -> FuncOp:
    """Return a function of two loops with steps that are ahead; the second may use the first."""
    while True:
        x = random_layout(rng, mesh, places=rng.random() < 0.3)
        count = rng.choice([1, 2, 3, 4, 5, 6])
        builder = FunctionBuilder(mesh, [x, replace(x, dims=(Dim(count), *x.dims))], name)
        loops = [add_repeat(rng, builder, count, 4) for _ in range(2)]
        if any(loop is not None and steps_ahead(loop) for loop in loops):
            return builder.function(builder.values[-rng.choice([1, 2, 3]) :])


def programs_ahead(seed: int, ranks: int, count: int) -> tuple[ModuleOp, list[FuncOp]]:
    rng = fresh(seed)
    meshes = [random_mesh(rng, ranks, f"m{index}", weights=0.2) for index in range(3)]
    functions = [loops_ahead(rng, rng.choice(meshes), f"f{index}") for index in range(count)]
    module = module_of(meshes, functions)
    verify(module)
    return module, functions


@pytest.mark.turns
@pytest.mark.parametrize(("ranks", "seed"), some([(4, 0), (6, 1), (8, 2)], 1, "ahead"))
def test_on_mpi_ranks(
    ranks: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # MPI's own
    module, functions = programs_ahead(seed, ranks, 12)
    flags = (*on_ranks.FLAGS, *SANITIZED)
    assert on_ranks.differences(module, functions, tmp_path, flags) == []


@pytest.mark.turns
@pytest.mark.parametrize(("ranks", "seed"), some([(4, 3), (6, 4), (8, 5)], 1, "ahead"))
def test_over_the_fake_of_nccl(ranks: int, seed: int, tmp_path: Path) -> None:
    module, functions = programs_ahead(seed, ranks, 5)
    assert on_fake_nccl.differences(module, functions, tmp_path, "nccl") == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mpi4py", "torch"])
def test_in_python(target: Target, tmp_path: Path) -> None:
    if find_spec("mpi4py" if target == "mpi4py" else "torch") is None:
        pytest.skip(f"{target} is not installed")
    module, functions = programs_ahead(6, 4, 12)
    assert python_ranks.differences(target, module, functions, tmp_path) == []


FIRST_VALUES = """
machine @pair { level gpu[2] { port = 8 GB/s, latency = 3 us } }
mesh @m on @pair { data = gpu:2 }

func @only_here(%x: f32[8]) -> f32[8] on @m {
  %a = scale %x by 2
  %h = repeat 5 carry(%h = %a) {
    %b = add %h, %h
    yield %b
  }
  %s = scale %h by 2
  return %s
}

func @later(%x: f32[8]) -> f32[8] on @m {
  %a = scale %x by 2
  %v = reshape %a to [2, 4]
  %h = repeat 5 carry(%h = %a) {
    %b = add %h, %h
    yield %b
  }
  %s = scale %h by 2
  %u = reshape %v to [8]
  %t = add %s, %u
  return %t
}

func @in_all_iterations(%x: f32[8]) -> f32[8] on @m {
  %a = scale %x by 2
  %h = repeat 5 carry(%h = %a) with(%k = %a) {
    %b = add %h, %k
    yield %b
  }
  %s = scale %h by 2
  return %s
}

func @of_two_carries(%x: f32[8]) -> f32[8] on @m {
  %a = scale %x by 2
  %h, %i = repeat 5 carry(%h = %a, %i = %a) {
    %b = add %h, %i
    %c = scale %b by 2
    yield %b, %c
  }
  %s = add %h, %i
  return %s
}
"""


def test_a_first_value_is_a_second_buffer_if_nothing_else_needs_it(tmp_path: Path) -> None:
    module = read(FIRST_VALUES)
    functions = functions_of(module)
    loops = [op for function in functions for op in function.walk() if isinstance(op, RepeatOp)]
    plans = [plan_buffers(function) for function in functions]
    spares = [plan.spares(loop) for plan, loop in zip(plans, loops, strict=True)]
    assert [any(of) for of in spares] == [True, False, False, False]
    assert on_ranks.differences(module, functions, tmp_path) == []


def test_a_stack_is_made_in_place() -> None:
    """The rows of the loop and of its last iteration are written to where the next loop reads."""
    module = collir.parse(EXAMPLES / "layers.coll")
    text = collir.emit(module, "mpi")
    body = text.partition("int step(")[2].partition("\n}")[0]
    assert "concat" not in body


ROWS = """
machine @pair { level gpu[2] { port = 8 GB/s, latency = 3 us } }
mesh @m on @pair { data = gpu:2 }
func @rows(%x: f32[4, 2]) -> (f32[3, 2], f32[3, 2], f32[3, 2]) on @m {
  %a = pad %x dim 0 low -1
  %b = pad %x dim 0 low -1
  %c = add %a, %b
  return %a, %b, %c
}
"""


def test_rows_are_not_copied_in_python_and_results_are() -> None:
    for target, copy in (("mpi4py", "self._packed(x[1:, ...])"), ("torch", "x[1:].clone()")):
        text = collir.emit(collir.parse(ROWS), target)
        lines = [line.strip() for line in text.splitlines() if "x[" in line]
        rows = "x[1:]" if target == "torch" else "x[1:, ...]"
        assert lines == [f"c = {rows} + {rows}", f"a = {copy}", f"b = {copy}"]
