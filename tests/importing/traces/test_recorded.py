"""Tests on traces that torch's profiler, its flight recorder and JAX record here."""

from collections import Counter
from collections.abc import Iterator

import pytest
from support.importing.training_traces import (
    DUMPS,
    LAYERS,
    PAUSE,
    RANKS,
    ROWS,
    RUNS,
    STEPS,
    WIDTH,
    training_traces,
)
from support.importing.xla_profiles import DEVICES, xla_profile
from support.importing.xla_profiles import STEPS as XLA_STEPS

from collir.importing.traces.files import is_trace, read_traces
from collir.importing.traces.trace import RankTrace, Trace

BLOCK = 2 * 4 * WIDTH * WIDTH * 4
"""The bytes of the weights of a block."""

SENT = {
    "ddp": {("all_reduce", BLOCK): LAYERS},
    "fsdp": {("all_gather", BLOCK): 2 * LAYERS, ("reduce_scatter", BLOCK): LAYERS},
    "tp": {
        ("all_reduce", ROWS * WIDTH * 4): 2 * LAYERS - 1,  # none for the gradient of the data
        ("all_reduce", BLOCK // 4): 2 * LAYERS,
    },
}
"""The collectives of a step, with the bytes of their buffers."""


@pytest.fixture(scope="session", params=[*RUNS])
def run(request: pytest.FixtureRequest) -> Iterator[tuple[str, Trace]]:
    """Return the name of a run, and its trace."""
    yield request.param, read_traces(training_traces()[request.param])


def test_collectives_of_each_step(run: tuple[str, Trace]) -> None:
    """Each rank has the collectives of its loop, with their bytes, in each step."""
    name, trace = run
    assert trace.world == RANKS and [x.rank for x in trace.ranks] == [*range(RANKS)]
    for rank in trace.ranks:
        assert len(rank.steps) == STEPS
        found = Counter((x.kind, round(x.size)) for x in rank.collectives)
        expected = SENT[RUNS[name].kind]
        assert found == {key: count * STEPS for key, count in expected.items()}


def test_no_collective_ends_before_all_asked_for_it(run: tuple[str, Trace]) -> None:
    """An all_reduce on all ranks ends after the last of them asked for it."""
    name, trace = run
    if RUNS[name].kind != "ddp" or any("clock" in x for x in trace.remarks):
        return
    for sent in zip(*(x.collectives for x in trace.ranks), strict=True):
        assert min(x.end for x in sent) >= max(x.issued for x in sent)


def test_work_of_a_thread_is_counted_once(run: tuple[str, Trace]) -> None:
    """The host computes within its window, and knows its products."""
    for rank in run[1].ranks:
        window = rank.window
        assert 0 < rank.busy.seconds <= window.seconds
        products = {x.text for _, x in rank.work.products}
        width = 4 * WIDTH // (2 if run[0] == "tp" else 1)
        assert f"{ROWS} x {WIDTH} x {width}" in products
        spans = sorted(rank.work.spans(), key=lambda x: x.start)
        assert all(x.end >= x.start for x in spans)


def test_loading_of_data_is_a_mark(run: tuple[str, Trace]) -> None:
    """The waits for data are what the host says it does."""
    name, trace = run
    for rank in trace.ranks:
        loading = [x.seconds for x in rank.marks if "DataLoader" in x.name]
        assert len(loading) == STEPS
        if RUNS[name].slow_data:
            assert min(loading) >= PAUSE


def test_straggler_asks_late() -> None:
    """The rank that sleeps asks for the first collective of a step long after its step began."""
    trace = read_traces(training_traces()["straggler"])
    late = trace.ranks[RUNS["straggler"].straggler or 0]
    for step in late.steps:
        first = min(x.issued for x in late.collectives if x.issued >= step.start)
        assert first - step.start >= PAUSE


def test_flight_recorder() -> None:
    """Dumps have the collectives of all steps, recorded or not, and nothing of their times."""
    paths = training_traces()[DUMPS]
    assert all(map(is_trace, paths))
    trace = read_traces(paths)
    assert [x.rank for x in trace.ranks] == [*range(RANKS)] and not trace.ignored
    assert any("TORCH_NCCL_ENABLE_TIMING" in x for x in trace.remarks)
    assert not any("clock" in x for x in trace.remarks)
    for rank in trace.ranks:
        assert all(x.start == x.end == x.issued for x in rank.collectives)
        count = Counter((x.kind, round(x.size)) for x in rank.collectives)
        warm = STEPS + 2
        ddp = sum(x.kind == "ddp" for x in RUNS.values())
        assert count["all_reduce", BLOCK] >= ddp * warm * LAYERS


def test_xla_on_cpus() -> None:
    """Each forced device is a rank, with an all_reduce in each step."""
    trace = read_traces([xla_profile()])
    assert trace.tool == "XLA's profiler" and len(trace.ranks) == DEVICES
    assert any("sizes of 8 of 8 collectives" in x for x in trace.remarks)
    for rank in trace.ranks:
        assert [x.name for x in rank.steps] == [f"train {x}" for x in range(XLA_STEPS)]
        assert [x.kind for x in rank.collectives] == ["all_reduce"] * XLA_STEPS
        assert len(rank.work) and not any("all-reduce" in x for x in rank.work.names)
        for step, sent in zip(rank.steps, rank.collectives, strict=True):
            assert step.start <= sent.start <= sent.end <= step.end
        assert _is_in_order(rank)


def _is_in_order(rank: RankTrace) -> bool:
    issued = [x.issued for x in rank.collectives]
    return issued == sorted(issued)
