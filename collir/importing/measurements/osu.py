"""Reader of the OSU micro-benchmarks: blocking collectives, and the latency of messages.

The benchmarks of allgather, alltoall, gather and scatter print the bytes of one rank (for one
other rank), the other benchmarks those of the whole buffer. A message of ``osu_latency`` is read
as a broadcast to one other rank.

"""

import re
from dataclasses import dataclass, field

from collir.importing.measurements.tables import MAX_SIZE, Row, Table, Tables, is_time
from collir.importing.numbers import integer
from collir.importing.values import Place, ReadError, Remark, shown

TITLE = re.compile(r"^#?[ \t]{0,8}OSU MPI(?:-\w{1,12})? ([\w -]{1,60}?) Test\b", re.MULTILINE)
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
    "Latency": ("broadcast", False),
}
_ALGORITHMS = {"Latency": "binomial"}
_COLUMNS = re.compile(r"#?\s*Size\s+(.*)")
_TIME = re.compile(r"(?:Avg )?Latency ?\(us\)")
_ROW = re.compile(r"\s*(\d+)\s+(\S+)")


@dataclass
class _Run:
    """A benchmark, while it is read."""

    place: Place
    title: str
    columns: bool = False
    rows: list[Row] = field(default_factory=list[Row])


def read(text: str, kind: str | None = None, file: str = "") -> Tables:
    """Return the times of all benchmarks in a text, which names the collectives.

    Raises:
        ReadError: no benchmark can be used, or a benchmark has no times or other columns.
    """
    runs: list[_Run] = []
    remarks: list[Remark] = []
    for number, line in enumerate(text.split("\n"), 1):
        place = Place(number)
        if match := TITLE.match(line):
            runs.append(_Run(place, match[1]))
            if match[1] not in _KINDS:
                message = f"'{shown(match[1])}' is not read: blocking collectives are, and latency"
                remarks.append(Remark(message, place))
        elif runs and runs[-1].title in _KINDS:
            _line(runs[-1], line, place, remarks)
    known = [run for run in runs if run.title in _KINDS]
    if not known:
        place = remarks[0].place if remarks else Place(1)
        raise ReadError("there is no benchmark of OSU here whose times can be used", place)
    for run in known:
        if not run.rows:
            raise ReadError("this benchmark has no times: the file may be cut off", run.place)
    tables = tuple(Table(tuple(run.rows), run.place) for run in known)
    return Tables("Times of the OSU micro-benchmarks.", tables, tuple(remarks))


def _line(run: _Run, line: str, place: Place, remarks: list[Remark]) -> None:
    if match := _COLUMNS.match(line):
        if not _TIME.match(match[1]):
            raise ReadError(f"the second column is '{shown(match[1])}', not a latency in us", place)
        run.columns = True
    elif match := _ROW.match(line):
        if not run.columns:
            raise ReadError("a line of numbers before the names of the columns", place)
        size = integer(match[1], "a size", place, 0, MAX_SIZE)
        time = match[2]
        if not is_time(time):
            message = f"'{shown(time)}' is not a time above 0 us: this line is left out"
            remarks.append(Remark(message, place))
        elif size:
            kind, per_rank = _KINDS[run.title]
            seconds = float(time) * 1e-6
            algorithm = _ALGORITHMS.get(run.title)
            run.rows.append(Row(kind, size, seconds, place, per_rank, algorithm))
