"""The target torch: every collective, and random programs, on processes with gloo."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from support.harness.seeds import fresh, some
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.one_step import collectives, local_operations, meshes_of
from support.semantics.checks import functions_of
from support.targets.python_ranks import differences
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed: pip install '.[torch]'"
)


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
@pytest.mark.parametrize(("ranks", "seed"), some([(1, 0), (4, 1), (6, 2), (8, 3), (12, 4)], 3))
def test_random_programs(ranks: int, seed: int, tmp_path: Path) -> None:
    rng = fresh(seed)
    meshes = [random_mesh(rng, ranks, f"m{index}", weights=0.4) for index in range(4)]
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
