"""Reader of the output of nccl-tests (all_reduce_perf and so on) and of rccl-tests.

Sizes are those of the full buffer (doc/PERFORMANCE.md of nccl-tests). Lines of other programs, such
as NCCL's own, are passed over; so are prefixes that a launcher writes before each line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from collir.cost.collectives.table import COSTS
from collir.importing.measurements.tables import MAX_SIZE, Row, Table, Tables, is_time
from collir.importing.numbers import integer
from collir.importing.values import Place, ReadError, Remark, shown

HEADER = re.compile(r"^.{0,80}?#[ \t]+size[ \t]+count[ \t]+type\b", re.MULTILINE)
MARK = re.compile(rf"{HEADER.pattern}|^.{{0,80}}?# nThread \d", re.MULTILINE)
"""A pattern that only these programs print."""

KINDS = {entry.perf: kind for kind, entry in COSTS.items() if entry.perf}
"""Name of a program -> its collective."""

_OTHERS = ("sendrecv", "hypercube", "alltoallv", "bisection")
_PROGRAM = re.compile(r"(?<![A-Za-z_])([a-z_]+)_perf(?:_mpi)?\b")
_PREFIX = re.compile(r"^\s*(?:\d+:(?=\s)|\[\d+,\d+\]<std(?:out|err)>:)\s?")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,10})\s+(?:Group\s+(\d{1,10})\s+)?Pid\s+\d+\s+on\s+(\S+)\s")
_START = re.compile(r"#\s+nThread\s+\d")
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s")
_TIMES = ("time", "cputime")


def kind_of(text: str) -> str | None:
    """Return the collective of the program that a text names last, or None if it names none.

    The collective is empty if the program measures no collective whose times are read.
    """
    named = [name for name in _PROGRAM.findall(text) if name in KINDS or name in _OTHERS]
    return KINDS.get(named[-1], "") if named else None


@dataclass
class _Run:
    """A run of a program, while it is read."""

    place: Place
    kind: str | None
    hosts: dict[int, str] = field(default_factory=dict[int, str])
    columns: list[str] = field(default_factory=list[str])
    rows: list[Row] = field(default_factory=list[Row])
    ended: bool = False
    empty: int = 0


def read(text: str, kind: str | None = None, file: str = "") -> Tables:
    """Return the times of all runs in a text.

    The collective is ``kind``, or else that of the program named by the text or the file's name.

    Raises:
        ReadError: a run's collective is not known, a run has no times or other columns, or ranks
            are in several groups.
    """
    remarks: list[Remark] = []
    runs: list[_Run] = []
    last_program = kind_of(file)
    for number, raw in enumerate(text.split("\n"), 1):
        line = _PREFIX.sub("", raw)
        place = Place(number)
        if (program := kind_of(line)) is not None:
            last_program = program
        if _START.search(line):
            if not (runs and not runs[-1].columns and not runs[-1].hosts):
                runs.append(_Run(place, last_program))
            continue
        if not runs and (HEADER.search(line) or _RANK.search(line)):
            runs.append(_Run(place, last_program))
        if runs and (runs[-1].kind or kind or runs[-1].kind is None):
            _line(runs[-1], line, place, remarks)
    if not kind:
        message = "the run that begins here is of no collective whose times are read"
        remarks += [Remark(message, run.place) for run in runs if run.kind == ""]
        runs = [run for run in runs if run.kind != ""]
    if not runs:
        raise ReadError("there are no times of collectives here", Place(1))
    tables = [_table(run, kind or run.kind, remarks) for run in runs]
    return Tables("Times of nccl-tests.", tuple(tables), tuple(sorted(remarks, key=_line_of)))


def _line_of(remark: Remark) -> Place:
    return remark.place


def _line(run: _Run, line: str, place: Place, remarks: list[Remark]) -> None:
    """Add a line to a run."""
    if match := _RANK.search(line):
        if match[2] and int(match[2]):
            raise ReadError(
                "these ranks are in several groups at the same time (NCCL_TESTS_SPLIT), which is "
                "not read: measure one group a run",
                place,
            )
        run.hosts[int(match[1])] = match[3]
    elif HEADER.search(line):
        run.columns = line[line.index("#") + 1 :].split()
        if not any(name in run.columns for name in _TIMES):
            raise ReadError("this table has no column 'time'", place)
    elif "Avg bus bandwidth" in line:
        run.ended = True
    elif run.columns and _ROW.match(line):
        run.rows += _row(run, line.split(), place, remarks)


def _row(run: _Run, cells: list[str], place: Place, remarks: list[Remark]) -> Iterator[Row]:
    """Yield the times of a line, out of place and in place."""
    columns = run.columns
    if len(cells) < len(columns):
        remarks.append(
            Remark(
                f"this line has {len(cells)} of {len(columns)} columns: it is left out",
                place,
            )
        )
        return
    size = integer(cells[0], "a size", place, 0, MAX_SIZE)
    if not size:
        run.empty += 1
        return
    starts = [at for at, name in enumerate(columns) if name in _TIMES]
    for start, end in zip(starts, [*starts[1:], len(columns)], strict=True):
        names = columns[start:end]
        values = dict(zip(names, cells[start:end], strict=True))
        if wrong := _wrong(values):
            remarks.append(Remark(f"{wrong}: this time is left out", place))
        else:
            seconds = float(cells[start]) * 1e-6
            yield Row(run.kind or "", size, seconds, place)


def _wrong(values: dict[str, str]) -> str:
    """Return what is wrong with a time, or an empty text."""
    time = next(iter(values.values()))
    if not is_time(time):
        return f"'{shown(time)}' is not a time above 0 us"
    count = values.get("#wrong", "N/A")
    if count != "N/A" and not re.fullmatch(r"0+(?:\.0*)?(?:e[+-]0+)?", count):
        return f"{shown(count)} elements were wrong"
    return ""


def _table(run: _Run, kind: str | None, remarks: list[Remark]) -> Table:
    if not run.columns:
        raise ReadError("the run that begins here has no table: the file is cut off", run.place)
    if kind is None:
        raise ReadError(
            "it is not said which collective this is: --from FILE,collective=all_reduce", run.place
        )
    if not run.ended:
        remarks.append(
            Remark("the run that begins here has no end: the file may be cut off", run.place)
        )
    if run.empty:
        lines = "a line" if run.empty == 1 else f"{run.empty} lines"
        remarks.append(Remark(f"{lines} of size 0: left out", run.place))
    if not run.rows:
        later_remarks = [remark for remark in remarks if remark.place > run.place]
        reason = (
            f": line {later_remarks[0].place.line}: {later_remarks[0].message}"
            if later_remarks
            else ""
        )
        raise ReadError(
            f"the run that begins here has no times that can be used{reason}", run.place
        )
    rows = tuple(Row(kind, row.size, row.seconds, row.place) for row in run.rows)
    return Table(rows, run.place, hosts=_hosts(run))


def _hosts(run: _Run) -> tuple[int, ...]:
    """Return the number of ranks on each host."""
    if sorted(run.hosts) != list(range(len(run.hosts))):
        first = min(set(range(len(run.hosts))) - set(run.hosts))
        raise ReadError(f"the ranks of this run are not all listed: {first} is missing", run.place)
    counts: dict[str, int] = {}
    for host in run.hosts.values():
        counts[host] = counts.get(host, 0) + 1
    return tuple(counts.values())
