"""Tests of files that are cut off, damaged or harmful: a prefix is read, or it is an error."""

import gzip
import io
import json
import math
import pickle
import sqlite3
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.importing.trace_jobs import (
    Kernel,
    Ran,
    Sent,
    flight_recorder,
    kineto,
    nsys_table,
    write_nsys,
    xla,
)

from collir.importing.traces.chrome import ChromeTrace
from collir.importing.traces.files import is_trace, read_traces
from collir.importing.traces.loose import listed, mapped
from collir.importing.traces.plain_pickle import read_plain_pickle
from collir.importing.traces.trace import Trace
from collir.importing.values import ReadError

RAN = Ran(
    0, 2,
    (
        Kernel('gemm "a, b"\n<i>', 10**9, 10**9 + 500, (4, 5, 6)),
        Kernel("ядро", 10**9 + 900, 10**9 + 990),
    ),
    (
        Sent("all_reduce", 10**9, 10**9 + 600, 10**9 + 800, 1000, (0, 1)),
        Sent("all_gather", 10**9 + 10, 10**9 + 810, 10**9 + 850, 8, (0, 1)),
    ),
    ((10**9, 10**9 + 1000),),
)  # fmt: skip


def database() -> bytes:
    """Return the bytes of a database of Nsight Systems."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        write_nsys(path, [RAN], with_ranges=True)
        return path.read_bytes()


FILES: dict[str, bytes] = {
    "kineto": json.dumps(kineto(RAN), ensure_ascii=False).encode(),
    "xla_gpu": json.dumps(xla([RAN], "GPU"), indent=1).encode(),
    "xla_tpu": json.dumps(xla([RAN], "TPU")).encode(),
    "recorder_json": json.dumps(flight_recorder(RAN, True)).encode(),
    "recorder_pickle": pickle.dumps(flight_recorder(RAN, True), protocol=2),
    "nsys_database": database(),
    "nsys_table": nsys_table([RAN], with_notes=True).encode(),
}


def read(data: bytes) -> Trace | None:
    """Return the trace of a file, or None if it is an error that says so."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0"
        path.write_bytes(data)
        try:
            trace = read_traces([path])
        except ReadError as error:
            assert str(path) in error.message and error.place.line >= 1
            return None
        check_sound(trace)
        return trace


def check_sound(trace: Trace) -> None:
    """Check that all times and sizes are numbers, and that none ends before it starts."""
    for rank in trace.ranks:
        spans = [*rank.work.spans(), *rank.waits, *rank.steps, *rank.marks]
        for each in (*spans, *rank.collectives):
            assert math.isfinite(each.start) and math.isfinite(each.end) and each.start <= each.end
        for each in rank.collectives:
            assert math.isfinite(each.size) and each.size >= 0 and each.issued <= each.start
            assert each.group_size >= 0
        assert all(0 <= x.operations < math.inf for _, x in rank.work.products)
        assert rank.busy.seconds >= 0 and rank.sending.seconds >= 0 and rank.window.seconds >= 0


def events_of(data: bytes, key: str, is_zipped: bool) -> tuple[list[Any], bool]:
    """Return the events of JSON, and whether it is cut off."""
    stream = gzip.GzipFile(fileobj=io.BytesIO(data)) if is_zipped else io.BytesIO(data)
    chrome = ChromeTrace(stream, key)
    return [*chrome.events()], chrome.cut_off


@pytest.mark.parametrize("name", ["kineto", "xla_gpu", "recorder_json"])
@pytest.mark.parametrize("is_zipped", [False, True])
def test_prefixes_of_json(name: str, is_zipped: bool) -> None:
    """Wherever JSON is cut off, the events that are whole are read, and it is said."""
    data, key = FILES[name], "entries" if "recorder" in name else "traceEvents"
    whole = json.loads(data)[key]
    data = gzip.compress(data) if is_zipped else data
    most = 0
    for length in range(len(data)):
        try:
            events, cut_off = events_of(data[:length], key, is_zipped)
        except ReadError:
            assert not most
            continue
        assert events == whole[: len(events)] and len(events) >= most
        assert cut_off or events == whole
        most = len(events)
    assert most == len(whole)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("is_zipped", [False, True])
