"""Every collective, reduction and dtype on 1 to 16 real MPI ranks, and the local operations.

One program for each number of ranks, compiled once and launched once.
"""

from pathlib import Path

import pytest
from on_ranks import differences
from one_step import (
    KINDS,
    MESHES,
    collectives,
    collectives_everywhere,
    local_operations,
    meshes_of,
)
from programs import module_of

from collir.dialects import coll
from collir.dialects.coll import dist_type
from collir.layout import DType, Reduction

RANKS = range(1, 17)


def test_there_is_a_mesh_for_every_number_of_ranks() -> None:
    assert {mesh.devices for mesh in MESHES} == set(RANKS)


def test_kinds_are_all_collectives_with_all_reductions_on_all_dtypes() -> None:
    assert len(coll.COLLECTIVES) == 9
    floats = 4
    assert len(KINDS) == 3 * (7 * 5 - (7 - floats)) + 6 * 7
    assert {kind.dtype for kind in KINDS} == set(DType)
    assert {kind.reduction for kind in KINDS} == {None, *Reduction}


@pytest.mark.parametrize("ranks", RANKS)
def test_every_rank_holds_what_it_should(ranks: int, tmp_path: Path) -> None:
    functions = [*collectives(ranks)] if ranks > 1 else []
    if ranks in (1, 4, 6, 12):
        functions += local_operations(ranks)
    module = module_of(meshes_of(ranks), functions)
    assert differences(module, functions, tmp_path) == []
