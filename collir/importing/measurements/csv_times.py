"""Reader of the times of one collective as comma-separated values, made from nccl-tests' tables.

The first line names the columns: ``size(B)``, and ``time(ns)``, ``time(us)``, ``time(ms)`` or
``time(s)``, once or, for out-of-place and in-place, twice; other
columns are passed over. Sizes are those of the full buffer. The collective is named by the file's
name (``allreduce``), or by the command.
"""

import csv
import re

from collir.importing.measurements.names import kind_of_file
from collir.importing.measurements.tables import MAX_SIZE, Row, Table, Tables, is_time
from collir.importing.numbers import integer
from collir.importing.values import Place, ReadError, Remark, shown

HEADER = re.compile(r'\A\s*"?size ?\(B\)"?\s*,.*\btime ?\((ns|us|ms|s)\)', re.IGNORECASE)
"""The first line of the format."""

_TIME = re.compile(r"time ?\((ns|us|ms|s)\)", re.IGNORECASE)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def read(text: str, kind: str | None = None, file: str = "") -> Tables:
    """Return the times of a text.

    Raises:
        ReadError: the collective is not known, or there are no times.
    """
    kind = kind or kind_of_file(file)
    if not kind:
        raise ReadError(
            "it is not said which collective this is: --from FILE,collective=all_reduce", Place(1)
        )
    lines = text.strip("\n").split("\n")
    header = [cell.strip() for cell in next(csv.reader(lines[:1]))]
    times = {at: _TIME.fullmatch(name) for at, name in enumerate(header)}
    units = {at: _SECONDS[match[1].lower()] for at, match in times.items() if match}
    rows: list[Row] = []
    remarks: list[Remark] = []
    for number, line in enumerate(lines[1:], 2):
        place = Place(number)
        if not line.strip():
            continue
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if len(cells) < len(header):
            message = f"this line has {len(cells)} of {len(header)} columns: it is left out"
            remarks.append(Remark(message, place))
            continue
        size = integer(cells[0], "a size", place, 0, MAX_SIZE)
        for at, unit in units.items():
            if not is_time(cells[at]):
                message = f"'{shown(cells[at])}' is not a time above 0: it is left out"
                remarks.append(Remark(message, place))
            elif size:
                rows.append(Row(kind, size, float(cells[at]) * unit, place))
    if not rows:
        raise ReadError("there are no times that can be used here", Place(1))
    return Tables("Times as CSV.", (Table(tuple(rows), Place(1)),), tuple(remarks))
