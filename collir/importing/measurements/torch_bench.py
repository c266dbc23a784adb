"""Reader of all_reduce_bench.py and torch-dist-bench.py of the book Machine Learning Engineering.

    The average bandwidth of all_reduce over 16 ranks (5 warmups / 20 trials):

    | payload |    busbw   |    algbw   |
    | ------: | ---------: | ---------: |
    |   32KiB |   0.92GBps |   0.49GBps |

Payloads are full buffers, in powers of 1024 bytes. The time is the mean of the calls if there is
such a column, and else the payload divided by algbw, which is printed with two digits. Before there
was a table, a sentence had the payload in 10^9 bytes, and two lines the bandwidths.
"""

import re

from collir.importing.measurements.log_tables import LogTable, log_tables
from collir.importing.measurements.names import kind_of_file
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

_TITLE = re.compile(
    r"The average bandwidth (?:and the per-call latency )?of (?P<kind>\w{1,40}) "
    r"(?:over (?P<ranks>\d{1,10}) ranks|with a (?P<payload>[\d.]{1,30})GB payload "
    r"\(\d{1,10} trials, (?P<all>\d{1,10}) ranks\))"
)
_HEADER = re.compile(r"\|\s*payload\s*\|\s*busbw\s*\|\s*algbw\s*\|")
MARK = re.compile(rf"{_TITLE.pattern}|{_HEADER.pattern}")
"""A pattern that only these programs print."""

_ROW = re.compile(r"\s*\|\s*(?P<size>\d{1,20}(?:\.\d{1,9})?)(?P<unit>[KMGTPE]?)i?B\s*\|.*")
_BANDWIDTH = re.compile(r"\s*(?:algbw:\s*)?(\d{1,20}\.(\d{1,6}))\s*GBps\b.*")
_LATENCY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)us")
_UNITS = " KMGTPE"
_LEAST_DIGITS = 0.05
"""The largest error of a bandwidth by its digits, relative to it, with which it is read."""


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of all tables in a text.

    Raises:
        ReadError: no table can be used, or is of another collective than that asked for.
    """
    tables = TablesRead()
    logged = log_tables(text, _TITLE, _HEADER)
    for table in logged:
        own = _kind(table, kind, file)
        if own not in KINDS:
            tables.leave_out(own, table.place)
            continue
        check_asked(own, kind, table.place)
        rows = tuple(_rows(table, own, tables.remarks))
        tables.add(MeasuredTable(rows, table.place, ranks=_ranks(table)))
    return tables.all("Times of torch.distributed.", logged[0].place)


def _kind(table: LogTable, asked: str | None, file: str) -> str:
    """Return the collective of a table; only an all_reduce was printed without naming it."""
    if table.title:
        return table.title["kind"]
    return asked or kind_of_file(file) or "all_reduce"


def _ranks(table: LogTable) -> int:
    return int(table.title["ranks"] or table.title["all"]) if table.title else 0


def _rows(table: LogTable, kind: str, remarks: list[Remark]) -> list[MeasuredRow]:
    if table.title and (payload := table.title["payload"]):
        return _of_sentence(table, kind, payload, remarks)
    columns = [name.strip() for name in table.header.strip().strip("|").split("|")]
    rows: list[MeasuredRow] = []
    for place, line in table.lines:
        match = _ROW.fullmatch(line)
        if not match:
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != len(columns) or not line.rstrip().endswith("|"):
            message = f"this line has {len(cells)} of {len(columns)} columns: it is left out"
            remarks.append(Remark(message, place))
            continue
        size = round(float(match["size"]) * 1024 ** _UNITS.index(match["unit"] or " "))
        integer(str(size), "a payload", place, 0, MAX_SIZE)
        values = dict(zip(columns, cells, strict=True))
        if "mean" in values:
            seconds = _latency(values["mean"], place, remarks)
        else:
            seconds = _by_bandwidth(size, values["algbw"], place, remarks)
        if size and seconds:
            rows.append(MeasuredRow(kind, size, seconds, place))
    return rows


def _of_sentence(
    table: LogTable, kind: str, payload: str, remarks: list[Remark]
) -> list[MeasuredRow]:
    """Return the time of a payload named by a sentence, to which the next lines belong."""
    if not re.fullmatch(r"\d{1,12}(?:\.\d{1,15})?", payload):
        raise ReadError(f"'{shown(payload)}' is not a payload in GB", table.place)
    size = round(float(payload) * 1e9)
    for place, line in table.lines:
        if "algbw:" in line:
            seconds = _by_bandwidth(size, line.strip(), place, remarks)
            return [MeasuredRow(kind, size, seconds, place)] if seconds and size else []
    return []


def _latency(text: str, place: TextPlace, remarks: list[Remark]) -> float:
    """Return a time in seconds, 0 if there is none, with a remark."""
    match = _LATENCY.fullmatch(text)
    if match and is_time(match[1]):
        return float(match[1]) * 1e-6
    remarks.append(Remark(f"'{shown(text)}' is not a time above 0 us: it is left out", place))
    return 0.0


def _by_bandwidth(size: int, text: str, place: TextPlace, remarks: list[Remark]) -> float:
    """Return the time in seconds that a bandwidth tells, 0 if it has too few digits."""
    match = _BANDWIDTH.fullmatch(text)
    if not match:
        remarks.append(Remark(f"'{shown(text)}' is not a bandwidth: it is left out", place))
        return 0.0
    if 0.5 * 10.0 ** -len(match[2]) > _LEAST_DIGITS * float(match[1]):
        message = f"{match[1]} GB/s has too few digits to tell a time: it is left out"
        remarks.append(Remark(message, place))
        return 0.0
    return size / (float(match[1]) * 1e9)
