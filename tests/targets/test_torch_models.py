"""Operations of models and whole models in the target torch, on processes with gloo beside the
numpy executor."""

import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support.harness.seeds import fresh
from support.programs import corners
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.model_operations import random_operation
from support.programs.model_pages import function_of
from support.targets.python_ranks import differences, is_tidy
from support.targets.training_steps import SIZES, STEPS, arguments_of, check_step, small_page
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.ir.functions import functions_of
from collir.layout import Mesh
from collir.layout.nn_rows import NN
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.executor import execute
from collir.targets.code.torch_methods import METHODS
from collir.tools.torch_run import launch, run

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed: pip install '.[torch]'"
)


@pytest.mark.turns
@needs_torch
@pytest.mark.parametrize(
    ("name", "function"),
    [pytest.param(*step, marks=[] if step[0] == "mlp" else [pytest.mark.slow]) for step in STEPS],
)
def test_a_training_step(name: str, function: str, tmp_path: Path) -> None:
    """Check the loss and the new weights and states of an optimiser's step, in f64."""
    check_step(run, name, function, tmp_path)


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "seed"), [(1, 0), (4, 1), (6, 2), (8, 3), (4, 4)])
def test_every_operation(ranks: int, seed: int, tmp_path: Path) -> None:
    """Check every row of the table on operands of random types, sharded, partial and placed."""
    rng = fresh("operations in torch", seed)
    meshes = [random_mesh(rng, ranks, f"n{n}", weights=0.5 * (n == 2)) for n in range(3)]
    functions = [
        random_operation(rng, rng.choice(meshes), name, f"{name}_{number}")
        for number, name in enumerate([*NN, "add"] * 3)
    ]
    assert differences("torch", module_of(meshes, functions), functions, tmp_path) == []


@pytest.mark.turns
@needs_torch
def test_corners(tmp_path: Path) -> None:
    module = collir.parse(corners.TEXT)
    assert differences("torch", module, functions_of(module), tmp_path) == []


def is_printed(mesh: Mesh, function: FuncOp) -> bool:
    """Return whether a function has a form: some steps have none on axes with weights."""
    try:
        collir.emit(module_of([mesh], [function.clone()]), "torch")
    except collir.DiagnosticError as error:
        assert mesh.uneven, error
        return False
    return True


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "weights"), [(4, 0.0), (6, 0.5), (8, 0.0), (8, 0.5)])
def test_random_programs(ranks: int, weights: float, tmp_path: Path) -> None:
    """Check programs with loops and collectives between operations of models."""
    rng = fresh("programs of models in torch", ranks, weights)
    meshes = [random_mesh(rng, ranks, f"m{n}", weights=weights) for n in range(3)]
    functions: list[FuncOp] = []
    for number in range(12):
        mesh = rng.choice(meshes)
        function = random_function(rng, mesh, 8, f"f{number}", models=True)
        functions += [function] if is_printed(mesh, function) else []
    assert differences("torch", module_of(meshes, functions), functions, tmp_path) == []


@needs_torch
@pytest.mark.slow
def test_a_training_step_in_mixed_precision(tmp_path: Path) -> None:
    """Check that a program in bf16 and f32 is near to what the executor computes in these."""
    module = small_page("gpt")
    function = function_of(module, "step")
    arguments = arguments_of(function)
    [(results, _)] = run(module, [(function, arguments)], tmp_path)
    for buffers, expected in zip(results, execute(module, function, arguments), strict=True):
        for actual, right in zip(buffers, expected, strict=True):
            assert actual is not None and right is not None
            assert actual.dtype == right.dtype
            distance = np.abs(actual.astype(np.float64) - right.astype(np.float64)).max()
            assert distance <= 0.02 * np.abs(right.astype(np.float64)).max()


DROPOUT = """
machine @quad { level gpu[4] { port = 8 GB/s, latency = 3 us } }
mesh @m on @quad { data = gpu:2, model = gpu:2 }
func @kept(%seed: i32[]) -> (bool[6@data, 8@model], f64[6@data, 8@model]) on @m {
  %u = uniform %seed to TYPE[6@data, 8@model]
  %rate = constant value 0.3 to TYPE[]
  %kept = greater %u, %rate
  %wide = cast %u to f64
  return %kept, %wide
}
"""


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64"])
def test_random_numbers_are_bit_by_bit_those_of_the_executor(dtype: str, tmp_path: Path) -> None:
    module = collir.parse(DROPOUT.replace("TYPE", dtype))
    function = function_of(module, "kept")
    devices = mesh_of(function).devices
    seeds: list[Buffers] = [[np.asarray(n, np.int32)] * devices for n in (0, -7, 2**31 - 1)]
    runs = run(module, [(function, [seed]) for seed in seeds], tmp_path)
    for seed, (results, _) in zip(seeds, runs, strict=True):
        for buffers, expected in zip(results, execute(module, function, [seed]), strict=True):
            for actual, right in zip(buffers, expected, strict=True):
                assert actual is not None and right is not None
                assert actual.tobytes() == right.tobytes()


PROGRAM = """
import torch.distributed as dist

class M:
    def f(self):
        if dist.get_rank() == 1:
            FAULT
        dist.barrier()
"""


@needs_torch
@pytest.mark.slow
def test_a_world_of_another_size_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(collir.emit(small_page("mlp"), "torch"), encoding="utf-8")
    for rank in range(2):
        (tmp_path / f"{rank}.in").write_bytes(pickle.dumps([("M", "step", 0, [])]))
    with pytest.raises(RuntimeError, match="mesh @m needs 4 ranks, has 2"):
        launch(tmp_path, 2, patience=60)


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [("raise ValueError('rank 1 fails')", "rank 1 fails"), ("while True: pass", "(?i)timed? ?out")],
)
def test_a_rank_that_fails_ends_all(fault: str, message: str, tmp_path: Path) -> None:
    """Check that ranks which wait for one that raises, or never comes, are ended."""
    (tmp_path / "program.py").write_text(PROGRAM.replace("FAULT", fault), encoding="utf-8")
    for rank in range(3):
        (tmp_path / f"{rank}.in").write_bytes(pickle.dumps([("M", "f", 0, [])]))
    with pytest.raises(RuntimeError, match=message):
        launch(tmp_path, 3, patience=5)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n == "switch" else [pytest.mark.slow]) for n in SIZES],
)
def test_emitted_models_are_tidy(name: str, tmp_path: Path) -> None:
    assert is_tidy([collir.emit(small_page(name), "torch")], tmp_path) == ""


def test_methods_are_tidy(tmp_path: Path) -> None:
    modules = ["import itertools", "import torch", "import torch.nn.functional as F"]
    text = "\n\n".join([*modules[:1], "\n".join(modules[1:])])
    text += "\n\n\nclass M:\n" + "\n".join(METHODS.values())
    assert is_tidy([text], tmp_path) == ""
