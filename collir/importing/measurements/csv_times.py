"""Reader of the times of one collective as comma-separated values, made from benchmarks' tables.

The first line names the columns: one of sizes in bytes (``size(B)``, ``size``, ``bytes``), and one
or more of times with their unit (``time(us)``, ``oop_time_us``, ``latency (ms)``; ns, us, ms or s).
Other columns are passed over, and so are least and largest times. Sizes are those of the full
buffer. The collective is named by a column (``collective``), by the file's name (``allreduce``), or
by the command.
"""

import csv
import re

from collir.importing.measurements.names import kind_of_file
from collir.importing.measurements.tables import (
    MAX_SIZE,
    MeasuredRow,
    MeasuredTable,
    MeasuredTables,
    is_time,
)
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown

_SIZE = r"(?:(?:message|msg)[ _]?)?(?:size|bytes)(?:[ _]?\(?(?:B|bytes)\)?)?"
_TIME = r"(?:[\w .-]{0,40}[ _.-])?(?:time|latency)(?:[ _]?\(?(?P<unit>ns|us|ms|s)\)?)?"
HEADER = re.compile(
    rf'\A\s*(?=(?:[^\n]{{0,999}},)?\s*"?{_SIZE}"?\s*[,\n])'
    rf'(?:[^\n]{{0,999}},)?\s*"?{_TIME}"?\s*[,\n]',
    re.IGNORECASE,
)
"""The first line of the format."""

_OTHERS = re.compile(r"min|max|std|cpu|total|start|end|p\d\d", re.IGNORECASE)
"""Names of columns whose times are no times of collectives, or not the mean."""

_KIND = r"collective|operation|benchmark|test"
"""Names of columns of collectives."""

_GROUP = r"(?:n|num)?[_ ]?(?:gpus?|nodes?|ranks?|procs?|np|processes|hosts?|world[_ ]?size)"
"""Names of columns of the size of a group."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def _units(header: list[str]) -> dict[int, float]:
    """Return the unit of each column of times, in seconds.

    Raises:
        ReadError: a column does not say its unit.
    """
    units: dict[int, float] = {}
    for at, name in enumerate(header):
        if (match := re.fullmatch(_TIME, name, re.IGNORECASE)) and not _OTHERS.search(name):
            if not match["unit"]:
                text = f"column '{shown(name)}' does not say its unit: name it {shown(name)}(us)"
                raise ReadError(text, TextPlace(1))
            units[at] = _SECONDS[match["unit"].lower()]
    return units


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of a text.

    Raises:
        ReadError: the collective is not known, rows are of several groups, or there are no times.
    """
    lines = text.rstrip("\n").split("\n")
    first = next(at for at, line in enumerate(lines) if line.strip())
    header = [cell.strip() for cell in next(csv.reader(lines[first : first + 1]))]
    units = _units(header)
    size_column = _column(header, _SIZE)
    kinds = _column(header, _KIND)
    named = None if kinds >= 0 else kind or kind_of_file(file)
    if kinds < 0 and not named:
        raise ReadError(
            "it is not said which collective this is: --from FILE,collective=all_reduce",
            TextPlace(1),
        )
    groups: dict[tuple[str, ...], TextPlace] = {}
    rows: list[MeasuredRow] = []
    remarks: list[Remark] = []
    for number, line in enumerate(lines[first + 1 :], first + 2):
        place = TextPlace(number)
        if not line.strip():
            continue
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if cells == header:
            raise ReadError("a second table begins here: make two files", place)
        if len(cells) < len(header):
            message = f"this line has {len(cells)} of {len(header)} columns: it is left out"
            remarks.append(Remark(message, place))
            continue
        own = named or kind_of_file(cells[kinds])
        if not own or kind not in (None, own):
            message = f"'{shown(cells[kinds])}' is not {kind or 'a collective'}: it is left out"
            remarks.append(Remark(message, place))
            continue
        size = integer(cells[size_column], "a size", place, 0, MAX_SIZE)
        for at, unit in units.items():
            if wrong := _wrong(header, cells, at):
                remarks.append(Remark(f"{wrong}: it is left out", place))
            elif size:
                rows.append(MeasuredRow(own, size, float(cells[at]) * unit, place))
        groups.setdefault(_group(header, cells), place)
    if not rows:
        raise ReadError("there are no times that can be used here", TextPlace(1))
    if len(groups) > 1:
        left, right, *_ = ([*filter(None, group)] for group in groups)
        text = f"rows are of several groups, {' '.join(left)} and {' '.join(right)}: make two files"
        raise ReadError(text, [*groups.values()][1])
    return MeasuredTables(
        "Times as CSV.", (MeasuredTable(tuple(rows), TextPlace(1)),), tuple(remarks)
    )


def _column(header: list[str], pattern: str) -> int:
    """Return the first column whose name has a pattern, or -1."""
    return next((at for at, x in enumerate(header) if re.fullmatch(pattern, x, re.I)), -1)


def _wrong(header: list[str], cells: list[str], at: int) -> str:
    """Return what is wrong with the time in a column, or an empty text."""
    if not is_time(cells[at]):
        return f"'{shown(cells[at])}' is not a time above 0"
    for name, cell in zip(header[at + 1 :], cells[at + 1 :], strict=False):
        if re.fullmatch(_TIME, name, re.IGNORECASE):
            break
        if re.search("wrong", name, re.IGNORECASE) and re.fullmatch(r"0*[1-9]\d*", cell):
            return f"{shown(cell)} elements were wrong"
    return ""


def _group(header: list[str], cells: list[str]) -> tuple[str, ...]:
    """Return the numbers of nodes and ranks of a row, each behind its column's name."""
    return tuple(
        f"{name}={shown(cell)}" if re.fullmatch(_GROUP, name, re.IGNORECASE) else ""
        for name, cell in zip(header, cells, strict=False)
    )
