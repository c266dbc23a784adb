"""Traces beside programs: what happens as predicted is found so, and what is planted is named."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicted_traces import STEP, plain_union, times_of, traced, union
from programs import random_module
from seeds import fresh

import collir
from collir.cost.programs.simulation import Simulation
from collir.importing.traces.compared import Compared
from collir.importing.traces.expected import expected_steps
from collir.importing.traces.trace import Span, TracedCollective

EXAMPLES = Path(__file__).parents[2] / "examples"


def simulation_of(text: str) -> Simulation:
    return collir.simulate(collir.parse(text))[0]


def check_as_predicted(simulation: Simulation) -> None:
    compared = Compared(traced(simulation), simulation)
    assert compared.share_matched == 1.0
    assert not compared.extra and not compared.missing and not compared.sums
    if len(simulation.places) > 1:  # groups of devices at several places run at other times
        return
    assert not compared.late
    for row in compared.collectives:
        assert row.measured == pytest.approx(row.predicted, rel=1e-6, abs=1e-9)
        assert row.waited == pytest.approx(0.0, abs=1e-9)
        assert all(x.complete for x in row.arrivals)
    first = compared.trace.ranks[0].rank
    sends = [x for x in expected_steps(simulation, first) if x.step.sent]
    own = [x for x in compared.collectives if any(0 in y.ran for y in x.arrivals)]
    assert sum(x.times for x in own) == len(sends)
    parts, should = compared.parts[first], compared.predicted_parts
    assert parts.computes == pytest.approx(should.computes, abs=1e-8)
    assert parts.exposed == pytest.approx(should.exposed, abs=1e-8)


def test_a_trace_of_what_was_predicted_is_as_predicted() -> None:
    check_as_predicted(simulation_of(STEP))


@pytest.mark.parametrize("name", ["train", "stages", "towers", "reshard"])
def test_traces_of_examples_are_as_predicted(name: str) -> None:
    for simulation in collir.simulate(collir.parse(EXAMPLES / f"{name}.coll")):
        if simulation.mesh.devices <= 64 and not simulation.timeline.cuts:
            check_as_predicted(simulation)


@pytest.mark.parametrize("seed", range(12))
def test_traces_of_random_programs_are_as_predicted(seed: int) -> None:
    module = random_module(fresh(seed), functions=2, steps=5)
    try:
        simulations = collir.simulate(module)
    except collir.DiagnosticError:
        return  # a mesh that is not placed
    for simulation in simulations:
        is_small = simulation.mesh.devices <= 32 and simulation.time < 1e3  # to tell microseconds
        if is_small and not simulation.timeline.cuts:
            check_as_predicted(simulation)


@given(st.integers(0, 3), st.floats(0.01, 0.5))
def test_a_rank_that_is_late_is_named(rank: int, seconds: float) -> None:
    simulation = simulation_of(STEP)
    compared = Compared(traced(simulation, late={rank: seconds}), simulation)
    [late] = compared.late
    assert late.rank == rank and late.idles == pytest.approx(seconds, rel=0.05)
    assert late.seconds == pytest.approx(seconds, rel=0.01)
    assert compared.share_matched == 1.0


@given(st.integers(0, 100_000))
def test_collectives_in_another_order_are_still_matched(seed: int) -> None:
    simulation, rng = simulation_of(STEP), random.Random(seed)
    trace = traced(simulation)
    for rank in trace.ranks:
        half = len(rank.collectives) // 2
        for part in (rank.collectives[:half], rank.collectives[half:]):
            rng.shuffle(part)
    compared = Compared(trace, simulation)
    assert compared.share_matched == 1.0 and not compared.extra


def test_what_is_not_in_the_program_and_what_did_not_run_is_said() -> None:
    simulation = simulation_of(STEP)

    def other(rank: int, step: int, ran: TracedCollective) -> TracedCollective:
        return replace(ran, kind="all_gather", label="gathers") if ran.size == 4 else ran

    compared = Compared(traced(simulation, change=other), simulation)
    [(label, size, ranks, times, _)] = compared.extra
    assert (label, size, ranks, times) == ("gathers", 4, 2, 1)
    [(step, times)] = compared.missing
    assert step.path == ("%l",) and times == 1
    assert compared.share_matched == pytest.approx(0.75)


def test_the_same_bytes_in_other_parts_are_matched_as_a_sum() -> None:
    simulation = simulation_of(STEP)

    def halved(rank: int, step: int, ran: TracedCollective) -> TracedCollective:
        return replace(ran, size=3 * ran.size) if ran.size > 4 else ran

    count = 0

    def merged(rank: int, step: int, ran: TracedCollective) -> TracedCollective | None:
        nonlocal count
        count += ran.size > 4
        return halved(rank, step, ran) if ran.size == 4 or count % 3 == 0 else None

    compared = Compared(traced(simulation, change=merged), simulation)
    [row] = compared.sums
    assert (row.kind, [*row.axes], row.steps, row.ran) == ("all_reduce", ["model"], 3, 1)
    assert not compared.missing and not compared.extra


def test_groups_that_the_trace_does_not_name_are_those_of_the_mesh() -> None:
    simulation = simulation_of(STEP)
    compared = Compared(traced(simulation, groups=False), simulation)
    assert compared.share_matched == 1.0
    assert {len(x.ran) for row in compared.collectives for x in row.arrivals} == {2}


def test_one_rank_alone_says_nothing_of_waiting() -> None:
    simulation = simulation_of(STEP)
    compared = Compared(traced(simulation, ranks=1), simulation)
    assert compared.share_matched == 1.0 and not compared.late
    assert all(row.last is None and not row.waited for row in compared.collectives)


def test_a_gap_is_found_with_what_the_host_says() -> None:
    simulation = simulation_of(STEP)
    trace = traced(simulation, late=dict.fromkeys(range(4), 0.2))
    for rank in trace.ranks:
        rank.marks = [Span("enumerate(DataLoader)", x.start, x.start + 0.19) for x in rank.steps]
    compared = Compared(trace, simulation)
    assert {x.rank for x in compared.gaps[:4]} == {0, 1, 2, 3} and not compared.late
    assert compared.gaps[0].during == "enumerate(DataLoader)"
    assert compared.gaps[0].seconds == pytest.approx(0.2, rel=0.01)


def test_steps_that_are_not_marked_are_told_by_what_repeats() -> None:
    simulation = simulation_of(STEP)
    trace = traced(simulation, steps=3)
    for rank in trace.ranks:
        rank.steps = []
    compared = Compared(trace, simulation)
    assert compared.count == 3 and compared.share_matched == 1.0
    assert "repeats 3 times" in compared.remarks[-1]


SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda x: (x[0], x[0] + x[1]))
)


@given(SPANS, SPANS, st.integers(0, 60), st.integers(0, 60))
def test_times_are_unions_and_differences(
    a: list[tuple[float, float]], b: list[tuple[float, float]], low: int, high: int
) -> None:
    def points(spans: list[tuple[float, float]]) -> set[float]:
        return {x + 0.5 for start, end in spans for x in range(int(start), int(end))}

    x, y = times_of(a), times_of(b)
    assert union(x) == plain_union(a)
    assert points(union(x.together(y))) == points(a) | points(b)
    assert points(union(x.without(y))) == points(a) - points(b)
    assert x.seconds == len(points(a))
    inside = {p for p in points(a) if low < p < high}
    assert points(union(x.within(low, high))) == (inside if low < high else set())
