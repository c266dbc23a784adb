"""Random programs, and decomposed ones, on real MPI ranks."""

import random
from pathlib import Path
from typing import get_args

import pytest
from support.harness.seeds import fresh, some
from support.programs.collectives import (
    FunctionBuilder,
    module_of,
    random_function,
    random_layout,
    random_mesh,
)
from support.semantics.checks import functions_of
from support.targets.on_ranks import FLAGS, arguments_of, differences, results_on_ranks, same
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from collir.dialects.coll import OPERATIONS
from collir.dialects.tensor import AxesAttr
from collir.layout import DType, Mesh
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.executor import execute
from collir.synthesis.programs.fixed import Strategy
from collir.tools.api import run_passes
from collir.tools.mpi_run import compile_c

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("ranks", "seed"), some([(1, 0), (4, 1), (6, 2), (8, 3), (9, 4), (12, 5)], 2, "random")
)
def test_random_programs(ranks: int, seed: int, tmp_path: Path) -> None:
    assert_random_programs_run(ranks, seed, 25, tmp_path)


SANITIZED = (*FLAGS, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def sanitizers_work(folder: Path) -> bool:
    """Return whether the C compiler has the libraries that find misuse of memory."""
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    try:
        compile_c(source, folder / "empty", SANITIZED)
    except RuntimeError:
        return False
    return True


@pytest.mark.turns
def test_no_memory_is_misused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that hold nothing of a value have no buffer for it; calls of MPI are cut in pieces."""
    if not sanitizers_work(tmp_path):
        pytest.skip("the C compiler has no sanitizers")
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # MPI's own
    rng = fresh(7)
    meshes = [random_mesh(rng, 6, f"m{index}", weights=0.5) for index in range(3)]
    functions = [random_function(rng, rng.choice(meshes), 8, f"f{index}") for index in range(25)]
    flags = (*SANITIZED, "-DCOLLIR_MAX_COUNT=5")
    assert differences(module_of(meshes, functions), functions, tmp_path, flags) == []


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16])
@pytest.mark.parametrize("seed", range(100, 103))
def test_many_random_programs(ranks: int, seed: int, tmp_path: Path) -> None:
    assert_random_programs_run(ranks, seed, 150, tmp_path)


def assert_random_programs_run(ranks: int, seed: int, count: int, folder: Path) -> None:
    rng = fresh(seed)
    meshes = [random_mesh(rng, ranks, f"m{index}", weights=0.3) for index in range(4)]
    functions = [
        random_function(rng, rng.choice(meshes), rng.randint(1, 10), f"f{index}")
        for index in range(count)
    ]
    assert differences(module_of(meshes, functions), functions, folder) == []


def awkward_all_reduces(rng: random.Random, devices: int, count: int) -> ModuleOp:
    """Return all_reduces over all partial sub-axes, in any order, of shapes that seldom divide."""
    meshes: list[Mesh] = []
    while len(meshes) < 3:
        mesh = random_mesh(rng, devices, f"m{len(meshes)}")
        if len({sub_axis.level for sub_axis in mesh.sub_axes}) > 1:
            meshes.append(mesh)
    functions: list[FuncOp] = []
    while len(functions) < count:
        mesh = rng.choice(meshes)
        x = random_layout(rng, mesh, rng.choice(list(DType)))
        if len(x.partial) < 2 or x.elements > 2048:
            continue
        builder = FunctionBuilder(mesh, [x], f"f{len(functions)}")
        axes = list(mesh.ordered(x.partial))
        rng.shuffle(axes)
        result = builder.try_op(
            OPERATIONS["all_reduce"], builder.values, {"axes": AxesAttr(tuple(axes))}
        )
        assert result is not None
        functions.append(builder.function([result]))
    return module_of(meshes, functions)


@pytest.mark.turns
@pytest.mark.parametrize(("ranks", "seed"), some([(4, 0), (8, 1), (12, 2), (16, 3)], 1, "whole"))
def test_decomposed_all_reduces_are_equal_to_the_whole_ones(
    ranks: int, seed: int, tmp_path: Path
) -> None:
    """One launch runs the original programs and those of all strategies."""
    original = awkward_all_reduces(fresh(seed), ranks, 20)
    variants = original.clone()
    for strategy in STRATEGIES:
        decomposed = run_passes(original.clone(), f"decompose{{strategy={strategy}}}")
        for function in functions_of(decomposed):
            name = f"{function.sym_name.data}_{strategy.replace('-', '_')}"
            function.properties["sym_name"] = StringAttr(name)
            function.detach()
            variants.body.block.add_op(function)
    functions = functions_of(variants)
    names = [function.sym_name.data for function in functions]
    results = dict(zip(names, results_on_ranks(variants, functions, tmp_path), strict=True))
    for function in functions_of(original):
        name = function.sym_name.data
        undecomposed = results[name]
        assert_same(undecomposed, execute(original, function, arguments_of(function)), name)
        for strategy in STRATEGIES:
            variant = f"{name}_{strategy.replace('-', '_')}"
            assert_same(results[variant], undecomposed, variant)


def assert_same(results: list[Buffers], expected: list[Buffers], what: str) -> None:
    """Check that buffers are equal on every rank."""
    for buffers, right in zip(results, expected, strict=True):
        pairs = enumerate(zip(buffers, right, strict=True))
        wrong = [rank for rank, pair in pairs if not same(*pair)]
        assert wrong == [], f"{what} on ranks {wrong}"
