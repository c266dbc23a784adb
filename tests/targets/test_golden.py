"""The code of an example is the golden one; emitted Python is tidy."""

import random
from pathlib import Path

import pytest
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.model_pages import page
from support.targets.python_ranks import is_tidy
from support.targets.training_steps import small_page

import collir

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ("mpi", "sync_gradients.c"),
        ("nccl", "sync_gradients_nccl.cpp"),
        ("mpi4py", "sync_gradients_mpi4py.py"),
        ("torch", "sync_gradients_torch.py"),
        ("jax", "sync_gradients_jax.py"),
    ],
)
def test_the_code_of_an_example_is_what_it_was(
    target: str, file: str, request: pytest.FixtureRequest
) -> None:
    module = collir.run_passes(
        collir.parse(EXAMPLES / "sync_gradients.coll"), "decompose{strategy=rs-ar-ag}"
    )
    check_golden(collir.emit(module, target), file, request)


def test_the_code_of_a_model_is_what_it_was(request: pytest.FixtureRequest) -> None:
    """Check the code of a small page, with its loops and its gradient."""
    check_golden(collir.emit(small_page("mlp"), "torch"), "mlp_torch.py", request)


def check_golden(emitted: str, file: str, request: pytest.FixtureRequest) -> None:
    """Check that emitted code is that of a file, or write it there."""
    code = emitted.replace(collir.__version__, "VERSION")
    golden = HERE / "golden" / file
    if request.config.getoption("--update-golden"):
        golden.write_text(code, encoding="utf-8")
    assert code == golden.read_text(encoding="utf-8")


def test_the_c_of_a_training_step_is_what_it_was(request: pytest.FixtureRequest) -> None:
    module = page("mlp", batch=4, width=8, layers=4)
    code = collir.emit(module, "mpi").replace(collir.__version__, "VERSION")
    golden = HERE / "golden" / "mlp.c"
    if request.config.getoption("--update-golden"):
        golden.write_text(code, encoding="utf-8")
    assert code == golden.read_text(encoding="utf-8")


@pytest.mark.turns
@pytest.mark.parametrize("target", ["mpi4py", "torch", "jax"])
def test_python_is_as_ruff_would_have_it(target: str, tmp_path: Path) -> None:
    rng = random.Random(1)
    meshes = [random_mesh(rng, name=f"m{index}") for index in range(8)]
    functions = [random_function(rng, rng.choice(meshes), 8, f"f{i}") for i in range(60)]
    texts = [collir.emit(module_of(meshes, functions), target)]
    for path in sorted(EXAMPLES.glob("*.coll")):
        text = path.read_text(encoding="utf-8")
        if "redistribute " in text:
            continue  # views of many dimensions make lines that are longer
        if target == "jax" and "weights [" in text:
            continue  # refused
        module = collir.run_passes(collir.parse(path), "decompose{strategy=rs-ar-ag}")
        texts.append(collir.emit(module, target))
    assert is_tidy(texts, tmp_path) == ""
