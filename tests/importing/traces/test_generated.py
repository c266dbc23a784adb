"""Tests of traces of random jobs: what a tool would write is what is read."""

import gzip
import json
import pickle
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.importing.trace_jobs import (
    HLO_NAMES,
    KINETO_NAMES,
    NCCL_NAMES,
    Ran,
    flight_recorder,
    jobs,
    kernels_of,
    kineto,
    nanoseconds,
    nsys_table,
    times_of,
    write_nsys,
    xla,
)

from collir.importing.traces.files import is_trace, read_traces
from collir.importing.traces.trace import RankTrace, Trace
from collir.importing.traces.trace import TracedCollective as Collective

few = settings(max_examples=25)


@contextmanager
def folder() -> Generator[Path]:
    """Make a folder for an example."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def read_texts(texts: dict[str, str | bytes], is_zipped: bool = False) -> Trace:
    """Return the trace of files."""
    with folder() as made:
        paths: list[Path] = []
        for name, text in texts.items():
            data = text.encode() if isinstance(text, str) else text
            (made / name).write_bytes(gzip.compress(data) if is_zipped else data)
            paths.append(made / name)
        assert all(map(is_trace, paths))
        return read_traces(paths)


def check_ran(rank: RankTrace, ran: Ran) -> None:
    """Compare the kernels and the steps of a rank, and the times of its collectives."""
    assert kernels_of(rank) == [(x.name, x.start, x.end) for x in ran.kernels]
    assert times_of(rank) == [(x.kind, x.start, x.end) for x in ran.sent]
    found = [(nanoseconds(x.start), nanoseconds(x.end)) for x in rank.steps]
    assert found == list(ran.steps)


def check_asked(rank: RankTrace, ran: Ran, issued: Callable[[Collective], float]) -> None:
    """Compare what was asked for: when, and how many bytes."""
    found = [(nanoseconds(issued(x)), x.size, x.group_size) for x in rank.collectives]
    assert found == [(x.issued, x.size, len(x.ranks)) for x in ran.sent]


@few
@given(jobs([*KINETO_NAMES]), st.booleans())
def test_kineto(job: list[Ran], is_zipped: bool) -> None:
    """Torch's profiler on GPUs: kernels with their products, collectives with all they are."""
    texts: dict[str, str | bytes] = {
        f"{x.rank}.json": json.dumps(kineto(x), indent=1) for x in reversed(job)
    }
    trace = read_texts(texts, is_zipped)
    assert trace.world == len(job)
    for rank, ran in zip(trace.ranks, job, strict=True):
        rank = unshifted(rank)
        check_ran(rank, ran)
        check_asked(rank, ran, lambda x: x.issued)
        assert [x.ranks for x in rank.collectives] == [x.ranks for x in ran.sent]
        assert {x.stream for x in rank.collectives} == {"20"}
        products = [x.product for x in ran.kernels if x.product]
        assert [x.text for _, x in rank.work.products] == [
            f"{a} x {b} x {c}" for a, b, c in products
        ]
        assert [x.operations for _, x in rank.work.products] == [
            2.0 * a * b * c for a, b, c in products
        ]


def unshifted(rank: RankTrace) -> RankTrace:
    """Return what ran, with times as they were written: random jobs look as if clocks differed."""
    from collir.importing.traces.ranks import shift

    shift(rank, -rank.shift)
    return rank


@few
@given(jobs([*KINETO_NAMES]), st.booleans(), st.sampled_from(["pickle", "json"]))
def test_flight_recorder(job: list[Ran], is_timed: bool, form: str) -> None:
    """Torch's flight recorder: what was asked for, and how long it ran if that is known."""
    texts: dict[str, str | bytes] = {}
    for ran in job:
        dump = flight_recorder(ran, is_timed)
        data = pickle.dumps(dump, protocol=2) if form == "pickle" else json.dumps(dump)
        texts[f"nccl_trace_rank_{ran.rank}"] = data
    trace = read_texts(texts)
    first = min(x.issued for ran in job for x in ran.sent)
    assert trace.world == len(job)
    for rank, ran in zip(trace.ranks, job, strict=True):
        check_asked(rank, ran, lambda x: x.issued + first * 1e-9)
        for traced, sent in zip(rank.collectives, ran.sent, strict=True):
            assert traced.start >= traced.issued
            seconds = (sent.end - sent.start) * 1e-9 if is_timed else 0.0
            assert abs(traced.seconds - seconds) < 1e-9
    assert any("is not known" in x for x in trace.remarks) != is_timed


@few
@given(jobs([*NCCL_NAMES]), st.booleans())
def test_nsys_database(job: list[Ran], with_ranges: bool) -> None:
    """Nsight Systems: kernels of several processes, with the bytes that NCCL says in ranges."""
    with folder() as made:
        write_nsys(made / "profile.sqlite", job, with_ranges)
        assert is_trace(made / "profile.sqlite")
        trace = read_traces([made / "profile.sqlite"])
        assert [*made.iterdir()] == [made / "profile.sqlite"]
    for rank, ran in zip(trace.ranks, job, strict=True):
        check_ran(rank, ran)
        if with_ranges:
            check_asked(rank, ran, lambda x: x.issued)
            assert trace.world == len(job)
        assert [x.name for x in rank.marks] == ["load data"]
    assert any("sizes" in x for x in trace.remarks) != with_ranges


@few
@given(
    jobs([*NCCL_NAMES]), st.sampled_from(["ns", "us", "ms", "sec"]), st.booleans(), st.booleans()
)
def test_nsys_table(job: list[Ran], unit: str, with_notes: bool, is_zipped: bool) -> None:
    """The table of Nsight Systems, in any unit, with names in quotes and lines before it."""
    trace = read_texts({"x_cuda_gpu_trace.csv": nsys_table(job, unit, with_notes)}, is_zipped)
    assert not trace.ignored
    for rank, ran in zip(trace.ranks, job, strict=True):
        assert kernels_of(rank) == [(x.name, x.start, x.end) for x in ran.kernels]
        assert times_of(rank) == [(x.kind, x.start, x.end) for x in ran.sent]


@few
@given(jobs([*HLO_NAMES], dtypes=["Float"]), st.sampled_from(["GPU", "TPU"]))
def test_xla(job: list[Ran], device: str) -> None:
    """JAX on GPUs and TPUs: a device is a rank, and async collectives last until they are done."""
    trace = read_texts({"host.trace.json.gz": json.dumps(xla(job, device))}, is_zipped=True)
    assert len(trace.ranks) == len(job)
    for rank, ran in zip(trace.ranks, job, strict=True):
        check_ran(rank, ran)
        if device == "TPU":
            assert [x.size for x in rank.collectives] == [x.size for x in ran.sent]
            assert {x.group_size for x in rank.collectives} == {len(job)}
            assert len(rank.waits) == (len(ran.sent) + 1) // 2


@pytest.mark.parametrize("name", ["rank_1.json", "step3_rank1.json", "x.rank1.pt.trace.json"])
def test_rank_of_a_name(name: str) -> None:
    """A file that does not say its rank has it in its name."""
    ran = Ran(1, 2, (), (), ((0, 1000),))
    text = kineto(ran)
    del text["distributedInfo"]
    trace = read_texts({name: json.dumps(text)})
    assert [x.rank for x in trace.ranks] == [1]
    assert any("from their names" in x for x in trace.remarks)
