"""Reader of the OSU micro-benchmarks: collectives, and the latency of messages.

The benchmarks of allgather, alltoall, gather and scatter print the bytes of one rank (for one other
rank), the other benchmarks the bytes of the whole buffer. ``osu_latency`` sends messages from one
rank to another. Non-blocking and persistent collectives print the time with and without a
computation beside them; that without it is read.
"""

import re
from dataclasses import dataclass, field

from collir.importing.measurements.log_tables import log_tables
from collir.importing.measurements.tables import (
    MAX_SIZE,
    MeasuredRow,
    MeasuredTable,
    MeasuredTables,
    check_asked,
    nothing_left,
    read_seconds,
)
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown

TITLE = re.compile(r"(?:#[ \t]{0,8})?\bOSU (?:MPI|XCCL|NCCL)(?:-\w{1,12})? ([\w -]{1,60}?) Test\b")
"""The line that each benchmark prints first."""

_KINDS = {
    "Allreduce Latency": ("all_reduce", False),
    "Allgather Latency": ("all_gather", True),
    "Reduce_scatter Latency": ("reduce_scatter", False),
    "Reduce_scatter_block Latency": ("reduce_scatter", False),
    "All-to-All Personalized Exchange Latency": ("all_to_all", True),
    "Broadcast Latency": ("broadcast", False),
    "Reduce Latency": ("reduce", False),
    "Gather Latency": ("gather", True),
    "Scatter Latency": ("scatter", True),
    "Latency": ("send", False),
}
_MODES = re.compile(r"\b(?:Non-?blocking|Persistent|Blocking) ?", re.IGNORECASE)
_COLUMNS = re.compile(r"\s*#?\s*Size\s+(\S.*)")
_PURE = "Pure Comm.(us)"
_TIME = re.compile(r"(?:Avg )?(?:Latency|Lat) ?\(us\)")
_ROW = re.compile(r"\s*(\d+)((?:\s+[\d.eE+\-]+)+(?:\s+(?:Pass|Fail)\w*)?)\s*", re.IGNORECASE)
_NUMBERS = re.compile(r"\s*\d+\s+\d+\.\d+\b")


@dataclass
class _Run:
    """A benchmark, while it is read.

    ``columns`` is the number of columns behind the size, and ``time`` the number of the column that
    is read. A comment of another program, behind the times, ends the benchmark.
    """

    kind: str
    per_rank: bool
    place: TextPlace
    columns: int = 0
    time: int = 0
    rows: list[MeasuredRow] = field(default_factory=list[MeasuredRow])
    closed: bool = False


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of all benchmarks in a text, which names the collectives.

    Raises:
        ReadError: no benchmark can be used, or a benchmark has other columns.
    """
    runs: list[_Run] = []
    remarks: list[Remark] = []
    for table in log_tables(text, TITLE):
        assert table.title is not None
        title = _MODES.sub("", table.title[1]).strip()
        if title not in _KINDS:
            message = f"'{shown(table.title[1])}' is not read: collectives are, and latency"
            remarks.append(Remark(message, table.place))
            continue
        runs.append(_Run(*_KINDS[title], table.place))
        for place, line in table.lines:
            if not runs[-1].closed:
                _line(runs[-1], line, place, remarks)
    remarks.sort(key=lambda remark: remark.place.line)
    if not runs:
        place = remarks[0].place if remarks else TextPlace(1)
        raise ReadError("there is no benchmark of OSU here whose times can be used", place)
    message = "this benchmark has no times: the file may be cut off"
    if not any(run.rows for run in runs):
        place = runs[0].place
        raise nothing_left(remarks, place) if remarks else ReadError(message, place)
    remarks += [Remark(message, run.place) for run in runs if not run.rows]
    tables = tuple(_table(run, kind) for run in runs if run.rows)
    return MeasuredTables("Times of the OSU micro-benchmarks.", tables, tuple(remarks))


def _table(run: _Run, kind: str | None) -> MeasuredTable:
    check_asked(run.kind, kind, run.place, "benchmark")
    return MeasuredTable(tuple(run.rows), run.place, ranks=2 if run.kind == "send" else 0)


def _line(run: _Run, line: str, place: TextPlace, remarks: list[Remark]) -> None:
    if match := _COLUMNS.fullmatch(line):
        if not _TIME.match(match[1]) and _PURE not in match[1]:
            raise ReadError(f"the second column is '{shown(match[1])}', not a latency in us", place)
        columns = re.split(r"\s{2,}|\t|(?<=\))\s", match[1].strip())
        run.columns = len(columns)
        run.time = columns.index(_PURE) if _PURE in columns else 0
    elif line.lstrip().startswith("#"):
        run.closed = bool(run.rows) and "Datatype" not in line
    elif match := _ROW.fullmatch(line):
        if not run.columns:
            raise ReadError("a line of numbers before the names of the columns", place)
        size = integer(match[1], "a size", place, 0, MAX_SIZE)
        times = match[2].split()
        if len(times) != run.columns:
            message = f"this line has {len(times) + 1} of {run.columns + 1} columns"
            remarks.append(Remark(f"{message}: it is left out", place))
        elif times[-1].lower().startswith("fail"):
            remarks.append(Remark("its results were wrong: this line is left out", place))
        elif (seconds := read_seconds(times[run.time], place, remarks)) and size:
            run.rows.append(MeasuredRow(run.kind, size, seconds, place, run.per_rank))
    elif run.columns and _NUMBERS.match(line):
        remarks.append(Remark("this line has more than numbers: it is left out", place))
