"""The target mpi4py: its code, and every collective, and random programs, on real ranks."""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.harness.seeds import fresh, some
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.one_step import (
    collectives,
    collectives_everywhere,
    local_operations,
    meshes_of,
)
from support.semantics.checks import functions_of
from support.targets.python_ranks import differences
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of

HERE = Path(__file__).parent
FIXED = "decompose{strategy=rs-ar-ag}"
EXAMPLES = HERE.parents[1] / "examples"

on_ranks = pytest.mark.skipif(
    find_spec("mpi4py") is None, reason="mpi4py is not installed: pip install '.[mpi4py]'"
)


def test_devices_of_a_large_mesh_cost_no_code() -> None:
    small = (EXAMPLES / "sync_gradients.coll").read_text(encoding="utf-8")
    large = small.replace("node[2]", "node[16384]").replace("gpu[4]", "gpu[8]")
    large = large.replace("node:2 * gpu:4", "node:16384 * gpu:8")
    texts = [
        collir.emit(collir.run_passes(collir.parse(text), FIXED), target)
        for text in (small, large)
        for target in ("mpi4py", "torch")
    ]
    lengths = [len(re.sub(r"\d+", "", text)) for text in texts]
    assert lengths[:2] == lengths[2:]


# --- arguments ----------------------------------------------------------------------------------

ALONE = """
machine @one { level a[1] { port = 1 GB/s, latency = 1 us } }
mesh @m on @one { x = a:1, y = a:1 }
func @twice(%x: f32[2, 3]) -> f32[2, 3] on @m {
  %r = scale %x by 2
  return %r
}
func @itself(%x: f32[2, 3]) -> (f32[2, 3], f32[6]) on @m {
  %y = reshape %x to [6]
  return %x, %y
}
func @large(%x: i8[1152921504606846976]) -> i8[2305843009213693952] on @m {
  %y = concat %x, %x dim 0
  return %y
}
"""


def mesh_on_one_device() -> Any:
    space: dict[str, Any] = {}
    exec(compile(collir.emit(collir.parse(ALONE), "mpi4py"), "alone.py", "exec"), space)
    return space["M"](SimpleNamespace(size=1, rank=0))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (np.zeros((2, 3)), "x is float64 of shape (2, 3)"),
        (np.zeros((3, 2), np.float32), "x is float32 of shape (3, 2)"),
        (np.zeros((0, 3), np.float32), "x is float32 of shape (0, 3)"),
        (None, "x is None"),
        ([1.0], "x is [1.0]"),
    ],
)
def test_arguments_of_another_type_are_refused(argument: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        mesh_on_one_device().twice(argument)


def test_one_device_computes_alone() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(mesh_on_one_device().twice(x), 2 * x)


def test_arguments_may_lie_in_any_order_in_memory() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2).T
    assert np.array_equal(mesh_on_one_device().twice(x), 2 * x)


def test_results_share_no_memory() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    same, reshaped = mesh_on_one_device().itself(x)
    assert np.array_equal(same, x)
    assert not np.shares_memory(same, x)
    assert not np.shares_memory(same, reshaped)


def test_a_communicator_of_another_size_is_refused() -> None:
    space: dict[str, Any] = {}
    exec(compile(collir.emit(collir.parse(ALONE), "mpi4py"), "alone.py", "exec"), space)
    with pytest.raises(ValueError, match="mesh @m needs 1 rank, has 3"):
        space["M"](SimpleNamespace(size=3, rank=0))


# --- names --------------------------------------------------------------------------------------

NAMES = """
machine @k { level lambda[2] { port = 1 GB/s, latency = 1 us }
             level b_c[2]    { port = 1 GB/s, latency = 1 us }
             level c[2]      { port = 1 GB/s, latency = 1 us } }
mesh @from_all on @k { rank = lambda:2, comm = b_c:2, over_rank_lambda = c:2 }
mesh @clash on @k { a = lambda:2 * b_c:2, a_b = c:2 }

func @m(%m: f32[8] partial(sum: a.b_c, a_b.c)) -> f32[8] on @clash {
  %self = all_reduce %m over a.b_c
  %MPI = all_reduce %self over a_b.c
  return %MPI
}
func @over_a_b_c(%class: f32[8@a_b, 8@a], %xp: f32[8]) -> (f32[8], f32[64, 2]) on @clash {
  %sent = all_to_all %class over a_b dim 0 to 1
  %print = all_gather %sent over a_b dim 1
  %np = all_gather %print over a dim 1
  %start = scale %np by 2
  %None = reshape %start to [64]
  %parts = slice %None over a_b dim 0
  %to = all_gather %parts over a_b dim 0
  %from_ = concat %to, %None dim 0
  %x_2 = reshape %from_ to [2, 64]
  %x_1 = transpose %x_2 order [1, 0]
  return %xp, %x_1
}
func @bf16_sum(%from: bf16[8] partial(sum: rank, comm)) -> bf16[8] on @from_all {
  %SUM_OF_BF16 = all_reduce %from over comm, rank
  %ml_dtypes = scale %SUM_OF_BF16 by 0.5
  return %ml_dtypes
}
func @rank_lambda(%x: f32[8@rank], %dist: f32[8]) -> (f32[8@comm], f32[8]) on @from_all {
  %to = permute %x to f32[8@comm]
  %torch = scale %dist by 2
  return %to, %torch
}
"""


