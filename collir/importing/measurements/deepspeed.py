"""Reader of the communication benchmarks of DeepSpeed (ds_bench, benchmarks/communication).

    ---- Performance of all_reduce on 8 devices ------------------------------------------
    Size (Bytes)   Description    Duration     Throughput (Gbps)    BusBW (Gbps)
    4.0 MB         1048576x4      172.352 us   389.365              340.694

The description is the number of elements times their bytes, of the buffer of one rank. For an
all_gather that is a part of the full buffer, which the bandwidth of the bus tells.
"""

import re

from collir.cost.collectives.table import COSTS
from collir.importing.measurements.log_tables import LogTable, log_tables
from collir.importing.measurements.nccl_run import printed_interval
from collir.importing.measurements.tables import (
    KINDS,
    MAX_SIZE,
    MeasuredRow,
    MeasuredTable,
    MeasuredTables,
    TablesRead,
    check_asked,
    is_time,
)
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown

_TITLE = re.compile(r"-{2,8} ?Performance of (\w{1,40}) on (\d{1,10}) devices\b")
_HEADER = re.compile(r"Size \(Bytes\)\s+Description\s+Duration\b")
MARK = re.compile(rf"{_TITLE.pattern}|{_HEADER.pattern}")
"""A pattern that only these programs print."""

_ROW = re.compile(
    r"\s*\d[\d.]{0,30}(?: ?[KMGT]?i?B)?\s+(\d{1,20})x(\d{1,3})"
    r"\s+([\d.]{1,30})(?: ?(us|ms|s))?\s+[\d.]{1,30}\s+([\d.]{1,30})\s*"
)
_BEGUN = re.compile(r"\s*\d[\d.]*(?: ?[KMGT]?i?B)?\s+\d+x\d+\b")
_MICROSECONDS = {"us": 1.0, "ms": 1e3, "s": 1e6}
_NEAR = 0.03
_OF_A_RANK = ("all_gather", "reduce_scatter")
"""The collectives whose printed size is the part of a rank."""


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of all tables in a text, which names the collectives.

    Raises:
        ReadError: no table can be used, or is of another collective than that asked for.
    """
    tables = TablesRead()
    logged = log_tables(text, _TITLE, _HEADER)
    end = 0 if text.endswith("\n") else text.count("\n") + 1
    for table in logged:
        own = table.title[1] if table.title else kind
        if not own:
            raise ReadError(
                "it is not said which collective this is: --from FILE,collective=all_reduce",
                table.place,
            )
        if own not in KINDS or own == "send":
            tables.leave_out(own, table.place)
            continue
        check_asked(own, kind, table.place)
        ranks = int(table.title[2]) if table.title else 0
        rows = [
            row
            for place, line in table.lines
            if (row := _row(line, place, own, ranks, table, tables.remarks))
        ]
        if rows and own in _OF_A_RANK and rows[-1].place.line == end:
            message = "the file ends in this line, whose bandwidth may be cut off: it is left out"
            tables.remarks.append(Remark(message, rows.pop().place))
        tables.add(MeasuredTable(tuple(rows), table.place, ranks=ranks))
    return tables.all("Times of DeepSpeed.", logged[0].place)


def _row(
    line: str, place: TextPlace, kind: str, ranks: int, table: LogTable, remarks: list[Remark]
) -> MeasuredRow | None:
    match = _ROW.fullmatch(line)
    if not match:
        if _BEGUN.match(line):
            remarks.append(Remark("this line is cut off: it is left out", place))
        return None
    size = integer(str(int(match[1]) * int(match[2])), "a size", place, 0, MAX_SIZE)
    if not size or not is_time(match[3]):
        message = f"'{shown(match[3])}' is not a time above 0: this line is left out"
        remarks.append(Remark(message, place))
        return None
    seconds = float(match[3]) * _MICROSECONDS[match[4] or "us"] * 1e-6
    parts = _parts(kind, ranks, size / seconds, match[5], "Gbps" in table.header)
    if not parts:
        message = "busbw does not tell that this size took this time: this line is left out"
        remarks.append(Remark(message, place))
        return None
    return MeasuredRow(kind, size * parts, seconds, place)


def _parts(kind: str, ranks: int, rate: float, busbw: str, bits: bool) -> int:
    """Return how many times the printed size the full buffer has: 1, or the number of ranks.

    ``rate`` is the printed size divided by the time, in bytes/second. It is 0 if ``busbw`` fits
    neither, or cannot tell; without ranks nothing is compared.
    """
    interval = printed_interval(busbw)
    usual = ranks if kind in _OF_A_RANK else 1
    if ranks < 2 or not interval:
        return usual
    unit = 1e9 / 8 if bits else 1e9
    one_rank = rate * COSTS[kind].busbw(ranks)
    low, high = (unit * bound for bound in interval)
    fitting = [
        parts for parts in (1, ranks) if low * (1 - _NEAR) <= one_rank * parts <= high * (1 + _NEAR)
    ]
    if kind not in _OF_A_RANK and usual in fitting:
        return usual
    return fitting[0] if len(fitting) == 1 else 0
