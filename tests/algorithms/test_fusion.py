"""Steps that are fused compute the same, in fewer steps."""

import pytest
from support.algorithms.chunk_programs import PROGRAMS, all_pairs_all_reduce, results, wanted
from support.harness.seeds import fresh

from collir.algorithms.checking import check
from collir.algorithms.chunks import program_of
from collir.algorithms.fusion import fused_program
from collir.algorithms.table import ALGORITHMS

KEYS = sorted(ALGORITHMS)


@pytest.mark.parametrize("key", KEYS, ids="-".join)
def test_fused_algorithms_implement_their_collective(key: tuple[str, str]) -> None:
    for ranks in filter(ALGORITHMS[key].fits, range(2, 10)):
        program = program_of(ALGORITHMS[key], ranks)
        fused = fused_program(program)
        assert check(fused).problems == []
        assert fused.step_count <= program.step_count
        if fused.collective in ("all_reduce", "all_gather") and ranks < 6:
            assert results(fused, fresh(key, ranks), 8) == wanted(fused)


def test_a_ring_passes_on_what_comes_in_one_step() -> None:
    fused = fused_program(program_of(ALGORITHMS["all_reduce", "ring"], 4))
    assert [x.kind for x in fused.ranks[0].blocks[0].steps] == [
        "send", *["receive_reduce_copy_send"] * 3, *["receive_copy_send"] * 2, "receive",
    ]  # fmt: skip


def test_steps_that_are_apart_are_left() -> None:
    for make in PROGRAMS:
        assert fused_program(make(4)) == make(4)
    # Blocks wait for steps of others by their numbers, which stay right.
    assert check(fused_program(all_pairs_all_reduce(5))).problems == []
