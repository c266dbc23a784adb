"""The target jax: every step, random programs and models, on CPU devices in one process."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support.harness.seeds import fresh
from support.programs import corners
from support.programs.collectives import module_of, random_function, random_mesh, random_module
from support.programs.model_operations import random_operation
from support.programs.model_pages import LIMITS, SMALL, function_of, inputs_of, page
from support.programs.one_step import collectives, local_operations, meshes_of
from support.semantics.checks import functions_of
from support.targets.on_jax import differences
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.layout import DType, Mesh
from collir.layout.nn_rows import NN
from collir.semantics.reference.buffers import NUMPY, distribute
from collir.semantics.reference.double import module_in_double
from collir.semantics.reference.executor import execute
from collir.targets.code.jax import emit_jax
from collir.tools.jax_run import run

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"

needs_jax = pytest.mark.skipif(
    find_spec("jax") is None, reason="jax is not installed: pip install '.[jax]'"
)

MODEL_STEPS = [*NN, "add"]


def meshes_for(seed: int) -> list[Mesh]:
    rng = fresh("meshes", seed)
    return [random_mesh(rng, devices, f"n{n}") for n, devices in enumerate([1, 4, 6, 8, 8])]


def operations(seed: int, names: list[str], meshes: list[Mesh]) -> list[FuncOp]:
    """Return a function for each operation of a model, on operands of random types."""
    rng = fresh("operations", seed)
    made: list[FuncOp] = []
    for n, name in enumerate(names):
        # jax has no gradient of integers.
        dtypes = [d for d in DType if d.is_float or name != "max_pool_transpose"]
        made.append(random_operation(rng, rng.choice(meshes), name, f"{name}_{n}", dtypes))
    return made


@pytest.mark.turns
@needs_jax
def test_a_sample(tmp_path: Path) -> None:
    """Check some collectives, local steps, operations of models and programs, in one process."""
    rng, meshes = fresh("a sample of jax"), meshes_for(0)
    functions = [*collectives(8), *local_operations(8)]
    functions = rng.sample(functions, 9)
    functions += operations(0, rng.sample(MODEL_STEPS, 9), meshes)
    functions += [
        random_function(rng, rng.choice(meshes), 6, f"f{n}", models=True) for n in range(4)
    ]
    for text in (corners.TEXT, corners.ON_FOUR):
        at_corners = functions_of(collir.parse(text))
        meshes.append(mesh_of(at_corners[0]))
        functions += [function.clone() for function in at_corners]
    module = module_of([*meshes_of(8), *meshes], functions)
    assert differences(module, functions, tmp_path) == []


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 4, 6, 8, 12])
def test_every_device_holds_what_it_should(devices: int, tmp_path: Path) -> None:
    functions = list(collectives(devices)) if devices > 1 else []
    functions += local_operations(devices)
    functions = fresh("steps", devices).sample(functions, min(len(functions), 200))
    assert differences(module_of(meshes_of(devices), functions), functions, tmp_path) == []


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_operations_of_models(seed: int, tmp_path: Path) -> None:
    meshes = meshes_for(seed)
    functions = operations(seed, MODEL_STEPS * 4, meshes)
    assert differences(module_of(meshes, functions), functions, tmp_path) == []


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    """Check programs with loops, steps that are ahead, places, and calls at other sizes."""
    module = random_module(fresh("jax", seed), functions=12, steps=10, kinds=0.0, models=True)
    assert differences(module, functions_of(module), tmp_path) == []


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.coll")), ids=lambda path: path.stem)
def test_examples(path: Path, tmp_path: Path) -> None:
    module = collir.run_passes(collir.parse(path), "decompose")
    functions = functions_of(module)
    small = [f for f in functions if mesh_of(f).devices <= 16]
    if any(mesh_of(f).uneven for f in functions):
        with pytest.raises(collir.DiagnosticError, match="differ by the weights"):
            emit_jax(module)
    elif small:
        assert differences(module, small, tmp_path) == []


PAGES = {name: SMALL[name] for name in ("mlp", "gpt", "llama", "bert", "vit", "switch")}
"""Small sizes of each model."""


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_training_step(name: str, tmp_path: Path) -> None:
    """Check the loss and the new weights and states of an optimiser's step, in f64."""
    sizes = PAGES[name]
    module = module_in_double(page(name, **sizes))
    function = function_of(module, "step")
    mesh, rng = mesh_of(function), np.random.default_rng(0)
    arguments = [
        distribute(mesh, (abs(x) + 0.5 * (x.dtype.kind == "f")).astype(NUMPY[t.dtype]), t, rng)
        for x, t in zip(
            inputs_of(function, LIMITS.get(name, sizes.get("vocab", 2))),
            map(dist_type, function.args),
            strict=True,
        )
    ]
    [(results, _)] = run(module, [(function, arguments)], tmp_path, quick=True)
    for buffers, expected in zip(results, execute(module, function, arguments), strict=True):
        for actual, right in zip(buffers, expected, strict=True):
            assert actual is not None and right is not None
            assert np.abs(actual - right).max() <= 1e-12 * max(1e-3, np.abs(right).max())


@needs_jax
@pytest.mark.slow
def test_a_training_step_in_mixed_precision(tmp_path: Path) -> None:
    """Check that a program in bf16 and f32 is near to what the executor computes in these."""
    module = page("gpt", **PAGES["gpt"])
    function = function_of(module, "step")
    mesh, rng = mesh_of(function), np.random.default_rng(0)
    arguments = [
        distribute(mesh, (abs(x) + 0.5 * (x.dtype.kind == "f")).astype(NUMPY[t.dtype]), t, rng)
        for x, t in zip(inputs_of(function, 12), map(dist_type, function.args), strict=True)
    ]
    [(results, _)] = run(module, [(function, arguments)], tmp_path, quick=True)
    for buffers, expected in zip(results, execute(module, function, arguments), strict=True):
        for actual, right in zip(buffers, expected, strict=True):
            assert actual is not None and right is not None
            assert actual.dtype == right.dtype
            distance = np.abs(actual.astype(np.float64) - right.astype(np.float64)).max()
            assert distance <= 0.02 * np.abs(right.astype(np.float64)).max()


@needs_jax
@pytest.mark.slow
def test_the_module_is_a_program(tmp_path: Path) -> None:
    """Check that the main runs, and that arguments of other shapes and too few devices are
    errors."""
    import os
    import subprocess
    import sys

    program = tmp_path / "program.py"
    program.write_text(collir.emit(page("mlp", **PAGES["mlp"]), "jax"), encoding="utf-8")
    wrong = "import jax.numpy as jnp, program as p; p.loss(*[jnp.zeros((4, 9))] * 4)"

    def said(devices: int, *words: str) -> str:
        flags = f"--xla_force_host_platform_device_count={devices}"
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        command = [sys.executable, *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert [line.split(":")[0] for line in said(8, str(program)).splitlines()] == ["loss", "step"]
    assert "argument 0 is float32[4,9], not ShapeDtypeStruct(shape=(4, 8)" in said(8, "-c", wrong)
    assert "mesh @m needs 8 devices, and jax has 4" in said(4, str(program))