@pytest.mark.turns
@on_ranks
def test_any_name_of_a_value_or_an_axis_runs(tmp_path: Path) -> None:
    module = collir.parse(NAMES)
    assert differences("mpi4py", module, functions_of(module), tmp_path) == []


@pytest.mark.parametrize("target", ["mpi4py", "torch"])
def test_no_name_ends_a_comment_or_a_string(target: str, tmp_path: Path) -> None:
    """MLIR allows any name for a machine, an axis or a level."""
    odd = r"x\22\22\22\0Aevil = 1 # {rank} \\"
    source = "machine @k { level a[2] { port = 1 GB/s, latency = 1 us }\n"
    source += "level b[2] { port = 1 GB/s, latency = 1 us } }\n"
    source += "mesh @m on @k { x = a:2, y = b:2 }\n"
    source += "func @f(%x: f32[4@x]) -> f32[4] on @m {\n"
    source += "  %r = all_gather %x over x dim 0\n  return %r\n}\n"
    text = collir.emit(collir.parse(source), "mlir").replace("@k", f'@"{odd}"')
    for name in ("b", "y"):
        text = text.replace(f'<"{name}"', f'<"{odd}{name}"')
    path = tmp_path / "odd.mlir"
    path.write_text(text, encoding="utf-8")
    code = collir.emit(collir.parse(path), target)
    assert "evil" in code
    compile(code, "odd.py", "exec")
    assert not re.search(r"^\s*evil", code, re.MULTILINE)


# --- on ranks -----------------------------------------------------------------------------------


def random_functions(ranks: int, seed: int, count: int) -> tuple[ModuleOp, Sequence[FuncOp]]:
    rng = fresh(seed)
    meshes = [random_mesh(rng, ranks, f"m{index}") for index in range(4)]
    functions = [
        random_function(rng, rng.choice(meshes), rng.randint(1, 10), f"f{index}")
        for index in range(count)
    ]
    return module_of(meshes, functions), functions


@pytest.mark.turns
@on_ranks
@pytest.mark.parametrize("ranks", some([1, 6, 8, 12], 1))
def test_every_rank_holds_what_it_should(ranks: int, tmp_path: Path) -> None:
    functions = list(collectives(ranks)) if ranks > 1 else []
    functions += local_operations(ranks) if ranks in (1, 6) else []
    module = module_of(meshes_of(ranks), functions)
    assert differences("mpi4py", module, functions, tmp_path) == []


@pytest.mark.turns
@on_ranks
@pytest.mark.parametrize(("ranks", "seed"), some([(6, 1), (8, 2), (12, 3)], 1))
def test_random_programs(ranks: int, seed: int, tmp_path: Path) -> None:
    module, functions = random_functions(ranks, seed, 40)
    assert differences("mpi4py", module, functions, tmp_path) == []


@pytest.mark.turns
@on_ranks
@pytest.mark.parametrize(
    "path", some(sorted(EXAMPLES.glob("*.coll")), 1), ids=lambda path: path.stem
)
def test_examples(path: Path, tmp_path: Path) -> None:
    module = collir.run_passes(collir.parse(path), "decompose")
    by_ranks: dict[int, list[FuncOp]] = {}
    for function in functions_of(module):
        by_ranks.setdefault(mesh_of(function).devices, []).append(function)
    for ranks, functions in by_ranks.items():
        if ranks <= 16:
            assert differences("mpi4py", module, functions, tmp_path) == []


@pytest.mark.turns
@on_ranks
@pytest.mark.skipif(
    find_spec("array_api_strict") is None, reason="array-api-strict is not installed"
)
def test_arrays_of_another_library(tmp_path: Path) -> None:
    """The library has the Python array API and no more; it does not know f16 and bf16."""
    functions = [
        function
        for function in [*collectives(6), *local_operations(6)]
        if "f16" not in str(function)
    ]
    module = module_of(meshes_of(6), functions)
    assert differences("mpi4py", module, functions, tmp_path, "array_api_strict") == []


@on_ranks
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 9, 12, 16])
def test_everywhere(ranks: int, tmp_path: Path) -> None:
    """Every kind over lists of sub-axes on every dimension, and many random programs."""
    functions = list(collectives_everywhere(ranks, at_most=1500))
    module = module_of(meshes_of(ranks), functions)
    assert differences("mpi4py", module, functions, tmp_path) == []
    module, functions = random_functions(ranks, 100 + ranks, 200)
    assert differences("mpi4py", module, functions, tmp_path) == []
