"""Tests of the programs of P² (MLSys 2022) against published numbers, and of their semantics."""

from collections import Counter
from itertools import product
from math import prod

import numpy as np
import pytest
from p2.dsl import (
    CollectiveKind,
    DeviceGroups,
    Instruction,
    Parallel,
    forms,
    groups,
)
from p2.enumerate import (
    Enumerator,
    RuleReading,
    instructions,
    programs,
    shrunk_hierarchy,
)
from p2.semantics import Chunks
from support.harness.seeds import fresh
from support.semantics import chunks as oracle

FLAT = {1: 1, 2: 2}
TWO_LEVELS = {
    RuleReading.LITERAL: {1: 1, 2: 4, 3: 24, 4: 42, 5: 22},
    RuleReading.MASTER_ALL_REDUCE: {1: 1, 2: 4, 3: 20, 4: 22},
    RuleReading.NO_MASTER: {1: 1, 2: 4, 3: 16, 4: 18},
}


def lengths(hierarchy: tuple[int, ...], reading: RuleReading, size: int = 5) -> dict[int, int]:
    """Return the number of programs of each length; check that they are distinct and sorted."""
    listed = list(programs(hierarchy, size, reading))
    assert listed == sorted(listed, key=len)
    assert len(set(listed)) == len(listed)
    return dict(Counter(map(len, listed)))


@pytest.mark.parametrize("reading", RuleReading)
@pytest.mark.parametrize("hierarchy", [(1, 2), (1, 16), (1, 1, 4), (1, 6, 1)], ids=str)
def test_one_effective_level(hierarchy: tuple[int, ...], reading: RuleReading) -> None:
    assert lengths(hierarchy, reading) == FLAT


@pytest.mark.parametrize("reading", RuleReading)
@pytest.mark.parametrize(
    "hierarchy", [(1, 2, 2), (1, 2, 3), (1, 5, 2), (1, 16, 2), (1, 2, 16), (1, 3, 1, 4)], ids=str
)
def test_two_levels_whatever_the_factors(hierarchy: tuple[int, ...], reading: RuleReading) -> None:
    assert lengths(hierarchy, reading) == TWO_LEVELS[reading]


def test_totals_of_two_levels() -> None:
    totals = [sum(TWO_LEVELS[reading].values()) for reading in RuleReading]
    assert totals == [93, 47, 39]


@pytest.mark.parametrize("factors", [(2, 2, 2), (2, 3, 2), (2, 2, 4)], ids=str)
def test_three_levels(factors: tuple[int, ...]) -> None:
    counts = lengths((1, *factors), RuleReading.MASTER_ALL_REDUCE)
    assert counts == {1: 1, 2: 6, 3: 50, 4: 205, 5: 563}
    assert sum(counts.values()) == 825


@pytest.mark.parametrize("reading", RuleReading)
def test_nothing_crosses_the_root(reading: RuleReading) -> None:
    assert lengths((2, 2), reading) == {}


def test_one_device_has_nothing_to_do() -> None:
    assert list(programs((1, 1))) == [()]


@pytest.mark.parametrize("reading", RuleReading)
def test_counting_is_as_listing(reading: RuleReading) -> None:
    enumerator = Enumerator((1, 2, 2, 2), reading)
    listed = Counter(map(len, enumerator.programs(4)))
    assert [enumerator.count(length) for length in range(5)] == [listed[n] for n in range(5)]


def test_no_program_is_longer_than_the_longest() -> None:
    """Check that the language is finite, by the number of programs of each length."""
    two, three = Enumerator((1, 2, 2), RuleReading.LITERAL), Enumerator((1, 2, 2, 2))
    assert [two.count(n) for n in range(6, 12)] == [0] * 6
    assert [three.count(n) for n in range(6, 12)] == [537, *[0] * 5]


@pytest.mark.parametrize("reading", RuleReading)
def test_instructions_differ_in_groups_or_collective(reading: RuleReading) -> None:
    hierarchy = (1, 2, 1, 3, 2)
    listed = instructions(hierarchy, reading)
    lowered = {(s.collective, groups(hierarchy, s.slice, s.form)) for s in listed}
    assert len(lowered) == len(listed)
    expressible = {
        (collective, groups(hierarchy, level, form))
        for level in range(len(hierarchy))
        for form in forms(level)
        for collective in CollectiveKind
    }
    if reading is RuleReading.LITERAL:
        assert lowered == {(c, g) for c, g in expressible if g}
    else:
        assert lowered < expressible


