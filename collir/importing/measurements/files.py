"""Samples on a machine from files of measurements: the format, and the group that was measured."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from collir.cost.calibration.values import Sample
from collir.importing.measurements import (
    csv_times,
    deepspeed,
    imb,
    json_records,
    logs,
    nccl_json,
    nccl_tests,
    nvshmem,
    osu,
    own,
    perftest,
    prefixes,
    torch_bench,
)
from collir.importing.measurements.oddities import oddities
from collir.importing.measurements.tables import (
    LevelExtent,
    MeasuredTable,
    MeasuredTables,
    collective,
    mesh_over,
)
from collir.importing.values import ReadError, Remark, TextPlace
from collir.machine import Fabric, Machine, level_fabrics


@dataclass(frozen=True)
class MeasurementFormat:
    """A format: its name in messages, its reader, and a pattern that its texts contain."""

    about: str
    read: Callable[[str, str | None, str], MeasuredTables]
    mark: re.Pattern[str]


FORMATS = {
    "collir": MeasurementFormat(
        "collir's own", own.read, re.compile(rf"^{re.escape(own.TITLE)}", re.M)
    ),
    "nccl-tests-json": MeasurementFormat("nccl-tests' JSON", nccl_json.read, nccl_json.MARK),
    "nccl-tests": MeasurementFormat("nccl-tests'", nccl_tests.read, nccl_tests.MARK),
    "records": MeasurementFormat("rccl-tests' JSON", json_records.read, json_records.MARK),
    "torch": MeasurementFormat("all_reduce_bench.py's", torch_bench.read, torch_bench.MARK),
    "deepspeed": MeasurementFormat("DeepSpeed's", deepspeed.read, deepspeed.MARK),
    "nvshmem": MeasurementFormat("NVSHMEM's", nvshmem.read, nvshmem.MARK),
    "csv": MeasurementFormat("comma-separated", csv_times.read, csv_times.HEADER),
    "osu": MeasurementFormat("the OSU micro-benchmarks'", osu.read, osu.TITLE),
    "imb": MeasurementFormat("the Intel MPI Benchmarks'", imb.read, imb.MARK),
    "perftest": MeasurementFormat("perftest's", perftest.read, perftest.MARK),
}
"""Name of a format -> the format."""

_IN_LOGS = ("nccl-tests", "torch", "deepspeed", "nvshmem", "osu", "imb", "perftest")
"""Formats of which several may be in one text."""

_TIMES_LAST = ("osu", "imb", "perftest")
"""Formats that may have a time at the end of a line, which is another time if it is cut off."""


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times in a text of any of the formats.

    ``kind`` is the collective, if neither the text nor the file's name says it.

    Raises:
        ReadError: the text has none of the formats, or is malformed.
    """
    lines = prefixes.without_counter([logs.clean(line) for line in text.split("\n")], _is_known)
    text = "\n".join(lines)
    if not text.strip():
        raise ReadError("the file is empty", TextPlace(1))
    formats = _formats(text)
    if not formats:
        text = "\n".join(prefixes.without_common(lines))
        formats = _formats(text)
    if formats:
        whole = text
        if formats[0] in _TIMES_LAST:
            text = logs.without_cut_line(text)
        tables = FORMATS[formats[0]].read(text, kind, file)
        if text != whole:
            place = TextPlace(whole.count("\n") + 1)
            remark = Remark("the file ends in this line, which is cut off: it is left out", place)
            tables = replace(tables, remarks=(*tables.remarks, remark))
        tables = _with_others(tables, text, [name for name in formats[1:] if name in _IN_LOGS])
        remarks = (*tables.remarks, *oddities(lines, tables.tables))
        return replace(tables, remarks=tuple(sorted(remarks, key=lambda remark: remark.place)))
    known = ", ".join(format.about for format in FORMATS.values())
    raise ReadError(f"these are no measurements: the formats are {known}", TextPlace(1))


def _formats(text: str) -> list[str]:
    """Return the names of the formats that a text has."""
    return [name for name, format in FORMATS.items() if format.mark.search(text)]


def _is_known(line: str) -> bool:
    """Return True if a line is one that programs print before their times."""
    return any(FORMATS[name].mark.search(line) for name in _IN_LOGS)


def _with_others(tables: MeasuredTables, text: str, formats: list[str]) -> MeasuredTables:
    """Return tables with those of other formats in the same text."""
    for name in formats:
        try:
            more = FORMATS[name].read(text, None, "")
        except ReadError as error:
            tables = replace(tables, remarks=(*tables.remarks, Remark(error.message, error.place)))
        else:
            remarks = (*tables.remarks, *more.remarks)
            tables = MeasuredTables(tables.about, (*tables.tables, *more.tables), remarks)
    return tables


