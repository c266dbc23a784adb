"""Operations of models and whole models in the target mpi, on real ranks beside the numpy
executor."""

from pathlib import Path

import pytest
from model_operations import random_operation
from on_ranks import differences
from programs import module_of, random_mesh
from seeds import fresh, some

from collir.layout.nn_rows import NN

WARNINGS = ("-O1", "-Wall", "-Wextra", "-Werror")


@pytest.mark.parametrize(
    ("ranks", "seed"), some([(ranks, n) for ranks in (1, 4, 6, 8) for n in range(2)], 1)
)
def test_every_operation(ranks: int, seed: int, tmp_path: Path) -> None:
    """Check every row of the table on operands of random types, sharded, partial and placed."""
    rng = fresh("operations in C", ranks, seed)
    meshes = [random_mesh(rng, ranks, f"n{n}", weights=0.3) for n in range(3)]
    functions = [
        random_operation(rng, rng.choice(meshes), name, f"{name}_{number}_")
        for number, name in enumerate([*NN, "add"])
    ]
    assert differences(module_of(meshes, functions), functions, tmp_path, WARNINGS) == []
