"""Tests of ranks beside each other: their numbers, and clocks that differ."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.importing.trace_jobs import Kernel, Ran, Sent, kineto, write_nsys, xla

from collir.importing.traces.files import read_traces
from collir.importing.traces.ranks import align, ranks_by_name
from collir.importing.traces.trace import RankTrace, Trace, TracedCollective
from collir.importing.values import ReadError

MILLISECOND = 10**6


def training(rank: int, world: int = 2, behind: int = 0) -> Ran:
    """Return the steps of a rank whose clock is so many nanoseconds behind."""
    kernels, sent = list[Kernel](), list[Sent]()
    for step in range(3):
        at = 10**10 + 10 * step * MILLISECOND - behind
        kernels.append(Kernel("gemm", at, at + MILLISECOND))
        start = at + (1 + rank) * MILLISECOND  # later ranks come later
        end = at + (world + 2) * MILLISECOND
        sent.append(Sent("all_reduce", start, start, end, 1000, tuple(range(world))))
    return Ran(rank, world, tuple(kernels), tuple(sent), ())


def written(folder: Path, name: str, value: Any) -> Path:
    """Write JSON to a file."""
    path = folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("behind", [-7.25, 0.0, 3.5])
def test_kineto_clocks(tmp_path: Path, behind: float) -> None:
    """A rank whose clock is seconds off is moved, and it is said."""
    ranks = [training(0), training(1, behind=round(behind * 1e9))]
    trace = read_traces([written(tmp_path, f"{x.rank}.json", kineto(x)) for x in ranks])
    first, second = trace.ranks
    for one, two in zip(first.collectives, second.collectives, strict=True):
        assert abs(one.end - two.end) < 1e-6
        assert abs(two.start - one.start - 1e-3) < 1e-6
    kernels = zip(first.work.spans(), second.work.spans(), strict=True)
    assert all(abs(one.start - two.start) < 1e-6 for one, two in kernels)
    said = [x for x in trace.remarks if "clock" in x]
    assert len(said) == (behind != 0)
    assert all(f"rank 1 is {-1e3 * behind:+.1f} ms" in x for x in said)
    assert abs(second.shift - behind) < 1e-6


def test_base_of_kineto(tmp_path: Path) -> None:
    """Times are behind a base, which files may have each of their own."""
    paths: list[Path] = []
    for rank in range(2):
        base = 10**9 * rank
        text = {**kineto(training(rank, behind=base)), "baseTimeNanoseconds": 10**18 + base}
        paths.append(written(tmp_path, f"{rank}.json", text))
    trace = read_traces(paths)
    first, second = trace.ranks
    assert abs(first.collectives[0].end - second.collectives[0].end) < 1e-6
    assert not any("clock" in x for x in trace.remarks)


def test_hosts_of_xla(tmp_path: Path) -> None:
    """The devices of a host follow those of the one before, and have one clock."""
    paths: list[Path] = []
    for host in (1, 0):
        job = [training(x, behind=5 * 10**9 * host) for x in range(2)]
        paths.append(written(tmp_path, f"host_{host}.trace.json", xla(job, "GPU")))
    trace = read_traces(paths)
    assert [(x.rank, Path(x.file).name[5]) for x in trace.ranks] == [
        (0, "0"), (1, "0"), (2, "1"), (3, "1"),
    ]  # fmt: skip
    [said] = [x for x in trace.remarks if "clock" in x]
    assert said.startswith("the clock of rank 2 to 3 is")
    assert {round(x.shift, 6) for x in trace.ranks} == {0.0, 5.0}


def test_sessions_of_nsys(tmp_path: Path) -> None:
    """Times of Nsight Systems begin when its session does."""
    paths: list[Path] = []
    for host in range(2):
        path = tmp_path / f"node{host}.sqlite"
        write_nsys(path, [training(0, behind=10**9 * host)], with_ranges=True)
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
            row = (10**18 + 10**9 * host,)
            database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", row)
        paths.append(path)
    trace = read_traces(paths)
    assert [x.rank for x in trace.ranks] == [0, 1]
    assert not any("clock" in x for x in trace.remarks)
    assert {round(x.collectives[0].end, 5) for x in trace.ranks} == {10.004}


def test_ranks_of_mpi(tmp_path: Path) -> None:
    """Nsight Systems knows the ranks of MPI."""
    path = tmp_path / "x.sqlite"
    write_nsys(path, [training(0), training(1)], with_ranges=False)
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE MPI_RANKS (globalPid INTEGER, rank INTEGER)")
        rows = [(1 << 24, 5), (2 << 24, 4)]
        database.executemany("INSERT INTO MPI_RANKS VALUES (?, ?)", rows)
    trace = read_traces([path])
    assert [x.rank for x in trace.ranks] == [4, 5]
    starts = [x.collectives[0].start for x in trace.ranks]
    assert starts[0] > starts[1]  # process 2 was rank 4


def test_files_of_one_rank_twice(tmp_path: Path) -> None:
    """A rank is there once."""
    paths = [written(tmp_path, name, kineto(training(0))) for name in ("a.json", "b.json")]
    with pytest.raises(ReadError, match=r"a\.json and .*b\.json are of the same rank 0"):
        read_traces(paths)


def test_missing_ranks(tmp_path: Path) -> None:
    """Ranks that are not there are said."""
    trace = read_traces([written(tmp_path, "x.json", kineto(training(1, world=4)))])
    assert any("1 of 4 ranks are here (1)" in x for x in trace.remarks)


def test_files_of_two_tools(tmp_path: Path) -> None:
    """Traces of two tools are not of one job."""
    paths = [
        written(tmp_path, "a.json", kineto(training(0))),
        written(tmp_path, "b.json", xla([training(1)], "GPU")),
    ]
    with pytest.raises(ReadError, match="torch's profiler and of XLA's profiler"):
        read_traces(paths)


def test_other_files(tmp_path: Path) -> None:
    """A file of something else says what is known; one that is not there is an error of it."""
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(ReadError, match="Nsight Systems"):
        read_traces([path])
    with pytest.raises(FileNotFoundError):
        read_traces([tmp_path / "y.json"])
    with pytest.raises(ReadError, match="no files"):
        read_traces([])


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["rank3.json", "rank1.json"], [3, 1]),
        (["step10_rank0.json", "step10_rank12.json"], [0, 12]),
        (["node2.gz", "node7.gz"], [2, 7]),
        (["b.json", "a.json"], [0, 1]),
        (["x1.json", "x1y.json"], [0, 1]),
        (["worker-10.2.json"], [0]),
    ],
)
def test_ranks_by_name(names: list[str], ranks: list[int]) -> None:
    """Ranks are in the names of files, or they are in order."""
    assert ranks_by_name([Path(x) for x in names]) == ranks


@settings(max_examples=50)
@given(st.floats(-1e4, 1e4), st.lists(st.floats(-1, 1), min_size=1, max_size=9))
def test_ends_by_and_large(apart: float, noise: list[float]) -> None:
    """Clocks are brought together to less than what their ends vary."""
    ranks = [RankTrace(0, "a"), RankTrace(1, "b")]
    for number, each in enumerate(noise):
        for rank, late in zip(ranks, (0.0, apart + 1e-5 * each), strict=True):
            end = 1e5 + number + late
            rank.collectives.append(TracedCollective("all_reduce", "x", 8.0, end, end, end))
    trace = Trace("x", ranks)
    align(trace)
    assert abs(ranks[1].shift + apart) < 1e-3 + 1e-5
    assert len(trace.remarks) == (ranks[1].shift != 0.0)


def test_scattered_ends_are_no_clock() -> None:
    """Ends that are apart by less or more, each time, are of ranks that are late."""
    ranks = [RankTrace(0, "a"), RankTrace(1, "b")]
    for number, late in enumerate((0.0, 0.03, 0.001, 0.02, 0.005)):
        for rank in ranks:
            end = number + late * rank.rank
            rank.collectives.append(TracedCollective("all_reduce", "x", 8.0, end, end, end))
    align(Trace("x", ranks))
    assert ranks[1].shift == 0.0
