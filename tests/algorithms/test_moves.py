"""Algorithms that are written as rounds: proven, printed and read, and run on real ranks."""

from pathlib import Path

import pytest
from chunk_programs import results, wanted
from chunks_on_ranks import equal_to_mpi
from seeds import fresh

from collir.algorithms.checking import check
from collir.algorithms.moves import program_of
from collir.algorithms.msccl_xml import text_of
from collir.algorithms.table import ALGORITHMS
from collir.importing.algorithms.msccl_xml import read_msccl_xml

KEYS = sorted(ALGORITHMS)


@pytest.mark.parametrize("key", KEYS, ids="-".join)
def test_every_algorithm_implements_its_collective(key: tuple[str, str]) -> None:
    algorithm = ALGORITHMS[key]
    for ranks in filter(algorithm.fits, range(2, 18)):
        program = program_of(algorithm, ranks)
        assert check(program).problems == []
        if program.collective in ("all_reduce", "all_gather") and ranks < 8:
            assert results(program, fresh(key, ranks), 8) == wanted(program)


@pytest.mark.parametrize("key", KEYS, ids="-".join)
@pytest.mark.parametrize("runtime", ["rccl", "msccl"])
def test_what_is_printed_is_proven_again(key: tuple[str, str], runtime: str) -> None:
    algorithm = ALGORITHMS[key]
    for ranks in filter(algorithm.fits, (2, 5, 8)):
        read = read_msccl_xml(text_of(program_of(algorithm, ranks), runtime).encode())
        assert check(read.program).problems == []
        assert read.refused[runtime] == []


def test_a_number_of_ranks_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="halving_doubling is no all_reduce of 6 ranks"):
        _ = program_of(ALGORITHMS["all_reduce", "halving_doubling"], 6)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_algorithms_give_what_mpi_gives(ranks: int, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    found = equal_to_mpi(ranks, tmp_path)
    assert set(found) == {key for key, x in ALGORITHMS.items() if x.fits(ranks)}
    assert all(found.values()), found