def as_matrices(chunks: Chunks, state: tuple[int, ...]) -> oracle.ChunkState:
    """Return a state in the form of the oracle."""
    k = chunks.devices
    matrices = np.zeros((k, k, k), dtype=np.bool_)
    for device, number in enumerate(state):
        bits = chunks.bits(number)
        for row, column in product(range(k), repeat=2):
            matrices[device, row, column] = bits >> row * k + column & 1
    return matrices


def by_oracle(
    state: oracle.ChunkState, collective: CollectiveKind, of: DeviceGroups
) -> oracle.ChunkState | None:
    try:
        return oracle.step(state, collective.value, of)
    except oracle.ChunkError:
        return None


@pytest.mark.parametrize("hierarchy", [(1, 4), (1, 2, 2), (1, 3, 2), (1, 2, 2, 2)], ids=str)
def test_states_are_those_of_the_oracle(hierarchy: tuple[int, ...]) -> None:
    """Check every instruction on every state of random walks; invalid programs are included."""
    rng = fresh(2022)
    chunks = Chunks(prod(hierarchy))
    steps = [
        (s.collective, groups(hierarchy, s.slice, s.form))
        for s in instructions(hierarchy, RuleReading.LITERAL)
    ]
    seen: set[tuple[int, ...]] = set()
    for _ in range(40):
        state = chunks.initial()
        while state not in seen:
            seen.add(state)
            matrices = as_matrices(chunks, state)
            following: list[tuple[int, ...]] = []
            for collective, of in steps:
                after = chunks.step(state, collective, of)
                expected = by_oracle(matrices, collective, of)
                assert (after is None) == (expected is None)
                if after is not None and expected is not None:
                    assert np.array_equal(as_matrices(chunks, after), expected)
                    following.append(after)
            if not following:
                break
            state = rng.choice(following)
    start, goal = (as_matrices(chunks, s) for s in (chunks.initial(), chunks.goal()))
    assert np.array_equal(start, oracle.initial(chunks.devices))
    assert np.array_equal(goal, oracle.goal(chunks.devices))


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (2, 4), (3, 24)])
def test_programs_are_what_the_oracle_finds_by_trying_all(size: int, expected: int) -> None:
    """Check the programs against a breadth-first search over all instructions with the oracle."""
    hierarchy = (1, 2, 2)
    steps = {
        (collective, of)
        for level, collective in product(range(3), CollectiveKind)
        for form in forms(level)
        if (of := groups(hierarchy, level, form))
    }
    frontier = [((), oracle.initial(4))]
    for _ in range(size):
        frontier = [
            ((*program, step), after)
            for program, state in frontier
            for step in steps
            if (after := by_oracle(state, *step)) is not None
        ]
    goal = oracle.goal(4)
    expected_programs = {program for program, state in frontier if np.array_equal(state, goal)}
    listed = {
        tuple((s.collective, groups(hierarchy, s.slice, s.form)) for s in program)
        for program in programs(hierarchy, size, RuleReading.LITERAL)
        if len(program) == size
    }
    assert expected_programs == listed
    assert len(expected_programs) == expected


SHRUNK = [(1, 4, 4), (1, 5, 6), (1, 7, 2), (1, 2, 8), (1, 4, 2, 2), (1, 2, 4, 3), (1, 2, 2, 5)]


@pytest.mark.turns
@pytest.mark.parametrize("hierarchy", SHRUNK, ids=str)
def test_smaller_factors_have_the_same_programs(hierarchy: tuple[int, ...]) -> None:
    assert shrunk_hierarchy(hierarchy) != hierarchy
    for reading in RuleReading:
        shrunk = list(programs(shrunk_hierarchy(hierarchy), 5, reading))
        assert shrunk == list(programs(hierarchy, 5, reading))


def test_the_programs_of_two_nodes_start_with_the_flat_one() -> None:
    listed = programs((1, 2, 16))
    assert [str(step) for step in next(listed)] == ["(0, InsideGroup, all_reduce)"]
    hierarchical = (
        Instruction(1, next(forms(1)), CollectiveKind.REDUCE_SCATTER),
        Instruction(1, Parallel(0), CollectiveKind.ALL_REDUCE),
        Instruction(1, next(forms(1)), CollectiveKind.ALL_GATHER),
    )
    assert hierarchical in listed