def test_prefixes_of_files(name: str, is_zipped: bool) -> None:
    """Wherever a file is cut off, it is an error, or a trace that says it is cut off."""
    data = gzip.compress(FILES[name]) if is_zipped else FILES[name]
    for length in range(0, len(data), max(1, len(data) // 150)):
        if (trace := read(data[:length])) and name != "nsys_database":
            assert (
                trace.events == 0
                or any("cut off" in x for x in trace.remarks)
                or (
                    data[length - 1 : length] == b"\n"  # between rows of a table
                )
            )
    assert read(data) or (is_zipped and name == "nsys_database")


@settings(max_examples=100)
@given(st.sampled_from([*FILES]), st.data())
def test_bytes_that_are_wrong(name: str, data: st.DataObject) -> None:
    """Bytes that are anything are read as something, or are an error."""
    changed = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    read(bytes(changed))


HOSTILE = (
    "null", "true", "-1", "0", "1e999", "-1e999", "NaN", "1e308", "-5.5", '""', '"x"', "[]", "{}",
    '"\\n<script>alert(1)</script>"', '"\\u0000"', '"\\ud800"', "1" + "0" * 400, "9" * 5000,
    "[" * 300 + "]" * 300, "[" * 100_000, '[[1, "a"], [{}]]', "[-3, 1e400]", '"[[[0"', '"1e9"',
    '{"a": {"b": [null]}}', "9007199254740993", "[" + "1," * 1000 + "1]", '"' + "x" * 10_000 + '"',
)  # fmt: skip
"""Values of JSON that no tool writes."""


def fields_of(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the ways to all fields."""
    if way:
        yield way
    keys: list[Any] = [*mapped(value), *range(len(listed(value)))]
    for key in keys:
        yield from fields_of(value[key], (*way, key))


def replaced(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    """Return a value with another field."""
    if not way:
        return new
    if isinstance(value, dict):
        return {**mapped(value), way[0]: replaced(value[way[0]], way[1:], new)}
    return [replaced(x, way[1:], new) if i == way[0] else x for i, x in enumerate(value)]


JSON = {name: json.loads(FILES[name]) for name in FILES if FILES[name][:1] == b"{"}


@settings(max_examples=300)
@given(st.sampled_from([*JSON]), st.sampled_from(HOSTILE), st.data())
def test_values_of_json_that_no_tool_writes(name: str, new: str, data: st.DataObject) -> None:
    """Whatever stands in a field, the other events are read, or it is an error."""
    way = data.draw(st.sampled_from([*fields_of(JSON[name])]))
    text = json.dumps(replaced(JSON[name], way, "@@")).replace('"@@"', new)
    read(text.encode())


SCALARS: list[Any] = [
    None, True, -1, 0, 2**63, 10**400, -(10**18), 1.5, math.inf, math.nan, 1e308, "", "x", "\0",
    "\n<b>", "[" * 5000, [], {}, [[]], [-1], [[2**62, 2**62]], (), ((),), {"a": [None]},
]  # fmt: skip


@settings(max_examples=200)
@given(st.sampled_from(SCALARS), st.data())
def test_values_of_pickles_that_no_tool_writes(new: Any, data: st.DataObject) -> None:
    """Whatever stands in a field of a dump, the other entries are read."""
    dump = flight_recorder(RAN, True)
    way = data.draw(st.sampled_from([*fields_of(dump)]))
    trace = read(pickle.dumps(replaced(dump, way, new), protocol=data.draw(st.integers(2, 4))))
    assert trace


CELLS = [None, "x", "", -5, 2**62, -(2**63), 2**63 - 1, 1.5, 1e308, b"\xff\x00", "\0", "9" * 400]


@settings(max_examples=100)
@given(st.data())
def test_cells_of_databases_that_no_tool_writes(data: st.DataObject) -> None:
    """Whatever stands in a cell, the other rows are read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        path.write_bytes(FILES["nsys_database"])
        with sqlite3.connect(path) as made:
            tables = [x for [x] in made.execute("SELECT name FROM sqlite_master")]
            table = data.draw(st.sampled_from(tables))
            columns = [x[1] for x in made.execute(f"PRAGMA table_info({table})")]
            column, new = data.draw(st.sampled_from(columns)), data.draw(st.sampled_from(CELLS))
            try:
                made.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = 1', (new,))
            except sqlite3.IntegrityError:
                return
        made.close()
        check_sound(read_traces([path]))


@settings(max_examples=100)
@given(
    st.sampled_from(["", "x", "-5", "nan", "1e999", "9" * 400, '"', '"a', "\0", "a,b,c"]), st.data()
)
def test_cells_of_tables_that_no_tool_writes(new: str, data: st.DataObject) -> None:
    """Whatever stands in a cell, the other rows are read, or it is an error."""
    lines = [x.split(",") for x in FILES["nsys_table"].decode().splitlines()]
    row = data.draw(st.integers(0, len(lines) - 1))
    lines[row][data.draw(st.integers(0, len(lines[row]) - 1))] = new
    read("\n".join(map(",".join, lines)).encode() + b"\n")


# --- what would run, or never end ----------------------------------------------------------------


class Harmful:
    """A value whose pickle runs a command."""

    def __init__(self, command: list[str]):
        self.command = command

    def __reduce__(self) -> tuple[Callable[[list[str]], int], tuple[list[str]]]:
        return subprocess.call, (self.command,)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickles_run_nothing(tmp_path: Path, protocol: int) -> None:
    """A pickle that would run a command is an error that says which instruction it has."""
    harmful = Harmful(["touch", str(tmp_path / "ran")])
    dump = {**flight_recorder(RAN, True), "more": [harmful]}
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(dump, protocol=protocol))
    with pytest.raises(ReadError, match=r"instruction (STACK_)?GLOBAL: it is not of plain values"):
        read_traces([path])
    assert [*tmp_path.iterdir()] == [path]


def nested_twice(depth: int) -> tuple[Any, ...]:
    """Return a tuple with 2 to the power of the depth leaves, in little memory."""
    value: tuple[Any, ...] = (1,)
    for _ in range(depth):
        value = (value, value)
    return value


def test_pickles_that_never_end() -> None:
    """Values that hold one another twice are not walked, nor hashed."""
    dump = flight_recorder(RAN, True)
    for way in fields_of(dump):
        assert read(pickle.dumps(replaced(dump, way, nested_twice(60)), protocol=2))
    stop = pickle.dumps(nested_twice(60), protocol=2)[2:-1]
    key = b"\x80\x02}" + stop + b"K\x01s."  # a dict with that as its key
    with pytest.raises(ReadError, match="a key in the pickle"):
        read_plain_pickle(key)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x80", b"\x80\x02", b"\x80\x02.", b"\x80\x02K\x01K\x02.", b"\x80\x02]e.",
        b"\x80\x02h\x05.", b"\x80\x02}K\x01a.", b"\x80\x02(", b"\x80\x02X\xff\xff\xff\xff",
        b"\x80\x05\x8d" + struct.pack("<Q", 2**62), b"\x80\x02]r\xff\xff\xff\xffr\xff",
        b"\x80\x02\x8a\xff", b"cos\nsystem\n.", b"\x80\x02P1\n.", b"\x80\x02(K\x01K\x02d",
    ],
)  # fmt: skip
def test_damaged_pickles(data: bytes) -> None:
    """Pickles that are none are an error; a place in the memo that is far away takes no memory."""
    with pytest.raises(ReadError):
        read_plain_pickle(data)


