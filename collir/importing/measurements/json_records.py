"""Reader of JSON with a record for each time, of rccl-tests (-Z json) and MSCCL++'s tests (-o).

    [{"name": "AllReduce", "ranks": 8, "ranksPerNode": 8, "size": 1024, "inPlace": 0,
      "time": 12.3, "algBw": 0.083, "busBw": 0.146, "wrong": "0"}, ...]

MSCCL++ writes a record on each line instead of an array. Times are in microseconds, sizes are those
of the full buffer.
"""

import json
import math
import re
from typing import Any

from collir.cost.collectives.table import COSTS
from collir.importing.measurements.names import kind_of_file
from collir.importing.measurements.tables import (
    MAX_SIZE,
    MeasuredRow,
    MeasuredTable,
    MeasuredTables,
    is_time,
    nothing_left,
)
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown

MARK = re.compile(r'\A\s*(?:\[\s*)?\{[^{}]{0,999}"busBw"\s*:')
"""A pattern that only these files have."""

_RECORD = re.compile(r"\{[^{}]*\}")
_BEGUN = re.compile(r"\{[^{}]*\Z")
_MOST_RANKS = 10**6


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of all records, a table for each group of ranks.

    Raises:
        ReadError: a record is none of these programs, or no record has times of a collective.
    """
    remarks: list[Remark] = []
    rows: dict[tuple[int, int], list[MeasuredRow]] = {}
    line, at = 1, 0
    for match in _RECORD.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        place = TextPlace(line)
        try:
            group, row = _row(json.loads(match[0]), place, kind, remarks)
        except ReadError:
            raise
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            reason = f"there is no {error}" if isinstance(error, KeyError) else shown(str(error))
            raise ReadError(f"this record is not read: {reason}", place) from error
        if row:
            rows.setdefault(group, []).append(row)
    if cut := _BEGUN.search(text):
        place = TextPlace(1 + text.count("\n", 0, cut.start()))
        remarks.append(Remark("this record is cut off: it is left out", place))
    if not rows:
        raise nothing_left(remarks, TextPlace(1))
    tables = tuple(
        MeasuredTable(
            tuple(some),
            some[0].place,
            hosts=(per_host,) * (ranks // per_host if per_host else 0),
            ranks=ranks,
        )
        for (ranks, per_host), some in rows.items()
    )
    return MeasuredTables("Times of rccl-tests or MSCCL++.", tables, tuple(remarks))


def _row(
    record: dict[str, Any], place: TextPlace, kind: str | None, remarks: list[Remark]
) -> tuple[tuple[int, int], MeasuredRow | None]:
    """Return the numbers of ranks, of all and of a host, and the time, if it can be used."""
    ranks = integer(str(record["ranks"]), "the number of ranks", place, 1, _MOST_RANKS)
    per_host = integer(str(record["ranksPerNode"]), "the ranks on a host", place, 1, _MOST_RANKS)
    devices = integer(str(record.get("gpusPerRank", 1)), "the GPUs of a rank", place, 1, 1024)
    if ranks % per_host:
        raise ReadError(f"{ranks} ranks are not hosts of {per_host}", place)
    size = integer(str(record["size"]), "a size", place, 0, MAX_SIZE)
    time, wrong = str(record["time"]), str(record.get("wrong", "0"))
    own = kind_of_file(str(record["name"]))
    group = _group(record, ranks, per_host, devices, own)
    if not own:
        message = f"'{shown(str(record['name']))}' is no collective whose times are read"
    elif kind not in (None, own):
        message = f"this record is of {own}, but {kind} is asked for"
    elif not is_time(time):
        message = f"'{shown(time)}' is not a time above 0 us"
    elif wrong not in ("N/A", "None") and not re.fullmatch(r"0+(?:\.0*)?", wrong):
        message = f"{shown(wrong)} elements were wrong"
    elif not size:
        message = "it has no bytes"
    else:
        return group, MeasuredRow(own, size, float(time) * 1e-6, place)
    remarks.append(Remark(f"{message}: it is left out", place))
    return group, None


def _group(
    record: dict[str, Any], ranks: int, each: int, devices: int, kind: str | None
) -> tuple[int, int]:
    """Return the GPUs of all hosts and of one; zeros if a rank has several and none can be told.

    Processes are counted as ranks or their GPUs are: busBw / algBw tells which.
    """
    if devices == 1:
        return ranks, each
    factor = float(record["busBw"]) / (float(record.get("algBw", 0)) or math.inf)
    fitting = [
        times
        for times in (1, devices)
        if kind and abs(factor - COSTS[kind].busbw(ranks * times)) < 1e-3
    ]
    return (ranks * fitting[0], each * fitting[0]) if len(fitting) == 1 else (0, 0)
