"""Code of collectives that are written as rounds, on real ranks of MPI and gloo, and on a fake of
NCCL, beside the executor."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from support.harness.seeds import fresh, some
from support.programs.by_rounds import every_algorithm
from support.semantics.checks import functions_of
from support.targets import on_fake_nccl, on_ranks, python_ranks

import collir


@pytest.mark.turns
@pytest.mark.parametrize("ranks", some([2, 3, 4, 6, 8, 9], 2))
def test_ranks_of_mpi(ranks: int, tmp_path: Path) -> None:
    module = collir.parse(every_algorithm(ranks, fresh("rounds", ranks)))
    assert on_ranks.differences(module, [*functions_of(module)], tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("ranks", range(2, 18))
@pytest.mark.parametrize("target", ["mpi", "mpi4py", "torch", "nccl"])
def test_every_number_of_ranks(target: str, ranks: int, tmp_path: Path) -> None:
    if target == "torch" and find_spec("torch") is None:
        pytest.skip("torch is not installed: pip install '.[torch]'")
    for draw in range(3):
        module = collir.parse(every_algorithm(ranks, fresh(target, ranks, draw)))
        functions = [*functions_of(module)]
        match target:
            case "mpi":
                found = on_ranks.differences(module, functions, tmp_path)
            case "nccl":
                found = on_fake_nccl.differences(module, functions, tmp_path, "nccl")
            case "mpi4py" | "torch":
                found = python_ranks.differences(target, module, functions, tmp_path)
            case _:
                raise AssertionError(target)
        assert found == []


@pytest.mark.turns
@pytest.mark.parametrize("ranks", some([3, 4, 8], 1))
def test_ranks_of_a_fake_of_nccl(ranks: int, tmp_path: Path) -> None:
    module = collir.parse(every_algorithm(ranks, fresh("fake", ranks)))
    assert on_fake_nccl.differences(module, [*functions_of(module)], tmp_path, "nccl") == []


@pytest.mark.turns
@pytest.mark.parametrize("ranks", some([2, 4, 6], 1))
def test_ranks_of_mpi4py(ranks: int, tmp_path: Path) -> None:
    module = collir.parse(every_algorithm(ranks, fresh("python", ranks)))
    assert python_ranks.differences("mpi4py", module, [*functions_of(module)], tmp_path) == []
