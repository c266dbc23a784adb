"""Traces beside programs: what happens as predicted is found so, and what is planted is named."""

import random
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness.seeds import fresh
from support.importing.predicted_traces import STEP, plain_union, times_of, traced, union
from support.programs.collectives import random_module

import collir
from collir.cost.programs.simulation import Simulation
from collir.importing.traces.compared import Compared
from collir.importing.traces.expected import expected_steps
from collir.importing.traces.matching import matching
from collir.importing.traces.trace import KernelWork, Span, TracedCollective
from collir.tools.trace_output import report

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
    assert should.idles == 0 or should.idles > 1e-9 * should.total


def test_a_trace_of_what_was_predicted_is_as_predicted() -> None:
    simulation = simulation_of(STEP)
    check_as_predicted(simulation)
    compared = Compared(traced(simulation), simulation)
    assert all(row.last is None for row in compared.collectives)


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


def test_what_only_another_rank_or_a_later_step_has_is_said() -> None:
    simulation = simulation_of(STEP)

    def other(rank: int, step: int, ran: TracedCollective) -> TracedCollective:
        if (rank, step) == (2, 1) and ran.size == 4:
            return replace(ran, kind="all_gather", label="gathers")
        return ran

    compared = Compared(traced(simulation, change=other), simulation)
    [(label, size, ranks, times, _)] = compared.extra
    assert (label, size, ranks, times) == ("gathers", 4, 2, 1)


def test_a_collective_that_the_first_step_has_not_is_counted_in_the_next() -> None:
    simulation = simulation_of(STEP)

    def skipped(rank: int, step: int, ran: TracedCollective) -> TracedCollective | None:
        return None if step == 0 and ran.size == 4 else ran

    compared = Compared(traced(simulation, steps=3, change=skipped), simulation)
    [row] = [x for x in compared.collectives if x.path == ("%l",)]
    assert row.times == 1 and row.measured == pytest.approx(row.predicted, rel=1e-6)


def test_waiting_at_the_same_time_counts_once() -> None:
    simulation = simulation_of(STEP)
    trace = traced(simulation, late={3: 0.1})
    for rank in trace.ranks:  # all collectives of a step are asked for where the first one is
        first = [x for x in rank.collectives if x.size > 4]
        for number, own in enumerate(first):
            own.start = first[number // 3 * 3].start
    [late] = Compared(trace, simulation).late
    assert late.rank == 3 and late.seconds == pytest.approx(0.1, rel=0.01)


def test_a_trace_that_takes_no_time_is_reported() -> None:
    simulation = simulation_of(STEP)
    trace = traced(simulation, steps=1)
    for rank in trace.ranks:
        rank.steps, rank.work = [], KernelWork()
        rank.collectives = [replace(x, start=1.0, end=1.0, issued=1.0) for x in rank.collectives]
    compared = Compared(trace, simulation)
    assert not compared.late and not compared.gaps and report(compared)


KINDS = """
machine @mixed {
  device fast { compute f32 = 20 TFLOP/s; memory = 40 GB @ 1 TB/s }
  device slow { compute f32 = 10 TFLOP/s; memory = 40 GB @ 1 TB/s }
  level node[4] { port = 25 GB/s, latency = 10 us, devices = [1 fast, 3 slow] }
  level gpu[2]  { port = 300 GB/s, latency = 3 us }
}
mesh @m on @mixed { data = node:4 * gpu:2 }
func @step(%x: f32[64@data]) -> f32[64@data] on @m {
  %y = repeat 3 carry(%h = %x) {
    %f = compute %h flops 20000000000
    yield %f
  }
  return %y
}
"""


def test_a_rank_is_expected_to_compute_as_fast_as_its_kind_of_device() -> None:
    simulation = simulation_of(KINDS)
    for rank in range(8):
        steps = [x for x in expected_steps(simulation, rank) if x.kind == "compute"]
        assert [x.path for x in steps] == [("%y", "%f")] * 3
        seconds = 1e-3 if rank < 2 else 2e-3
        assert all(x.end - x.start == pytest.approx(seconds) for x in steps)


STAGES = """
machine @box {
  device { compute f32 = 10 TFLOP/s }
  level node[2] { port = 25 GB/s, latency = 10 us }
  level gpu[2]  { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { stage = node:2, model = gpu:2 }
func @step(%x: f32[4096] root(stage)) -> f32[4096] root(stage) on @m {
  %y = repeat 96 carry(%h = %x) {
    %f = compute %h flops 6000000000
    %s = send %f over stage from 0 to 1
    %g = compute %s flops 6000000000
    %b = send %g over stage from 1 to 0
    yield %b
  }
  return %y
}
"""


@pytest.mark.parametrize("rank", range(4))
def test_iterations_that_are_not_simulated_are_expected_too(rank: int) -> None:
    simulation = simulation_of(STAGES)
    assert simulation.timeline.cuts
    steps = [*expected_steps(simulation, rank)]
    own = "%f" if rank < 2 else "%g"
    computes = [x for x in steps if x.path == ("%y", own)]
    assert len(computes) == 96 and len(steps) == 3 * 96
    assert computes[-1].end <= simulation.time
    for earlier, later in pairwise(computes):
        assert later.start - earlier.start == pytest.approx(simulation.time / 96, rel=1e-3)


def test_what_only_the_root_computes_is_not_expected_elsewhere() -> None:
    simulation = simulation_of(
        STEP.partition("func")[0]
        + "func @step(%x: f32[4096] root(data)) -> f32[4096] root(data) on @m {\n"
        "  %f = compute %x flops 6000000000\n  return %f\n}\n"
    )
    assert [bool([*expected_steps(simulation, rank)]) for rank in range(4)] == [1, 1, 0, 0]


def test_many_collectives_of_many_sizes_are_matched_in_time() -> None:
    simulation = simulation_of(STEP)
    [first, *_] = [x for x in expected_steps(simulation, 0) if x.step.sent]
    sent = first.step.sent
    assert sent is not None
    count = 20_000
    sizes = [4.0 * (1 + x * 7919 % count) for x in range(count)]
    steps = [
        replace(first, step=replace(first.step, does=replace(sent, collective=replace(
            sent.collective, size=size
        ))))
        for size in sizes
    ]  # fmt: skip
    ran = [
        TracedCollective("all_reduce", "all_reduce", size, 0.0, 0.0, 0.0)
        for size in reversed(sizes)
    ]
    start = time.process_time()
    found = matching(steps, ran, simulation.mesh)
    assert time.process_time() - start < 10
    assert found.pairs == [(x, count - 1 - x) for x in range(count)]


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
