"""Chunk programs that are right are proven, and faults are found, by a plain interpreter's word."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.algorithms.chunk_programs import (
    PROGRAMS,
    all_pairs_all_reduce,
    results,
    ring_all_reduce,
    step,
    wanted,
    with_fault,
)

from collir.algorithms.checking import check
from collir.algorithms.program import ChunkBuffer, ChunkProgram, RankProgram, ThreadBlock

IN, OUT = ChunkBuffer.INPUT, ChunkBuffer.OUTPUT


@given(st.sampled_from(PROGRAMS), st.integers(2, 9), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_right_programs_are_proven_and_compute_the_collective(
    make: type[ChunkProgram], ranks: int, seed: int
) -> None:
    program = make(ranks)  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert check(program).problems == []
    assert results(program, random.Random(seed), 8) == wanted(program)


def test_all_injected_faults_are_found() -> None:
    rng, wrong, races = random.Random(1), 0, 0
    for number in range(1500):
        program = with_fault(PROGRAMS[number % len(PROGRAMS)](rng.randint(3, 5)), rng)
        found = check(program)
        ran = [results(program, random.Random(seed), 8) for seed in range(2)]
        is_wrong = any(x != wanted(program) for x in ran)
        wrong += is_wrong
        if is_wrong:
            assert not found.is_right, program
        elif not found.is_right:  # other orders may go wrong, or a chunk is read that has nothing
            races += 1
            assert {"race", "value", "form"} & set(found.counts)
    assert wrong > 900 and races < 300


@pytest.mark.parametrize("ranks", [64, 1024])
def test_many_ranks_are_checked(ranks: int) -> None:
    program = ring_all_reduce(ranks) if ranks < 1000 else all_pairs_all_reduce(48)
    assert check(program).is_right


def two(first: list[ThreadBlock], second: list[ThreadBlock], chunks: int = 1) -> ChunkProgram:
    sizes = {IN: chunks, OUT: chunks}
    ranks = [RankProgram(tuple(first), sizes), RankProgram(tuple(second), sizes)]
    return ChunkProgram("", "all_reduce", ranks, chunks)


def test_more_sends_than_a_connection_holds_are_a_deadlock() -> None:
    steps = [step("send", (IN, n)) for n in range(20)]
    steps += [step("receive_reduce_copy", (IN, n), (OUT, n)) for n in range(20)]
    program = two([ThreadBlock(0, tuple(steps), 1, 1)], [ThreadBlock(0, tuple(steps), 0, 0)], 20)
    assert check(program, 20).is_right
    found = check(program)
    assert set(found.counts) == {"deadlock"}
    assert found.problems[0].message == (
        "rank 0, block 0, step 8 (send) waits for ever: 8 messages to rank 1 on channel 0 are not "
        "received"
    )


def test_blocks_that_do_not_wait_for_each_other_are_a_race() -> None:
    exchange = ThreadBlock(
        0, (step("send", (IN, 0)), step("receive_reduce_copy", (IN, 0), (OUT, 0))), 1, 1
    )
    other = ThreadBlock(1, (step("copy", (OUT, 0), (OUT, 0)),))
    back = ThreadBlock(
        0, (step("send", (IN, 0)), step("receive_reduce_copy", (IN, 0), (OUT, 0))), 0, 0
    )
    found = check(two([exchange, other], [back]))
    assert found.counts["race"] and "neither waits for the other" in str(found.problems)


def test_a_reduction_of_the_same_twice_and_of_unlike_chunks_are_named() -> None:
    program = ring_all_reduce(4)
    own = program.ranks[2].blocks[0]
    doubled = (*own.steps[:1], own.steps[0], *own.steps[1:])
    ranks = [*program.ranks]
    ranks[2] = RankProgram((ThreadBlock(0, doubled, own.sends_to, own.receives_from),),
                           program.ranks[2].sizes)  # fmt: skip
    found = check(ChunkProgram("", "all_reduce", ranks, 4))
    assert any("adds chunk" in x.message for x in found.problems)
