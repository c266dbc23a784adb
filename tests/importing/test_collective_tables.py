"""Tests of tables of collectives: the times read are those written, in any log, cut anywhere."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from benchmark_outputs import (
    REDOPS,
    Truth,
    imb_lines,
    logs,
    nccl_json,
    nccl_lines,
    osu_lines,
    truths,
)
from collective_tables import (
    MSCCLPP_PROGRAMS,
    NVSHMEM_JOBS,
    RECORD_NAMES,
    deepspeed_lines,
    mscclpp_lines,
    mscclpp_time,
    nvshmem_lines,
    records,
    torch_lines,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collir.importing.measurements import files
from collir.importing.values import ReadError

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
    "imb": (lambda truth, _: imb_lines(truth), ("",), KINDS),
}
"""Name of a program -> what prints its lines, its versions, and its collectives."""

TOLERANCE = {"torch": 0.05, "mscclpp": 1e-9}


@pytest.mark.parametrize("program", ["torch", "deepspeed", "nvshmem", "mscclpp"])
@few
@given(data=st.data())
def test_what_was_measured_is_read(program: str, data: st.DataObject) -> None:
    printer, versions, kinds = PRINTERS[program]
    truth = data.draw(truths(kinds))
    assume(truth.all_ranks & truth.all_ranks - 1 == 0)
    # large enough for parts of ranks, and for bandwidths with two digits
    shift = 21 if program in ("torch", "deepspeed") else 0
    truth = replace(truth, times=tuple((size << shift, times) for size, times in truth.times))
    version = data.draw(st.sampled_from(versions))
    text, _ = data.draw(logs(printer(truth, version)))
    tables = files.read(text.replace("\r\n", "\n")).tables
    rows = [row for table in tables for row in table.rows]
    exact = mscclpp_time if program == "mscclpp" else float
    assert [(row.kind, row.size, row.seconds) for row in rows] == [
        (truth.kind, size, pytest.approx(exact(times[0]) * 1e-6, rel=TOLERANCE.get(program, 1e-3)))
        for size, times in truth.times
    ]
    assert {table.ranks for table in tables} <= {0, truth.all_ranks}
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
    every = [(row.kind, row.size) for table in read.tables for row in table.rows]
    some = [(row.kind, row.size) for table in left.tables for row in table.rows]
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
