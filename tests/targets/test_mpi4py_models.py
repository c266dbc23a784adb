"""Operations of models and whole models in the target mpi4py: beside the numpy executor, each
operation on its own in this process, and programs and models on real ranks."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from support.harness.seeds import fresh, some
from support.programs import corners
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.model_operations import random_operation
from support.programs.model_pages import page
from support.targets import python_alone
from support.targets.python_ranks import differences, is_tidy
from support.targets.training_steps import STEPS, check_step
from xdsl.dialects.func import FuncOp

import collir
from collir.ir.functions import functions_of
from collir.layout import Mesh
from collir.layout.nn_rows import NN
from collir.synthesis.propagation.propagate import make_explicit
from collir.tools.mpi4py_run import run

on_ranks = pytest.mark.skipif(
    find_spec("mpi4py") is None, reason="mpi4py is not installed: pip install '.[mpi4py]'"
)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(8))])
def test_every_operation(seed: int) -> None:
    """Check every row of the table on operands of random types, sharded, partial and placed."""
    rng = fresh("operations in numpy", seed)
    meshes = [random_mesh(rng, devices, f"n{devices}") for devices in (1, 4, 6, 8)]
    functions = [
        random_operation(rng, rng.choice(meshes), name, f"{name}_{number}")
        for number, name in enumerate([*NN, "add"])
    ]
    assert python_alone.differences(module_of(meshes, functions), functions) == []


def test_batches_of_products() -> None:
    """Check products of matrices, whose dimensions and those of the result are in any order."""
    rng, sizes = fresh("products"), dict(zip("bhijd", (2, 3, 4, 5, 6), strict=True))
    text = (
        "machine @k { level a[1] { port = 1 GB/s, latency = 1 us } }\nmesh @m on @k { x = a:1 }\n"
    )
    for number in range(20):
        batch = rng.choice(["b", "bh"])
        over = [rng.sample(batch + own, len(batch) + 2) for own in ("id", "jd", "ij")]
        x, y, z = (f"f32[{', '.join(str(sizes[index]) for index in part)}]" for part in over)
        left, right, result = map(" ".join, over)
        text += f"func @f{number}(%x: {x}, %y: {y}) -> {z} on @m {{\n"
        text += f'  %z = einsum "{left}, {right} -> {result}" %x, %y\n  return %z\n}}\n'
    module = collir.parse(text)
    assert collir.emit(module, "mpi4py").count("xp.matmul(") == 20
    assert python_alone.differences(module, functions_of(module)) == []


def test_corners() -> None:
    module = collir.parse(corners.TEXT)
    assert python_alone.differences(module, functions_of(module)) == []


@on_ranks
def test_functions_of_two_results_return_them(tmp_path: Path) -> None:
    module = collir.parse(corners.TEXT)
    assert differences("mpi4py", module, functions_of(module), tmp_path) == []


def test_positions_in_blocks_that_differ_in_size() -> None:
    module = collir.parse(corners.UNEVEN)
    assert python_alone.differences(module, functions_of(module)) == []


def is_printed(mesh: Mesh, function: FuncOp) -> bool:
    """Return whether a function has a form: some steps have none on axes with weights."""
    try:
        collir.emit(module_of([mesh], [function.clone()]), "mpi4py")
    except collir.DiagnosticError as error:
        assert mesh.uneven, error
        return False
    return True


@pytest.mark.turns
@on_ranks
@pytest.mark.parametrize(
    ("ranks", "weights"), some([(4, 0.0), (4, 0.5), (6, 0.5), (8, 0.0), (8, 0.5)], 1)
)
def test_random_programs(ranks: int, weights: float, tmp_path: Path) -> None:
    """Check programs with loops and collectives between operations of models."""
    rng = fresh("programs of models in numpy", ranks, weights)
    meshes = [random_mesh(rng, ranks, f"m{n}", weights=weights) for n in range(3)]
    functions: list[FuncOp] = []
    for number in range(12):
        mesh = rng.choice(meshes)
        function = random_function(rng, mesh, 8, f"f{number}", models=True)
        functions += [function] if is_printed(mesh, function) else []
    assert differences("mpi4py", module_of(meshes, functions), functions, tmp_path) == []


# --- models -------------------------------------------------------------------------------------

SMALL = ("mlp", "gpt", "llama", "bert", "vit", "switch")

CASES = [(name, step) for name, step in STEPS if name in ("styles", *SMALL)]


@pytest.mark.turns
@on_ranks
@pytest.mark.parametrize(("name", "function_name"), some(CASES, 1))
def test_a_training_step(name: str, function_name: str, tmp_path: Path) -> None:
    """Check the loss and the new weights and states of an optimiser's step, in f64."""
    check_step(run, name, function_name, tmp_path)


LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("styles", "resnet50", "vgg19")]


@pytest.mark.turns
@pytest.mark.parametrize("name", [*some(SMALL, 1), *LONG])
def test_emitted_models_are_tidy(name: str, tmp_path: Path) -> None:
    module = page(name)
    make_explicit(module)
    assert is_tidy([collir.emit(module, "mpi4py")], tmp_path) == ""
