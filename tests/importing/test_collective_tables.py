"""Tests of tables of collectives: the times read are those written, in any log, cut anywhere."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.importing.benchmark_outputs import (
    PREFIXES,
    REDOPS,
    Truth,
    imb_lines,
    logs,
    nccl_json,
    nccl_lines,
    osu_lines,
    truths,
)
from support.importing.collective_tables import (
    MSCCLPP_PROGRAMS,
    NVSHMEM_JOBS,
    RECORD_NAMES,
    deepspeed_lines,
    imb_group_lines,
    mscclpp_lines,
    mscclpp_time,
    nvshmem_lines,
    osu_overlap_lines,
    osu_validated_lines,
    perftest_lines,
    records,
    torch_lines,
)

import collir
from collir.dialects.machine import MachineOp
from collir.importing.measurements import files
from collir.importing.measurements.tables import extents
from collir.importing.values import ReadError, TextPlace
from collir.machine import Machine

KINDS = tuple(RECORD_NAMES)
few = settings(max_examples=15)

Printer = Callable[[Truth, str], list[str]]
PRINTERS: dict[str, tuple[Printer, tuple[str, ...], tuple[str, ...]]] = {
    "torch": (torch_lines, ("", "latency", "sentence"), KINDS),
    "deepspeed": (deepspeed_lines, ("", "raw", "bytes"), KINDS),
    "nvshmem": (nvshmem_lines, ("stream", "device"), tuple(NVSHMEM_JOBS)),
    "mscclpp": (mscclpp_lines, ("", "unchecked"), tuple(MSCCLPP_PROGRAMS)),
    "nccl-tests": (nccl_lines, ("new", "rccl", "pasted"), KINDS),
    "osu": (osu_lines, ("5.9", "7.4 cuda full"), KINDS),
    "osu overlap": (osu_overlap_lines, ("", "full", "persistent"), KINDS),
    "osu validated": (osu_validated_lines, ("",), KINDS),
    "imb groups": (imb_group_lines, ("multi", "pure", "overlap"), KINDS),
    "perftest": (perftest_lines, ("", "old"), ("send",)),
    "imb": (lambda truth, _: imb_lines(truth), ("",), KINDS),
}
"""Name of a program -> what prints its lines, its versions, and its collectives."""

TOLERANCE = {"torch": 0.05, "mscclpp": 1e-9}


def printable(program: str, truth: Truth) -> Truth:
    """Return measurements of sizes of which ranks have parts, and bandwidths enough digits."""
    shift = 21 if program in ("torch", "deepspeed") else 0
    return replace(truth, times=tuple((size << shift, times) for size, times in truth.times))


@pytest.mark.parametrize("program", [name for name in PRINTERS if name != "nccl-tests"])
@few
@given(data=st.data())
def test_what_was_measured_is_read(program: str, data: st.DataObject) -> None:
    printer, versions, kinds = PRINTERS[program]
    truth = data.draw(truths(kinds))
    assume(truth.all_ranks & truth.all_ranks - 1 == 0)
    truth = printable(program, truth)
    version = data.draw(st.sampled_from(versions))
    text, _ = data.draw(logs(printer(truth, version)))
    tables = files.read(text.replace("\r\n", "\n")).tables
    rows = [row for table in tables for row in table.rows]
    exact = mscclpp_time if program == "mscclpp" else float
    repeated = 2 if version == "multi" else 1
    assert [(row.kind, row.size, row.seconds) for row in rows] == [
        (truth.kind, size, pytest.approx(exact(times[0]) * 1e-6, rel=TOLERANCE.get(program, 1e-3)))
        for size, times in truth.times
        for _ in range(repeated)
    ]
    assert {table.beside for table in tables} == {repeated}
    assert {table.ranks for table in tables} <= {0, 2 if program == "perftest" else truth.all_ranks}
    if program == "mscclpp":
        assert tables[0].hosts == (truth.ranks,) * truth.hosts


@few
@given(truths(KINDS), st.sampled_from(["array", "lines"]))
def test_records_are_read(truth: Truth, version: str) -> None:
    (table,) = files.read(records(truth, version)).tables
    assert table.hosts == (truth.ranks,) * truth.hosts
    assert [(row.kind, row.size, row.seconds) for row in table.rows] == [
        (truth.kind, size, pytest.approx(time * 1e-6))
        for size, times in truth.times
        for time in times
    ]


@few
@given(truths(KINDS), truths(KINDS))
def test_documents_of_json_behind_each_other_are_runs(one: Truth, other: Truth) -> None:
    try:
        tables = files.read(f"{nccl_json(one)}\n{nccl_json(other)}\n").tables
    except ReadError as error:  # neither names its collective
        assert "it is not said which collective" in error.message
        return
    assert [table.place.line for table in tables] == [1, 2]
    assert [len(table.rows) for table in tables] == [2 * len(one.times), 2 * len(other.times)]


@few
@given(st.data(), truths(KINDS))
def test_results_of_the_other_place_may_be_blank(data: st.DataObject, truth: Truth) -> None:
    lines = nccl_lines(truth, "wrong")
    written = [line[: line.rindex("  ", 0, 75)] if "float" in line else line for line in lines]
    for at, line in enumerate(lines):
        if "float" in line:
            cells = line.split()
            half = "  ".join(cells[:9])
            written[at] = half if data.draw(st.booleans()) else half.replace("sum", "prod")
    (table,) = files.read("\n".join(written), truth.kind).tables
    assert [row.size for row in table.rows] == [size for size, _ in truth.times]


@few
@given(truths(tuple(REDOPS)), st.lists(st.sampled_from(["float", "half", "int8"]), min_size=1))
def test_all_types_and_reductions_of_a_size_are_times(truth: Truth, types: list[str]) -> None:
    lines: list[str] = []
    for line in nccl_lines(truth, "new"):
        each = [line.replace("float", name) for name in types] if "float" in line else [line]
        lines += [x.replace(" sum ", " avg ") for x in each] if "N/A" not in line else each
    (table,) = files.read("\n".join(lines)).tables
    assert len(table.rows) == 2 * len(truth.times) * len(types)


@pytest.mark.parametrize("program", PRINTERS)
@few
@given(data=st.data())
def test_of_a_text_cut_anywhere_the_first_times_are_read(program: str, data: st.DataObject) -> None:
    printer, versions, kinds = PRINTERS[program]
    truth = data.draw(truths(kinds))
    version = data.draw(st.sampled_from(versions))
    text = "\n".join(printer(truth, version))
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        read = files.read(text, truth.kind)
        left = files.read(cut, truth.kind)
    except ReadError as error:
        assert error.place.line <= text.count("\n") + 1
        return
    every = [replace(row, kind="") for table in read.tables for row in table.rows]
    some = [replace(row, kind="") for table in left.tables for row in table.rows]
    assert some == every[: len(some)]


@few
@given(st.data(), truths(KINDS), st.sampled_from(["array", "lines", "document"]))
def test_of_json_cut_anywhere_the_first_times_are_read(
    data: st.DataObject, truth: Truth, version: str
) -> None:
    text = nccl_json(truth) if version == "document" else records(truth, version)
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        rows = [row for table in files.read(cut, truth.kind).tables for row in table.rows]
    except ReadError:
        return
    read = [row for table in files.read(text, truth.kind).tables for row in table.rows]
    assert rows == read[: len(rows)]


@settings(max_examples=60)
@given(st.data(), truths(KINDS), st.sampled_from([*PRINTERS, "records", "json"]))
def test_garbage_is_read_or_refused(data: st.DataObject, truth: Truth, program: str) -> None:
    if program in PRINTERS:
        printer, versions, kinds = PRINTERS[program]
        assume(truth.kind in kinds)
        text = "\n".join(printer(truth, data.draw(st.sampled_from(versions))))
    else:
        text = records(truth, "array") if program == "records" else nccl_json(truth)
    junk = st.text('0123456789eE+-.,:[]{}"| \n#xNAinf', max_size=12)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(junk) + text[at + data.draw(st.integers(0, 12)) :]
    try:
        files.read(text)
    except ReadError as error:
        assert error.message


COUNTERS = ("{number:6}\t", "{number}:", "[{number:5}.123456] ", "{number}.5s ", "{number:03} | ")


@pytest.mark.parametrize("program", PRINTERS)
@few
@given(data=st.data())
def test_numbers_in_front_of_lines_that_count_are_passed_over(
    program: str, data: st.DataObject
) -> None:
    printer, versions, kinds = PRINTERS[program]
    truth = data.draw(truths(kinds))
    lines = printer(truth, data.draw(st.sampled_from(versions)))
    counter, step = data.draw(st.sampled_from(COUNTERS)), data.draw(st.integers(1, 3))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    counted = [counter.format(number=7 + step * at) + line for at, line in enumerate(lines)]
    try:
        tables = files.read("\n".join(lines), truth.kind).tables
    except ReadError:
        return
    assert files.read(end.join(counted), truth.kind).tables == tables


@few
@given(st.data(), truths(KINDS))
def test_a_prefix_of_all_lines_is_passed_over(data: st.DataObject, truth: Truth) -> None:
    lines = ["size(B),time(us)", *(f"{size},{times[0]}" for size, times in truth.times)]
    prefix = data.draw(st.sampled_from([p for p in PREFIXES if p.strip().endswith((":", "]"))]))
    written = [prefix.format(second=at) + line for at, line in enumerate(lines)]
    text = data.draw(st.sampled_from(["\n", "\r\n"])).join(written)
    assert files.read(text, truth.kind).tables == files.read("\n".join(lines), truth.kind).tables


@pytest.mark.parametrize("program", PRINTERS)
@few
@given(data=st.data())
def test_runs_at_the_same_time_are_told_apart(program: str, data: st.DataObject) -> None:
    printer, versions, kinds = PRINTERS[program]
    version = data.draw(st.sampled_from(versions))
    both = data.draw(st.lists(truths(kinds), min_size=2, max_size=2))
    alone = ["\n".join(printer(printable(program, truth), version)) for truth in both]
    left = [[f"[{rank}] {line}" for line in text.split("\n")] for rank, text in enumerate(alone)]
    written: list[str] = []
    while any(left):
        written.append(data.draw(st.sampled_from([lines for lines in left if lines])).pop(0))
    try:
        expected = [
            (row.kind, row.size, row.seconds)
            for text in alone
            for table in files.read(text).tables
            for row in table.rows
        ]
        tables = files.read("\n".join(written)).tables
    except ReadError as error:  # columns may not tell the collective
        assert "it is not said" in error.message or "ranks are listed" in error.message
        return
    read = [(row.kind, row.size, row.seconds) for table in tables for row in table.rows]
    assert sorted(read) == sorted(expected)


def messages(text: str, kind: str | None = None) -> list[tuple[int, str]]:
    """Return the remarks on a text, with their lines."""
    return [(remark.place.line, remark.message) for remark in files.read(text, kind).remarks]


def test_two_runs_of_the_same_are_two_samples() -> None:
    truth = Truth("all_reduce", 1, 4, ((64, (3.0, 3.0)),))
    lines = nccl_lines(truth, "new")
    assert messages("\n".join(lines)) == []
    second = len(lines) + next(at for at, line in enumerate(lines, 1) if "nThread" in line)
    first = second - len(lines)
    text = f"this run measured the same as that of line {first}: both are read"
    assert messages("\n".join([*lines, *lines])) == [(second, text)]
    other = nccl_lines(Truth("all_gather", 1, 4, truth.times), "new")
    assert messages("\n".join([*lines, *other])) == []


@pytest.mark.parametrize("program", [name for name in PRINTERS if name != "torch"])
def test_lines_that_were_cut_out_are_remarked(program: str) -> None:
    printer, versions, kinds = PRINTERS[program]
    truth = Truth(kinds[0], 1, 2, tuple((1 << at, (3.0, 3.0)) for at in (20, 21, 22)))
    lines = ["[1,0]<stdout>:" + line for line in printer(truth, versions[0])]
    at = next(at for at, line in enumerate(lines) if str(1 << 21) in line.split(":", 1)[1])
    for elided in ("...", "[1,0]<stdout>:  [...]", "<snip>"):
        remarks = messages("\n".join([*lines[:at], elided, *lines[at + 1 :]]))
        assert (at + 1, "lines were cut out here: the times in them are missing") in remarks


def test_failures_of_programs_are_remarked() -> None:
    lines = nccl_lines(Truth("all_reduce", 1, 4, ((64, (3.0, 3.0)),)), "new")
    lines = [line.replace("values : 0 OK", "values : 3 FAILED") for line in lines]
    lines += ["node-0:900:912 [0] misc/socket.cc:484 NCCL WARN retrying", "Segmentation fault"]
    assert [text for _, text in messages("\n".join(lines))] == [
        "this run found 3 values out of bounds: its times may be wrong",
        "NCCL warned here: retrying; times may be of a run that did not go as intended",
        "a program failed here: runs may be cut off",
    ]


PAIR = """machine @pair {
  level host[2] { port = 25 GB/s, latency = 5 us, fabric = network }
  level gpu[4] { port = 300 GB/s, latency = 1 us }
}"""


def pair() -> Machine:
    """Return a machine of two hosts of four GPUs."""
    (machine,) = collir.parse(PAIR).ops
    assert isinstance(machine, MachineOp)
    return machine.value()


def test_levels_say_which_of_several_runs_are_read() -> None:
    lines = [
        line
        for ranks in (2, 4, 8)
        for line in imb_lines(Truth("all_reduce", 1, ranks, ((64, (3.0, 3.0)),)))
    ]
    tables = files.read("\n".join(lines))
    over = extents("gpu", TextPlace(1))
    fitting = files.fitting(pair(), tables, over)
    assert [table.ranks for table in fitting.tables] == [4]
    assert [remark.message for remark in fitting.remarks] == [
        "this run has 2 ranks, not 4: it is left out",
        "this run has 8 ranks, not 4: it is left out",
    ]
    (sample,) = files.samples(pair(), tables, "imb.txt", over)
    assert sample.source.startswith("imb.txt:")


def test_groups_at_the_same_time_are_said_by_levels() -> None:
    truth = Truth("all_reduce", 1, 2, ((64, (3.0, 3.0)),))
    tables = files.read("\n".join(imb_group_lines(truth, "multi")))
    assert len(files.samples(pair(), tables, "x", extents("gpu:2+2", TextPlace(1)))) == 2
    with pytest.raises(ReadError, match="2 groups run at the same time"):
        files.samples(pair(), tables, "x", extents("gpu:2", TextPlace(1)))


def test_a_run_on_all_devices_is_on_all_levels() -> None:
    truth = Truth("all_reduce", 2, 4, ((64, (3.0, 3.0)),))
    (sample,) = files.samples(pair(), files.read("\n".join(imb_lines(truth))), "x")
    assert sample.collective.mesh.group_size(sample.collective.axes) == 8


def test_messages_of_perftest_cross_the_network() -> None:
    truth = Truth("send", 1, 2, ((64, (3.0, 3.0)),))
    bandwidth = [
        "                    RDMA_Write BW Test",
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
        " 65536      5000             192.10             192.00             0.747550",
        "-" * 87,
    ]
    tables = files.read("\n".join([*bandwidth, *perftest_lines(truth, "")]))
    (sample,) = files.samples(pair(), tables, "x")
    assert sample.collective.kind == "send"
    (remark,) = tables.remarks
    assert "at most 24 GB/s with 65536 bytes" in remark.message
