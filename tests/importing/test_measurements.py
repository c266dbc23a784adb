"""Tests of readers of measured times: what is read is what was measured, or is refused."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.importing.benchmark_outputs import (
    OSU_TITLES,
    PER_RANK,
    PREFIXES,
    VERSIONS,
    Truth,
    imb_lines,
    logs,
    nccl_json,
    nccl_lines,
    osu_lines,
    printed,
    truths,
)

from collir.importing.measurements import files
from collir.importing.measurements.logs import clean
from collir.importing.measurements.logs import stream as logs_stream
from collir.importing.measurements.names import kind_of_file
from collir.importing.measurements.tables import MeasuredTable
from collir.importing.values import ReadError

KINDS = tuple(OSU_TITLES)
few = settings(max_examples=15)


def read(text: str, kind: str | None = None, file: str = "") -> list[MeasuredTable]:
    """Return the tables of a text as commands read it."""
    return list(files.read(text.replace("\r\n", "\n"), kind, file).tables)


@few
@given(st.data(), truths(KINDS), st.sampled_from(VERSIONS))
def test_what_nccl_tests_measured_is_read(data: st.DataObject, truth: Truth, version: str) -> None:
    lines = nccl_lines(truth, version)
    text, numbers = data.draw(logs(lines))
    (table,) = read(text, truth.kind)
    first = next(at for at, line in enumerate(lines) if "minBytes" in line)
    assert table.place.line == numbers[first]
    assert table.hosts == (truth.ranks,) * truth.hosts
    expected = [
        (truth.kind, size, pytest.approx(printed(time) * 1e-6))
        for size, times in truth.times
        for time in times
    ]
    assert [(row.kind, row.size, row.seconds) for row in table.rows] == expected
    rows = [number for line, number in zip(lines, numbers, strict=True) if "float" in line]
    assert [row.place.line for row in table.rows] == [number for number in rows for _ in range(2)]


@few
@given(truths(KINDS))
def test_the_json_of_nccl_tests_is_read(truth: Truth) -> None:
    (table,) = read(nccl_json(truth), truth.kind)
    assert table.hosts == (truth.ranks,) * truth.hosts
    assert [(row.kind, row.size, row.seconds) for row in table.rows] == [
        (truth.kind, size, pytest.approx(time * 1e-6))
        for size, times in truth.times
        for time in times
    ]


@few
@given(
    st.data(), truths(KINDS), st.sampled_from(["5.9", "6.2 full", "7.4 cuda full", "7.3 pasted"])
)
def test_what_the_osu_benchmarks_measured_is_read(
    data: st.DataObject, truth: Truth, version: str
) -> None:
    text, _ = data.draw(logs(osu_lines(truth, version)))
    (table,) = read(text)
    assert [(row.kind, row.size, row.seconds, row.per_rank) for row in table.rows] == [
        (truth.kind, size, pytest.approx(times[0] * 1e-6), truth.kind in PER_RANK)
        for size, times in truth.times
    ]


@few
@given(st.data(), truths(KINDS))
def test_what_the_intel_benchmarks_measured_is_read(data: st.DataObject, truth: Truth) -> None:
    text, _ = data.draw(logs(imb_lines(truth)))
    (table,) = read(text)
    assert table.ranks == truth.all_ranks
    assert [(row.kind, row.size, row.seconds, row.per_rank) for row in table.rows] == [
        (truth.kind, size, pytest.approx(times[0] * 1e-6), truth.kind in PER_RANK)
        for size, times in truth.times
    ]


@few
@given(st.data(), truths(KINDS), st.sampled_from(VERSIONS))
def test_the_collective_is_told_by_the_columns_or_asked_for(
    data: st.DataObject, truth: Truth, version: str
) -> None:
    lines = [line for line in nccl_lines(truth, version) if "_perf" not in line]
    text, _ = data.draw(logs(lines))
    try:
        (table,) = read(text)
    except ReadError as error:
        assert "it is not said which collective this is" in str(error)
    else:
        assert {row.kind for row in table.rows} == {truth.kind}


@few
@given(st.data(), truths(KINDS))
def test_lines_that_messages_cut_in_two_are_joined(data: st.DataObject, truth: Truth) -> None:
    prefix = data.draw(st.sampled_from(["", "[0] ", "[1,0]<stdout>:"]))
    time = data.draw(st.sampled_from(["", "[2025-06-01 12:00:00] "]))
    message = f"{prefix}{time}node-0:900:912 [0] NCCL INFO 4096 Bytes -> Algo 0 proto 0"
    written: list[str] = []
    for line in nccl_lines(truth, "wrong"):
        if "float" in line and data.draw(st.booleans()):
            cells = line.split()
            at, then = sorted(
                data.draw(st.lists(st.integers(5, len(cells)), min_size=2, max_size=2))
            )
            for part in (cells[:at], cells[at:then], cells[then:]):
                written += [f"{prefix}{'  '.join(part)} {message}", message]
        else:
            written.append(prefix + line)
    (table,) = read("\n".join(written), truth.kind)
    assert [row.seconds for row in table.rows] == [
        pytest.approx(printed(time) * 1e-6) for _, times in truth.times for time in times
    ]


@few
@given(st.data(), st.lists(truths(KINDS), min_size=2, max_size=2))
def test_runs_at_the_same_time_are_told_apart_by_their_prefixes(
    data: st.DataObject, both: list[Truth]
) -> None:
    prefixes = data.draw(st.permutations([p for p in PREFIXES if p.strip(" >")]))
    one, other, *_ = (logs_stream(clean(prefix)) for prefix in prefixes)
    assume(one != other)
    left = [
        [prefix + line for line in nccl_lines(truth, "new")]
        for truth, prefix in zip(both, prefixes[:2], strict=True)
    ]
    written: list[str] = []
    while any(left):
        written.append(data.draw(st.sampled_from([lines for lines in left if lines])).pop(0))
    tables = read("\n".join(written))
    assert sorted((table.hosts, len(table.rows), table.rows[0].kind) for table in tables) == sorted(
        ((truth.ranks,) * truth.hosts, 2 * len(truth.times), truth.kind) for truth in both
    )


@few
@given(st.data(), truths(KINDS), st.sampled_from(VERSIONS))
def test_of_a_file_that_is_cut_off_what_is_whole_is_read(
    data: st.DataObject, truth: Truth, version: str
) -> None:
    text = "\n".join(nccl_lines(truth, version))
    try:
        tables = files.read(text[: data.draw(st.integers(0, len(text)))], truth.kind)
    except ReadError:
        return
    (table,) = tables.tables
    told = {(size, printed(time) * 1e-6) for size, times in truth.times for time in times}
    assert {(row.size, row.seconds) for row in table.rows} <= told
    assert len(table.rows) == 2 * len(truth.times) or tables.remarks


@few
@given(st.data(), truths(KINDS), st.sampled_from(VERSIONS))
def test_ranks_that_are_not_listed_are_told_or_asked_for(
    data: st.DataObject, truth: Truth, version: str
) -> None:
    lines = nccl_lines(truth, version)
    at_end = data.draw(st.integers(0, truth.all_ranks - 1))
    left_out = data.draw(st.sets(st.integers(0, truth.all_ranks - 1), min_size=1))
    left_out |= set(range(at_end, truth.all_ranks)) if at_end else set()
    written: list[str] = []
    for line in lines:
        listed = not any(f"Rank {at:2} " in line for at in left_out)
        written.append(line if listed else "...")
    try:
        (table,) = read("\n".join(written), truth.kind)
    except ReadError as error:
        assert "busbw / algbw" in str(error)
    else:
        assert table.hosts in ((), (truth.ranks,) * truth.hosts)
        assert table.ranks in (0, truth.all_ranks)


@few
@given(st.data(), truths(KINDS), st.integers(2, 4), st.booleans())
def test_runs_that_are_printed_into_each_other_are_told_or_refused(
    data: st.DataObject, truth: Truth, runs: int, one_host: bool
) -> None:
    lines = nccl_lines(truth, "wrong")
    written: list[str] = []
    for line in lines:
        for run in range(runs):
            written.append(line.replace("node-0", f"other-{0 if one_host else run}"))
            written[-1] = written[-1].replace("Pid    ", f"Pid {run}")
    try:
        (table,) = read("\n".join(written), truth.kind)
    except ReadError as error:
        assert "rank 0 is listed" in str(error)
    else:
        assert truth.hosts == 1 and not one_host
        assert table.hosts == (truth.ranks,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("size(B),time(us)\n1024,5\n", [("all_reduce", 1024, 5e-6, 2)]),
        ('\ufeff"size(B)","time(us)"\n"1024","5"\n', [("all_reduce", 1024, 5e-6, 2)]),
        ("\n\nbytes,algbw,time_ms\n1024,3,5\n", [("all_reduce", 1024, 5e-3, 4)]),
        (
            "size,count,oop_time_us,oop_wrong,ip_time_us,ip_wrong\n8,2,5,0,6,1\n16,4,5,0,6,0\n",
            [("all_reduce", 8, 5e-6, 2), ("all_reduce", 16, 5e-6, 3), ("all_reduce", 16, 6e-6, 3)],
        ),
        ("type,Size (B),Avg Latency(us),Min Latency(us)\nf,8,5,4\n", [("all_reduce", 8, 5e-6, 2)]),
        (
            "operation,gpus,size,time(us)\nall_reduce,4,8,5\nalltoall,4,8,6\nsendrecv,4,8,7\n",
            [("all_reduce", 8, 5e-6, 2), ("all_to_all", 8, 6e-6, 3)],
        ),
    ],
)
def test_columns_of_csv_are_found_by_their_names(
    text: str, expected: list[tuple[str, int, float, int]]
) -> None:
    (table,) = read(text, None, "r1_allreduce.csv")
    assert [(r.kind, r.size, r.seconds, r.place.line) for r in table.rows] == [
        (kind, size, pytest.approx(seconds), line) for kind, size, seconds, line in expected
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("runs/all_reduce_h100_1n.txt", "all_reduce"),
        ("r17_allgather.csv", "all_gather"),
        ("AllReduce8.log", "all_reduce"),
        ("ncclReduceScatter.txt", "reduce_scatter"),
        ("osu_reduce-scatter_block.out", "reduce_scatter"),
        ("alltoall-16.out", "all_to_all"),
        ("alltoallv.out", ""),
        ("sendrecv_perf.txt", ""),
        ("bcast.log", "broadcast"),
        ("nccl-tests.txt", None),
        ("iallreduce.txt", None),
        ("gathered.txt", None),
        ("all_reduce_and_all_gather.log", None),
    ],
)
def test_names_of_files_name_collectives(name: str, kind: str | None) -> None:
    assert kind_of_file(name) == kind


def test_a_files_name_counts_less_than_the_columns() -> None:
    truth = Truth("all_reduce", 1, 8, ((1 << 30, (4000.0, 4000.0)),))
    text = "\n".join(nccl_lines(truth, "wrong"))
    (table,) = read(text, None, "reduce.txt")
    assert table.rows[0].kind == "all_reduce"


def test_a_summary_behind_a_run_is_no_second_run() -> None:
    truth = Truth("all_reduce", 1, 8, ((1 << 30, (4000.0, 4000.0)),))
    (table,) = read("\n".join([*nccl_lines(truth, "new"), "Avg bus bandwidth    : 12.5"]))
    assert (table.hosts, len(table.rows)) == ((8,), 2)


def test_an_incomplete_list_of_ranks_does_not_hide_the_collective() -> None:
    truth = Truth("all_reduce", 2, 8, ((1 << 30, (4000.0, 4000.0)),))
    lines = [line for line in nccl_lines(truth, "wrong") if "node-1" not in line]
    (table,) = read("\n".join(lines), None, "all_reduce.txt")
    assert (table.rows[0].kind, table.hosts, table.ranks) == ("all_reduce", (), 16)


def test_lines_of_a_build_name_no_collective() -> None:
    truth = Truth("all_reduce", 1, 8, ((1 << 30, (4000.0, 4000.0)),))
    build = [f"Linking  {name}.o > ../build/{name}_perf" for name in ("all_reduce", "broadcast")]
    command = "$ ./build/all_reduce_perf -b 1G -e 1G -g 8"
    (table,) = read("\n".join([*build, command, *nccl_lines(truth, "error")]))
    assert table.rows[0].kind == "all_reduce"


def test_a_run_that_failed_is_left_out() -> None:
    truth = Truth("all_reduce", 1, 2, ((1 << 30, (4000.0, 4000.0)),))
    lines = nccl_lines(truth, "wrong")
    failed = [*(line for line in lines if "Rank" in line or "nThread" in line), "Test NCCL failure"]
    (table,) = read("\n".join([*failed, *lines]), "all_reduce")
    assert (table.hosts, len(table.rows)) == ((2,), 2)
    tables = files.read("\n".join([*lines, *failed]), "all_reduce")
    assert len(tables.tables) == 1
    assert any("has no table" in remark.message for remark in tables.remarks)


def test_a_log_of_several_benchmarks_is_read() -> None:
    truth = Truth("all_reduce", 1, 2, ((1 << 30, (4000.0, 4000.0)),))
    lines = [*nccl_lines(truth, "new"), *osu_lines(truth, "7.4 full"), *imb_lines(truth)]
    assert [len(table.rows) for table in read("\n".join(lines))] == [2, 1, 1]
