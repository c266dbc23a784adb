"""Databases that ``nsys export --type sqlite`` writes: kernels, copies, and ranges of NVTX."""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from collir.importing.traces.loose import integer, text
from collir.importing.traces.names import STEP, is_collective_kernel, kind_of
from collir.importing.traces.nvtx_payload import (
    COMMUNICATOR,
    MESSAGE,
    RANKS,
    Schemas,
    payload_of,
    schemas_of,
)
from collir.importing.traces.profile import TraceProfile
from collir.importing.traces.trace import RankTrace, Span, TracedCollective
from collir.importing.values import ReadError, TextPlace

_SECOND = 1e-9
"""A nanosecond, the unit of the times."""

_MOST = 2**62
"""The latest time, in nanoseconds."""

_KERNELS, _RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"
_COPIES = {"CUPTI_ACTIVITY_KIND_MEMCPY": "[CUDA memcpy]", "CUPTI_ACTIVITY_KIND_MEMSET":
           "[CUDA memset]"}  # fmt: skip
_STRINGS, _SCHEMAS = "StringIds", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_PROCESSES, _SESSION = "MPI_RANKS", "TARGET_INFO_SESSION_START_TIME"
_TABLES = (_KERNELS, _RANGES, *_COPIES, _STRINGS, _SCHEMAS, _PROCESSES, _SESSION)
_NCCL_RANGE = re.compile(r"nccl[A-Z]\w*")
_OPERATION = re.compile(r"aten::|autograd::|.*(?:, seq = |, op_id = )")
"""Ranges of torch's ``emit_nvtx``: there are as many as operations."""

_DAMAGED = (sqlite3.Error, UnicodeError)
"""The exceptions from a damaged database, where even the text of an error may be damaged."""

_Row = tuple[object, ...]
_Tables = Mapping[str, frozenset[str]]
_Key = tuple[int, str]
"""A process, and a kind of collectives."""


