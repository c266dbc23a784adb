"""Traces as programs: the same collectives, and the time of the trace."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.importing.predicted_traces import STEP, traced

import collir
from collir.importing.traces.trace import RankTrace, Span, Trace, TracedCollective
from collir.tools.trace_import import import_trace


def grouped(rank: int, step: int, ran: TracedCollective) -> TracedCollective:
    """Return a collective with the ranks of its group: data is 2 nodes, model 2 of each."""
    ranks = (rank % 2, rank % 2 + 2) if ran.size == 4 else (rank // 2 * 2, rank // 2 * 2 + 1)
    return replace(ran, ranks=ranks)


@given(st.dictionaries(st.integers(0, 3), st.floats(1e-5, 0.1), max_size=3))
@settings(max_examples=5)
def test_a_program_takes_as_long_as_its_trace(late: dict[int, float]) -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    trace = traced(simulation, late=late, change=grouped)
    imported = import_trace(trace)
    [again] = collir.simulate(collir.parse(imported.text))
    assert again.time == pytest.approx(imported.measured, rel=0.05)
    assert again.time == pytest.approx(imported.predicted)
    sent = [(x.collective.kind, x.collective.size, x.collective.ranks) for x in again.collectives]
    assert sent == [("all_reduce", 1 << 20, 2)] * 3 + [("all_reduce", 4, 2)]
    assert "level gpu[4]" in imported.text and "a = gpu:2, b = gpu:2" in imported.text
    assert any("fitted to" in x for x in imported.remarks)


def test_more_bandwidth_makes_it_faster() -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    imported = import_trace(traced(simulation, change=grouped))
    module = collir.parse(imported.text.replace("TFLOP/s", "PFLOP/s"))
    [faster] = collir.simulate(module)
    assert faster.time < imported.predicted


def test_what_has_no_bytes_or_no_group_is_left_out_and_said() -> None:
    [simulation] = collir.simulate(collir.parse(STEP))

    def unknown(rank: int, step: int, ran: TracedCollective) -> TracedCollective:
        if ran.size == 4:
            return replace(ran, size=0.0, label="nccl:all_reduce", ranks=(0, 1))
        return replace(ran, ranks=(0, 1, 3)) if rank < 0 else grouped(rank, step, ran)

    imported = import_trace(traced(simulation, change=unknown))
    assert any("1 of nccl:all_reduce, whose bytes" in x for x in imported.remarks)


def test_that_the_ranks_of_collectives_are_not_known_is_said() -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    imported = import_trace(traced(simulation, groups=False))
    assert any(
        "the ranks of 4 collectives: they are taken to be all" in x for x in imported.remarks
    )


def overlapping(computes: float) -> Trace:
    """Return a trace of two collectives of 10 ms that run at the same time, and of computing
    behind them."""
    trace = Trace("a test", [], 4)
    for rank in range(4):
        made = RankTrace(rank, f"rank{rank}.json", steps=[Span("step", 1.0, 1.011 + computes)])
        for at in (1.0, 1.001):
            made.collectives.append(TracedCollective(
                "all_reduce", "all_reduce", 2.0**20, at, at + 0.01, at, "net", (0, 1, 2, 3), 4,
            ))  # fmt: skip
        made.work.add("gemm", 1.011, 1.011 + computes)
        trace.ranks.append(made)
    return trace


def test_computing_is_scaled_in_few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    count, simulate = 0, collir.simulate

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return simulate(*arguments)

    monkeypatch.setattr(collir, "simulate", counted)
    imported = import_trace(overlapping(0.02))
    assert imported.predicted == pytest.approx(imported.measured, rel=1e-3)
    assert any("computing is 0." in x for x in imported.remarks) and count < 10


def test_collectives_that_take_longer_than_the_step_are_said() -> None:
    imported = import_trace(overlapping(0.005))
    assert imported.predicted > imported.measured
    assert any("its collectives alone take longer" in x for x in imported.remarks)


def test_a_trace_without_collectives_is_one_error() -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    trace = traced(simulation, change=lambda rank, step, ran: None)
    with pytest.raises(collir.DiagnosticError, match="no collective of the trace has known bytes"):
        _ = import_trace(trace)
