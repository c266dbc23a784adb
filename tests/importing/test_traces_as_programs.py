"""Traces as programs: the same collectives, and the time of the trace."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicted_traces import STEP, traced

import collir
from collir.importing.traces.trace import TracedCollective
from collir.tools.trace_import import import_trace

pytest.importorskip("scipy")


def grouped(rank: int, step: int, ran: TracedCollective) -> TracedCollective:
    """Return a collective with the ranks of its group: data is 2 nodes, model 2 of each."""
    ranks = (rank % 2, rank % 2 + 2) if ran.size == 4 else (rank // 2 * 2, rank // 2 * 2 + 1)
    return replace(ran, ranks=ranks)


@given(st.dictionaries(st.integers(0, 3), st.floats(1e-5, 0.1), max_size=3))
@settings(max_examples=15)
def test_a_program_takes_as_long_as_its_trace(late: dict[int, float]) -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    trace = traced(simulation, late=late, change=grouped)
    imported = import_trace(trace)
    [again] = collir.simulate(collir.parse(imported.text))
    assert again.time == pytest.approx(imported.measured, rel=0.05)
    assert again.time == pytest.approx(imported.predicted)
    sent = [(x.collective.kind, x.collective.size, x.collective.ranks) for x in again.collectives]
    assert sent == [("all_reduce", 1 << 20, 2)] * 3 + [("all_reduce", 8, 2)]
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


def test_a_trace_without_collectives_is_one_error() -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    trace = traced(simulation, change=lambda rank, step, ran: None)
    with pytest.raises(collir.DiagnosticError, match="no collective of the trace has known bytes"):
        _ = import_trace(trace)