@dataclass
class _Reading:
    """The data read so far.

    Attributes:
        devices: the work that ran, by process and device. launched: the collectives of a process,
            with the number of their launch.
        asked: when a process called NCCL for collectives, and what for.
        group_sizes: the number of ranks of each communicator, by process.
    """

    profile: TraceProfile
    devices: dict[tuple[int, int], RankTrace] = field(
        default_factory=dict[tuple[int, int], RankTrace]
    )
    launched: dict[_Key, list[tuple[int, TracedCollective]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    asked: dict[_Key, list[tuple[float, Mapping[str, int]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    group_sizes: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    steps: dict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))
    marks: dict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))

    def device(self, process: int, number: int) -> RankTrace:
        """Return what ran on a device."""
        key = process, number
        if key not in self.devices:
            self.devices[key] = RankTrace(-1, str(self.profile.path))
        return self.devices[key]


def is_nsys_sqlite(path: Path, head: str) -> bool:
    """Return whether a file is such a database."""
    if not head.startswith("SQLite format 3\0"):
        return False
    try:
        with closing(_connected(path)) as database:
            return not _tables(database).keys().isdisjoint((_KERNELS, _RANGES, *_COPIES))
    except _DAMAGED:
        return False


def read_nsys_sqlite(path: Path) -> TraceProfile:
    """Return what a database says.

    Raises:
        ReadError: it is damaged.
    """
    reading = _Reading(TraceProfile(path))
    try:
        with closing(_connected(path)) as database:
            tables = _tables(database)
            _read_kernels(database, tables, reading)
            _read_copies(database, tables, reading)
            _read_ranges(database, tables, reading)
            numbers = _ranks(database, tables)
            reading.profile.base = _base(database, tables)
    except _DAMAGED as error:
        raise ReadError(f"the database is cut off or damaged: {error}", TextPlace(1)) from error
    _match(reading)
    profile, keys = reading.profile, sorted(reading.devices, key=lambda x: (x[1], x[0]))
    if keys and all(process in numbers for process, _ in keys) and len(keys) == len(numbers):
        keys.sort(key=lambda key: numbers[key[0]])
        profile.numbers = [numbers[process] for process, _ in keys]
    for process, number in keys:
        device = reading.devices[process, number]
        device.steps += sorted(reading.steps[process], key=lambda x: x.start)
        device.marks += sorted(reading.marks[process], key=lambda x: x.start)
        device.collectives.sort(key=lambda x: x.issued)
        profile.devices.append(device)
    return profile


def _connected(path: Path) -> sqlite3.Connection:
    """Open a database that nothing may change, and that may not run functions."""
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    database.text_factory = _decoded
    database.execute("PRAGMA trusted_schema = OFF")
    return database


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _tables(database: sqlite3.Connection) -> _Tables:
    """Return the columns of each table; a view or a virtual table could be without an end."""
    tables: dict[str, frozenset[str]] = {}
    query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
    for table in _TABLES:
        if any(
            re.match(r"CREATE TABLE\b", text(sql)) for [sql] in database.execute(query, (table,))
        ):
            columns = database.execute(f"PRAGMA table_info({table})")
            tables[table] = frozenset(x[1] for x in columns)
    return tables


def _selected(tables: _Tables, table: str, *columns: str) -> str:
    """Return columns for a query; columns that a version lacks are null."""
    return ", ".join(f't."{x}"' if x in tables[table] else "NULL" for x in columns)


def _named(tables: _Tables, table: str, *columns: str) -> tuple[str, str]:
    """Return the text that a column names, and the join that finds it; the first column that exists
    counts."""
    column = next((x for x in columns if x in tables[table]), None)
    if column is None or not {"id", "value"} <= tables.get(_STRINGS, frozenset()):
        return "NULL", ""
    return "s.value", f"LEFT JOIN {_STRINGS} s ON s.id = t.{column}"


def _span(name: str, start: object, end: object) -> Span | None:
    """Return a span, or None if its times are none."""
    first, last = integer(start, -1, _MOST), integer(end, -1, _MOST)
    return None if min(first, last) < 0 else Span(name, first * _SECOND,
                                                  max(first, last) * _SECOND)  # fmt: skip


def _process(value: object) -> int:
    """Return a process, of a global number of it or of a thread."""
    return integer(value, 0, 2**63) >> 24


def _read_kernels(database: sqlite3.Connection, tables: _Tables, reading: _Reading) -> None:
    if _KERNELS not in tables:
        return
    name, join = _named(tables, _KERNELS, "demangledName", "shortName")
    columns = _selected(
        tables, _KERNELS, "start", "end", "globalPid", "deviceId", "streamId", "correlationId"
    )
    for label, *row in database.execute(f"SELECT {name}, {columns} FROM {_KERNELS} t {join}"):
        start, end, thread, number, stream, launch = row
        reading.profile.events += 1
        span = _span(text(label) or "kernel", start, end)
        if span is None:
            reading.profile.ignored += 1
            continue
        process = _process(thread)
        device = reading.device(process, integer(number, 0))
        if not is_collective_kernel(span.name):
            device.work.add(*span)
            continue
        kind = kind_of(span.name)
        made = TracedCollective(kind, span.name, 0.0, span.start, span.end, span.start,
                                str(integer(stream, 0)))  # fmt: skip
        device.collectives.append(made)
        reading.launched[process, kind].append((integer(launch, 0, _MOST), made))


def _read_copies(database: sqlite3.Connection, tables: _Tables, reading: _Reading) -> None:
    for table, label in _COPIES.items():
        if table not in tables:
            continue
        columns = _selected(tables, table, "start", "end", "globalPid", "deviceId")
        for start, end, process, number in database.execute(f"SELECT {columns} FROM {table} t"):
            reading.profile.events += 1
            if span := _span(label, start, end):
                reading.device(_process(process), integer(number, 0)).work.add(*span)
            else:
                reading.profile.ignored += 1


def _read_ranges(database: sqlite3.Connection, tables: _Tables, reading: _Reading) -> None:
    """Read the marks of processes, and their requests to NCCL."""
    if _RANGES not in tables:
        return
    schemas = _schemas(database, tables)
    name, join = _named(tables, _RANGES, "textId")
    columns = _selected(
        tables, _RANGES, "text", "start", "end", "globalTid", "jsonText", "binaryData"
    )
    for label, own, start, end, thread, *carried in database.execute(
        f"SELECT {name}, {columns} FROM {_RANGES} t {join}"
    ):
        reading.profile.events += 1
        span = _span(text(own) or text(label), start, end)
        process = _process(thread)
        if span is None or not span.name or _OPERATION.match(span.name):
            reading.profile.ignored += 1
        elif _NCCL_RANGE.fullmatch(span.name):
            binary = carried[1]
            _ask(span, process, payload_of(binary, carried[0], schemas), reading)
        elif STEP.fullmatch(span.name):
            reading.steps[process].append(span)
        else:
            reading.marks[process].append(span)


def _schemas(database: sqlite3.Connection, tables: _Tables) -> Schemas:
    if _SCHEMAS not in tables:
        return {}
    columns = _selected(tables, _SCHEMAS, "schemaId", "type", "name", "offset")
    return schemas_of(database.execute(f"SELECT {columns} FROM {_SCHEMAS} t"))


def _ask(span: Span, process: int, carried: Mapping[str, int], reading: _Reading) -> None:
    """Note a call of NCCL."""
    if (ranks := carried.get(RANKS)) and COMMUNICATOR in carried:
        reading.group_sizes[process, carried[COMMUNICATOR]] = integer(ranks, 0)
        reading.profile.world = max(reading.profile.world, integer(ranks, 0))
    elif (kind := kind_of(span.name)) != "other":
        reading.asked[process, kind].append((span.start, carried))


def _match(reading: _Reading) -> None:
    """Give the collectives of each kind their requests, in the order of their launches.

    NCCL runs several calls between ``ncclGroupStart`` and ``ncclGroupEnd`` as one kernel: where
    there are fewer kernels than calls, which belongs to which is not known.
    """
    for key, launched in reading.launched.items():
        asked = sorted(reading.asked.get(key, ()), key=lambda x: x[0])
        if asked and len(asked) != len(launched):
            reading.profile.remarks.append(
                f"there are {len(launched)} kernels for {len(asked)} calls of {key[1]}: their "
                "sizes are not known"
            )
            continue
        launched.sort(key=lambda x: (x[0], x[1].start))
        for (_, collective), (at, carried) in zip(launched, asked, strict=False):
            collective.issued = min(at, collective.start)
            _describe(
                collective,
                carried,
                reading.group_sizes.get((key[0], carried.get(COMMUNICATOR, -1))),
            )


def _describe(each: TracedCollective, carried: Mapping[str, int], ranks: int | None) -> None:
    """Set the size and the group of a collective by what NCCL was asked for.

    NCCL says the bytes that a rank gives or gets, whichever are fewer.
    """
    message = float(max(0, carried.get(MESSAGE, 0)))
    each.group = str(carried.get(COMMUNICATOR, ""))
    each.group_size = ranks or 0
    if each.kind in ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"):
        message *= each.group_size  # zero where that is not known
    if each.kind != "barrier":
        each.size = message


def _ranks(database: sqlite3.Connection, tables: _Tables) -> Mapping[int, int]:
    """Return the ranks of processes, where MPI numbers them."""
    if not {"globalPid", "rank"} <= tables.get(_PROCESSES, frozenset()):
        return {}
    rows = database.execute(f"SELECT globalPid, rank FROM {_PROCESSES}")
    return {_process(process): integer(rank, 0) for process, rank in rows}


def _base(database: sqlite3.Connection, tables: _Tables) -> float:
    """Return the second at which the times begin; 0 if the database does not say."""
    if "utcEpochNs" not in tables.get(_SESSION, frozenset()):
        return 0.0
    rows: Iterator[_Row] = database.execute(f"SELECT utcEpochNs FROM {_SESSION} LIMIT 1")
    return next((integer(x[0], 0, _MOST) * _SECOND for x in rows), 0.0)
