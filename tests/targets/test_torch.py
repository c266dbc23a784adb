"""The target torch: its code, and every collective and random programs on processes with gloo."""

import random
from importlib.util import find_spec
from pathlib import Path

import pytest
from checks import functions_of
from one_step import collectives, local_operations, meshes_of
from programs import module_of, random_function, random_mesh
from python_ranks import differences, is_tidy
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed: pip install '.[torch]'"
)


def test_the_code_of_an_example_is_what_it_was(request: pytest.FixtureRequest) -> None:
    module = collir.run_passes(collir.parse(EXAMPLES / "sync_gradients.coll"), "decompose")
    found = collir.emit(module, "torch").replace(collir.__version__, "VERSION")
    golden = HERE / "golden" / "sync_gradients_torch.py"
    if request.config.getoption("--update-golden"):
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


def test_the_code_is_as_ruff_would_have_it(tmp_path: Path) -> None:
    rng = random.Random(0)
    meshes = [random_mesh(rng, name=f"m{index}") for index in range(8)]
    functions = [random_function(rng, rng.choice(meshes), 8, f"f{i}") for i in range(60)]
    texts = [collir.emit(module_of(meshes, functions), "torch")]
    for path in sorted(EXAMPLES.glob("*.coll")):
        module = collir.run_passes(collir.parse(path), "decompose")
        texts.append(collir.emit(module, "torch"))
    assert is_tidy(texts, tmp_path) == ""


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4, 6, 8, 12])
def test_every_rank_holds_what_it_should(ranks: int, tmp_path: Path) -> None:
    functions = list(collectives(ranks)) if ranks > 1 else []
    functions += local_operations(ranks)
    module = module_of(meshes_of(ranks), functions)
    assert differences("torch", module, functions, tmp_path) == []


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "seed"), [(1, 0), (4, 1), (6, 2), (8, 3), (12, 4)])
def test_random_programs(ranks: int, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    meshes = [random_mesh(rng, ranks, f"m{index}") for index in range(4)]
    functions = [
        random_function(rng, rng.choice(meshes), rng.randint(1, 10), f"f{index}")
        for index in range(150)
    ]
    assert differences("torch", module_of(meshes, functions), functions, tmp_path) == []


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.coll")), ids=lambda path: path.stem)
def test_examples(path: Path, tmp_path: Path) -> None:
    module = collir.run_passes(collir.parse(path), "decompose")
    by_ranks: dict[int, list[FuncOp]] = {}
    for function in functions_of(module):
        by_ranks.setdefault(mesh_of(function).devices, []).append(function)
    for ranks, functions in by_ranks.items():
        if ranks <= 16:
            assert differences("torch", module, functions, tmp_path) == []
