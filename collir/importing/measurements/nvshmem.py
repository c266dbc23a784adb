"""Reader of the collectives of NVSHMEM's perftest (3.x): tables with algbw and busbw.

    #reduction_on_stream
    size(B)     count     type      redop     latency(us)       min_lat(us) ...  busbw(GB/s)

Sizes are those of the full buffer. Collectives on a device are timed on a thread, a warp and a
block; only those of a block are read.
"""

import re

from collir.importing.measurements.log_tables import LogTable, log_tables
from collir.importing.measurements.nccl_run import NcclRun, Time, printed_interval
from collir.importing.measurements.tables import (
    MAX_SIZE,
    MeasuredTables,
    TablesRead,
    check_asked,
    is_time,
)
from collir.importing.numbers import integer
from collir.importing.values import ReadError, Remark, TextPlace, shown

_JOBS = {
    "reduction": "all_reduce",
    "reducescatter": "reduce_scatter",
    "fcollect": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
}
_TITLE = re.compile(
    rf"#[ \t]{{0,10}}(?:device_)?({'|'.join(_JOBS)})(?:_on_stream|_device)?(?=[ \t]*$)",
    re.MULTILINE,
)
_HEADER = re.compile(
    r"size\(B\)[ \t]+count[ \t]+type[ \t]+(?:redop[ \t]+)?(?:scope[ \t]+)?latency\(us\)"
)
MARK = _HEADER
"""A pattern that only these programs print."""

_ROW = re.compile(r"\s*\d+\s+\d+\s+[A-Za-z]\S*(?:\s.*)?")


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times of all tables in a text, whose titles name the collectives.

    Raises:
        ReadError: no table can be used, or is of another collective than that asked for.
    """
    tables = TablesRead()
    logged = [table for table in log_tables(text, _TITLE, _HEADER) if table.header]
    for table in logged:
        own = _JOBS[table.title[1]] if table.title else kind
        if not own:
            message = "it is not said which collective this is: --from FILE,collective=all_reduce"
            raise ReadError(message, table.place)
        check_asked(own, kind, table.place)
        run = NcclRun(table.place, own)
        before = len(tables.remarks)
        _read_lines(table, run, tables.remarks)
        if run.times:
            tables.tables.append(run.table(None, tables.remarks))
        elif len(tables.remarks) == before:
            message = "this table has no times that can be used: the file may be cut off"
            tables.remarks.append(Remark(message, table.place))
    return tables.all("Times of NVSHMEM.", logged[0].place)


def _read_lines(table: LogTable, run: NcclRun, remarks: list[Remark]) -> None:
    columns = table.header.split()
    scopes: dict[str, TextPlace] = {}
    for place, line in table.lines:
        if not _ROW.fullmatch(line):
            continue
        cells = line.split()
        if len(cells) != len(columns):
            message = f"this line has {len(cells)} of {len(columns)} columns: it is left out"
            remarks.append(Remark(message, place))
            continue
        values = dict(zip(columns, cells, strict=True))
        size = integer(values["size(B)"], "a size", place, 0, MAX_SIZE)
        if values.get("scope", "block") != "block":
            scopes.setdefault(values["scope"], place)
        elif not is_time(values["latency(us)"]):
            text = f"'{shown(values['latency(us)'])}' is not a time above 0 us: it is left out"
            remarks.append(Remark(text, place))
        elif size:
            run.times.append(
                Time(
                    size,
                    float(values["latency(us)"]) * 1e-6,
                    place,
                    None,
                    algbw=printed_interval(values.get("algbw(GB/s)", "")),
                    busbw=printed_interval(values.get("busbw(GB/s)", "")),
                )
            )
    for scope, place in scopes.items():
        text = f"these are times on a {shown(scope)}, not on a block: they are left out"
        remarks.append(Remark(text, place))
