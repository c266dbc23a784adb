"""Algorithms that are written as rounds: proven, printed and read, and run on real ranks."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.algorithms.chunk_programs import results, wanted
from support.algorithms.chunks_on_ranks import equal_to_mpi
from support.harness.seeds import fresh

from collir.algorithms.checking import check
from collir.algorithms.chunks import program_of
from collir.algorithms.moves import LocalCopy, turns_of
from collir.algorithms.msccl_xml import text_of
from collir.algorithms.patterns import GroupDigit, GroupShape, Star
from collir.algorithms.table import ALGORITHMS, PIPELINES
from collir.importing.algorithms.msccl_xml import read_msccl_xml

KEYS = sorted(ALGORITHMS)


@pytest.mark.parametrize("key", KEYS, ids="-".join)
def test_every_algorithm_implements_its_collective(key: tuple[str, str]) -> None:
    algorithm = ALGORITHMS[key]
    for ranks in filter(algorithm.fits, range(2, 18)):
        program = program_of(algorithm, ranks)
        assert check(program).problems == []
        if program.collective in ("all_reduce", "all_gather", "all_to_all") and ranks < 8:
            assert results(program, fresh(key, ranks), 8) == wanted(program)


@pytest.mark.parametrize("key", KEYS, ids="-".join)
@pytest.mark.parametrize("runtime", ["rccl", "msccl"])
def test_what_is_printed_is_proven_again(key: tuple[str, str], runtime: str) -> None:
    algorithm = ALGORITHMS[key]
    for ranks in filter(algorithm.fits, (2, 5, 8)):
        read = read_msccl_xml(text_of(program_of(algorithm, ranks), runtime).encode())
        assert check(read.program).problems == []
        unknown = [f"it has no collective '{key[0]}'"] if key[0] in ("gather", "scatter") else []
        assert read.refused[runtime] == (unknown if runtime == "msccl" else [])


def test_a_number_of_ranks_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="and this one has 6: use bruck or ring"):
        _ = program_of(ALGORITHMS["all_gather", "recursive_doubling"], 6)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_algorithms_give_what_mpi_gives(ranks: int, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    found = equal_to_mpi(ranks, tmp_path)
    assert set(found) == {key for key, x in ALGORITHMS.items() if x.fits(ranks)}
    assert all(found.values()), found


SHAPES = st.lists(st.tuples(st.integers(2, 5), st.integers(0, 2)), min_size=1, max_size=3).map(
    lambda digits: tuple(GroupDigit(*digit) for digit in digits)
)


@settings(max_examples=30)
@given(digits=SHAPES, wired=st.frozensets(st.integers(0, 2)), data=st.data())
def test_algorithms_are_right_on_groups_of_any_shape(
    digits: tuple[GroupDigit, ...], wired: frozenset[int], data: st.DataObject
) -> None:
    """The digits may be on levels in any order, which have links of their own or not."""
    shape = GroupShape(digits, wired)
    fitting = [key for key, algorithm in ALGORITHMS.items() if algorithm.fits(shape.ranks)]
    algorithm = ALGORITHMS[data.draw(st.sampled_from(sorted(fitting)))]
    assert check(program_of(algorithm, shape.ranks, shape)).problems == []


@settings(max_examples=25)
@given(digits=SHAPES, wired=st.frozensets(st.integers(0, 2)))
def test_what_is_priced_is_what_is_sent(
    digits: tuple[GroupDigit, ...], wired: frozenset[int]
) -> None:
    """The largest message of a round is that of the pattern's sender, and counts are those of its
    blocks; in each turn a rank receives one message at most."""
    shape = GroupShape(digits, wired)
    for algorithm in ALGORITHMS.values():
        if not algorithm.fits(shape.ranks):
            continue
        for turn in turns_of(algorithm, shape):
            if isinstance(turn, LocalCopy):
                continue
            sent = {rank: len(turn.sent(rank)) for rank in range(shape.ranks)}
            receivers = [turn.peers[rank] for rank, count in sent.items() if count]
            assert len(receivers) == len(set(receivers))
            pattern, first = turn.round.pattern, turn.number < turn.round.pattern.turns(shape)
            if first and turn.number == 0:
                assert sent[pattern.sender(shape)] == max(sent.values())
            if turn.round.length is not None:
                assert {*sent.values()} == {turn.round.length}
            if counts := turn.round.counts:
                senders = [rank for rank, count in sent.items() if count]
                assert counts(np.array(senders)).tolist() == [sent[rank] for rank in senders]
            elif not isinstance(pattern, Star):
                assert set(sent.values()) <= {0, max(sent.values())}


@settings(max_examples=40)
@given(digits=SHAPES, pieces=st.integers(1, 5), key=st.sampled_from(sorted(PIPELINES)))
def test_pipelines_are_right_for_any_number_of_pieces(
    digits: tuple[GroupDigit, ...], pieces: int, key: tuple[str, str]
) -> None:
    shape = GroupShape(digits, pieces=pieces)
    assert check(program_of(PIPELINES[key], shape.ranks, shape)).problems == []