@settings(max_examples=100)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text() | st.integers(), x), max_leaves=20,
), st.integers(0, 5))  # fmt: skip
def test_plain_pickles(value: Any, protocol: int) -> None:
    """Plain values are read as Python reads them, of any protocol."""
    assert read_plain_pickle(pickle.dumps(value, protocol=protocol)) == value


def test_views_of_databases_that_never_end(tmp_path: Path) -> None:
    """A view in place of a table could be without an end: it is not read."""
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE NVTX_EVENTS (start, end, text)")
        made.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE x(start, end) AS "
            "(SELECT 1, 2 UNION ALL SELECT start + 1, end + 1 FROM x) SELECT * FROM x"
        )
    made.close()
    assert is_trace(path)
    assert not read_traces([path]).ranks


def test_rows_of_tables_that_never_end() -> None:
    """A line without an end is an error, not all of the memory."""
    header = b"Start (ns),Duration (ns),CorrId,Name\n"
    assert read(header + b"x" * 3 * 2**20) is None
    assert read(header + b'1,2,3,"' + b"\n" * 3 * 2**17 + b"\n") is None


def test_values_that_never_end() -> None:
    """A value of JSON without an end is an error, not all of the memory."""

    class Endless(io.RawIOBase):
        """A text that never ends."""

        begun = False

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            data = b"x" * len(buffer) if self.begun else b'{"traceEvents": [{"name": "'
            self.begun = True
            buffer[: len(data)] = data
            return len(data)

    with pytest.raises(ReadError, match="a value is longer than 64 MB"):
        list(ChromeTrace(io.BufferedReader(Endless(), 2**20)).events())
