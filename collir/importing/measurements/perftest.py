"""Reader of perftest (ib_write_lat, ib_send_lat, ib_write_bw, ...): messages between two hosts.

Latency tests give the time of a message of each size, from the first host to the second. Bandwidth
tests have many messages under way, so they give the port of a machine and no time; a remark says
it. Reads wait for their requests too, so they are no messages one way.
"""

import re

from collir.importing.measurements.log_tables import LogTable, log_tables
from collir.importing.measurements.tables import (
    MAX_SIZE,
    MeasuredRow,
    MeasuredTable,
    MeasuredTables,
    TablesRead,
    is_time,
    read_seconds,
)
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown

_TITLE = re.compile(
    r"\b(?P<verb>RDMA_Write|RDMA_Read|Send|Raw Ethernet|Atomic_\w{1,20})(?: with Immediate)? "
    r"(?P<both>Bidirectional )?(?:Post List )?(?P<what>BW|Latency)\b[ \w]{0,40}?Test\b"
)
_HEADER = re.compile(
    r"#bytes[ \t]+#iterations[ \t]+(?:t_min|t_avg|BW)\b|#bytes[^\n]{0,60}BW[ _]peak"
)
MARK = re.compile(r"#bytes[ \t]+(?:#\w+[ \t]+){0,3}#iterations[ \t]")
"""A pattern that only these programs print."""

_ROW = re.compile(r"\s*\d+\s+\d+(?:\s+[\d.eE+\-]+)*\s*")
_LATENCIES = ("t_avg[usec]", "t_typical[usec]")
_BANDWIDTHS = {"MB": 2.0**20, "Gb": 1e9 / 8}
_AVERAGE = re.compile(r"BW[ _]average\[(MB|Gb)/sec\]")


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of messages between two hosts.

    Raises:
        ReadError: there is no latency test of messages, or a collective is asked for.
    """
    tables = TablesRead()
    logged = [table for table in log_tables(text, _TITLE, _HEADER) if table.header]
    if not logged:
        raise ReadError("this table has other columns than times or bandwidths", TextPlace(1))
    for table in logged:
        if kind not in (None, "send"):
            raise ReadError(f"these are messages (send), but {kind} is asked for", table.place)
        verb = table.title["verb"] if table.title else ""
        if average := _AVERAGE.search(table.header):
            _bandwidth(table, _BANDWIDTHS[average[1]], tables.remarks)
        elif verb in ("RDMA_Read", "Raw Ethernet") or verb.startswith("Atomic"):
            message = "these operations wait for an answer, and are no messages one way"
            tables.remarks.append(Remark(f"{message}: they are left out", table.place))
        else:
            rows = tuple(_latencies(table, tables.remarks))
            tables.add(MeasuredTable(rows, table.place, hosts=(1, 1), ranks=2))
    return tables.all("Times of perftest.", logged[0].place)


def _latencies(table: LogTable, remarks: list[Remark]) -> list[MeasuredRow]:
    columns = table.header.split()
    at = next((columns.index(name) for name in _LATENCIES if name in columns), 0)
    if not at:
        raise ReadError(f"there is no column of times: {', '.join(_LATENCIES)}", table.place)
    least = min(len(columns), at + 2)
    rows: list[MeasuredRow] = []
    for place, line in table.lines:
        if not _ROW.fullmatch(line):
            continue
        cells = line.split()
        if len(cells) < least:
            message = f"this line has {len(cells)} of {len(columns)} columns: it is left out"
            remarks.append(Remark(message, place))
        elif (seconds := read_seconds(cells[at], place, remarks)) and (
            size := integer(cells[0], "a size", place, 0, MAX_SIZE)
        ):
            rows.append(MeasuredRow("send", size, seconds, place))
    return rows


def _bandwidth(table: LogTable, unit: float, remarks: list[Remark]) -> None:
    """Add the largest bandwidth of a table as a remark that says how to use it."""
    at = len(table.header.split("BW")[0].split()) + 1
    rates = [
        (float(cells[at]) * unit, cells[0], place)
        for place, line in table.lines
        if _ROW.fullmatch(line) and len(cells := line.split()) > at and is_time(cells[at])
    ]
    if not rates:
        message = "this table has no bandwidths: the file may be cut off"
        remarks.append(Remark(message, table.place))
        return
    rate, size, place = max(rates, key=lambda each: each[0])
    both = " of both directions together" if table.title and table.title["both"] else ""
    remarks.append(
        Remark(
            f"this is the bandwidth{both} with many messages under way, not the time of one, at "
            f"most {rate / 1e9:.4g} GB/s with {shown(size)} bytes: write it as the port of a "
            "machine, and measure latencies with ib_write_lat -a",
            place,
        )
    )
