"""Reader of the Intel MPI Benchmarks (IMB-MPI1, IMB-NBC): collectives, and PingPong.

Of a collective the mean time of the ranks is read, and of a non-blocking one the time without a
computation beside it. The benchmarks of allgather, alltoall, gather and scatter print the bytes of
one rank (for one other rank), the others the bytes of the whole buffer. With ``-multi`` several
groups run at the same time, and each has its lines.
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
    is_time,
    nothing_left,
    read_seconds,
)
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown

_TITLE = re.compile(r"(?:#[ \t]{0,8})?\bBenchmarking[ \t]+(?:Multi-)?([A-Z]\w{2,40})\b")
_NONBLOCKING = re.compile(r"I(?P<name>[a-z]\w*?)(?:_pure)?")
_COLUMNS = re.compile(r"\s*((?:Group\s+)?#bytes\s+#repetitions\s+\S.*)")

MARK = re.compile(r"#bytes[ \t]+#repetitions\b")
"""A pattern that only these programs print."""

_KINDS = {
    "Allreduce": ("all_reduce", False),
    "Allgather": ("all_gather", True),
    "Reduce_scatter": ("reduce_scatter", False),
    "Alltoall": ("all_to_all", True),
    "Bcast": ("broadcast", False),
    "Reduce": ("reduce", False),
    "Gather": ("gather", True),
    "Scatter": ("scatter", True),
    "PingPong": ("send", False),
}
_TIMES = ("t_avg[usec]", "t_pure[usec]", "t[usec]")
_RANKS = re.compile(r"\s*#\s*#processes\s*=\s*(\d{1,10})\b")
_GROUPS = re.compile(r"\s*#\s*\(\s*(\d{1,10}) groups of (\d{1,10}) processes each\b")
_TIMED_OUT = re.compile(r"\s*\d+\s+time-?out", re.IGNORECASE)
_ROW = re.compile(r"\s*\d+\s+\d+(?:\s+[\d.eE+\-]+)+\s*")


@dataclass
class _Run:
    """A benchmark, while it is read.

    ``time`` is the column of the time; ``groups`` of ``ranks`` ran at the same time.
    """

    kind: str
    per_rank: bool
    place: TextPlace
    ranks: int = 0
    groups: int = 1
    columns: list[str] = field(default_factory=list[str])
    time: int = 0
    rows: list[MeasuredRow] = field(default_factory=list[MeasuredRow])


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of all benchmarks in a text, which names the collectives.

    Raises:
        ReadError: no benchmark can be used, or a benchmark has other columns.
    """
    runs: list[_Run] = []
    remarks: list[Remark] = []
    found = log_tables(text, _TITLE)
    for table in found:
        assert table.title is not None
        title = table.title[1]
        if _blocking(title) not in _KINDS:
            message = f"'{shown(title)}' is not read: collectives are, and PingPong"
            remarks.append(Remark(message, table.place))
            continue
        runs.append(_Run(*_KINDS[_blocking(title)], table.place))
        for place, line in table.lines:
            _line(runs[-1], line, place, remarks)
    remarks.sort(key=lambda remark: remark.place.line)
    if not any(run.rows for run in runs):
        place = runs[0].place if runs else found[0].place if found else TextPlace(1)
        if runs and remarks:
            raise nothing_left(remarks, place)
        raise ReadError("there is no benchmark of IMB here whose times can be used", place)
    message = "this benchmark has no times: the file may be cut off"
    remarks += [Remark(message, run.place) for run in runs if not run.rows]
    tables = tuple(_table(run, kind) for run in runs if run.rows)
    return MeasuredTables("Times of the Intel MPI Benchmarks.", tables, tuple(remarks))


def _table(run: _Run, kind: str | None) -> MeasuredTable:
    check_asked(run.kind, kind, run.place, "benchmark")
    return MeasuredTable(tuple(run.rows), run.place, ranks=run.ranks, beside=run.groups)


def _blocking(title: str) -> str:
    """Return the title of the blocking benchmark of the same collective."""
    match = _NONBLOCKING.fullmatch(title)
    return match["name"].capitalize() if match else title


def _line(run: _Run, line: str, place: TextPlace, remarks: list[Remark]) -> None:
    if match := _RANKS.match(line):
        run.ranks = int(match[1])
    elif match := _GROUPS.match(line):
        run.groups, run.ranks = int(match[1]), int(match[2])
    elif _TIMED_OUT.match(line):
        remarks.append(Remark("this size timed out: it is left out", place))
    elif match := _COLUMNS.fullmatch(line):
        run.columns = match[1].split()
        time_columns = [name for name in _TIMES if name in run.columns]
        if not time_columns:
            raise ReadError(f"there is no column of times: {', '.join(_TIMES)}", place)
        run.time = run.columns.index(time_columns[0])
    elif run.rows and line.lstrip().startswith("#"):
        run.columns = []  # another program follows
    elif run.columns and _ROW.fullmatch(line):
        cells = line.split()
        if len(cells) != len(run.columns):
            text = f"this line has {len(cells)} of {len(run.columns)} columns: it is left out"
            remarks.append(Remark(text, place))
            return
        values = dict(zip(run.columns, cells, strict=True))
        size = integer(values["#bytes"], "a size", place, 0, MAX_SIZE)
        if not size:
            return
        if is_time(defects := values.get("defects", "0")):
            remarks.append(Remark(f"{shown(defects)} defects: this line is left out", place))
            return
        if seconds := read_seconds(cells[run.time], place, remarks):
            run.rows.append(MeasuredRow(run.kind, size, seconds, place, run.per_rank))