def samples(
    machine: Machine, tables: MeasuredTables, file: str, over: tuple[LevelExtent, ...] = ()
) -> list[Sample]:
    """Return the times of a file on a machine; ``over`` are the levels of its groups, if given.

    Raises:
        ReadError: the machine has no such group, or the group is not known.
    """
    result: list[Sample] = []
    for table in fitting(machine, tables, over).tables:
        mesh = mesh_over(machine, over or table.over or _of_hosts(machine, table), table.place)
        sizes = {axis.name: axis.size for axis in mesh.axes}
        counted = _counted(table)
        if counted not in (0, sizes["group"]):
            text = f"this run has {counted} ranks, but over=LEVELS names {sizes['group']}"
            raise ReadError(text, table.place)
        if table.beside not in (1, sizes["beside"]):
            raise ReadError(
                f"{table.beside} groups run at the same time here, but over=LEVELS names "
                f"{sizes['beside']}: a + says so, as in over={machine.levels[-1].name}:"
                f"{counted}+{table.beside}",
                table.place,
            )
        result += [
            Sample(collective(mesh, row), row.seconds, f"{file}:{row.place.line}")
            for row in table.rows
        ]
    return result


def fitting(
    machine: Machine, tables: MeasuredTables, over: tuple[LevelExtent, ...]
) -> MeasuredTables:
    """Return the tables whose number of ranks is the one of ``over``; remarks name the others.

    If no table fits, all are returned, since the levels are wrong then.

    Raises:
        ReadError: the machine has no such group.
    """
    if not over or not tables.tables:
        return tables
    mesh = mesh_over(machine, over, tables.tables[0].place)
    ranks = next(axis.size for axis in mesh.axes if axis.name == "group")
    others = [table for table in tables.tables if _counted(table) not in (0, ranks)]
    if not others or len(others) == len(tables.tables):
        return tables
    remarks = tuple(
        Remark(f"this run has {_counted(table)} ranks, not {ranks}: it is left out", table.place)
        for table in others
    )
    kept = tuple(table for table in tables.tables if table not in others)
    return MeasuredTables(tables.about, kept, tables.remarks + remarks)


def _counted(table: MeasuredTable) -> int:
    """Return the number of ranks that a file gives, or 0."""
    return table.ranks or sum(table.hosts)


def _of_hosts(machine: Machine, table: MeasuredTable) -> tuple[LevelExtent, ...]:
    """Return the levels of a run from its ranks on each host, filled from the inside outwards.

    Hosts are the children of the innermost level that is a network. A run with a rank for each
    device is on all of the machine.
    """
    if not table.hosts and table.ranks == machine.devices:
        return tuple(LevelExtent(level.name, 0) for level in machine.levels)
    if not table.hosts:
        what = (
            f"on which hosts the {table.ranks} ranks are"
            if table.ranks
            else "which ranks this is of"
        )
        raise ReadError(
            f"it is not said {what}: --from FILE,over=LEVELS, as in "
            f"over={'*'.join(f'{level.name}:{level.size}' for level in machine.levels)}",
            table.place,
        )
    per_host = table.hosts[0]
    if any(count != per_host for count in table.hosts):
        counts = ", ".join(map(str, table.hosts))
        raise ReadError(f"hosts have {counts} ranks: only as many on each can be used", table.place)
    kinds = level_fabrics(machine.levels)
    networks = [index for index, kind in enumerate(kinds) if kind is Fabric.NETWORK]
    inner = networks[-1] + 1 if networks else 0
    outside = _filled(machine, 0, inner, len(table.hosts), table, "hosts")
    inside = _filled(machine, inner, len(machine.levels), per_host, table, "ranks on each host")
    return tuple(outside + inside)


def _filled(
    machine: Machine, first: int, last: int, count: int, table: MeasuredTable, noun: str
) -> list[LevelExtent]:
    """Return extents that hold ``count`` children in total, filling the inner levels first."""
    remaining, filled = count, list[LevelExtent]()
    for level in reversed(machine.levels[first:last]):
        size = math.gcd(remaining, level.size)
        if size != level.size and remaining != size:
            remaining = 0  # an outer level would be used before this one is full
        filled.insert(0, LevelExtent(level.name, max(size, 1)))
        remaining //= size
    if remaining != 1:
        names = ", ".join(f"{x.name}[{x.size}]" for x in machine.levels[first:last]) or "no level"
        raise ReadError(
            f"{count} {noun} are not a part of {names} of machine @{machine.name}; --from "
            "FILE,over=LEVELS says which levels these are",
            table.place,
        )
    return filled
