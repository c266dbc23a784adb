"""Files of measurements as samples on a machine: the format, and which group was measured."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from collir.cost.calibration.values import Sample
from collir.importing.machines import Place, ReadError
from collir.importing.measurements import csv_times, nccl_tests, osu, own
from collir.importing.measurements.tables import Part, Table, Tables, collective, mesh_over
from collir.machine import Fabric, Machine, level_fabrics


@dataclass(frozen=True)
class Format:
    """A format: what it is, its reader, and what a text of it has somewhere."""

    about: str
    read: Callable[[str, str | None, str], Tables]
    mark: re.Pattern[str]


FORMATS = {
    "collir": Format("collir's own", own.read, re.compile(rf"^{re.escape(own.TITLE)}", re.M)),
    "nccl-tests": Format("nccl-tests'", nccl_tests.read, nccl_tests.MARK),
    "csv": Format("comma-separated", csv_times.read, csv_times.HEADER),
    "osu": Format("the OSU micro-benchmarks'", osu.read, osu.TITLE),
}
"""Name -> format."""


def read(text: str, kind: str | None = None, file: str = "") -> Tables:
    """The times in a text of any of the formats.

    ``kind`` is the collective where the text of nccl-tests, or the file's name, does not say it.

    Raises:
        ReadError: it is none of them, or malformed.
    """
    if not text.strip():
        raise ReadError("the file is empty", Place(1))
    for one in FORMATS.values():
        if one.mark.search(text):
            return one.read(text, kind, file)
    known = ", ".join(one.about for one in FORMATS.values())
    raise ReadError(f"these are no measurements: the formats are {known}", Place(1))


def samples(
    machine: Machine, tables: Tables, file: str, over: tuple[Part, ...] = ()
) -> list[Sample]:
    """The times of a file on a machine; ``over`` are the levels of its groups, where given.

    Raises:
        ReadError: a group is not one of the machine, or it is not known.
    """
    found: list[Sample] = []
    for table in tables.tables:
        mesh = mesh_over(machine, over or table.over or _of_hosts(machine, table), table.place)
        found += [
            Sample(collective(mesh, row), row.seconds, f"{file}:{row.place.line}")
            for row in table.rows
        ]
    return found


def _of_hosts(machine: Machine, table: Table) -> tuple[Part, ...]:
    """The levels of a run of which the ranks on each host are known: from the inside outwards.

    Hosts are the children of the innermost level that is a network.
    """
    if not table.hosts:
        raise ReadError(
            "it is not said which ranks this is of: --from FILE,over=LEVELS, as in "
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
    machine: Machine, first: int, last: int, count: int, table: Table, what: str
) -> list[Part]:
    """So many children of some levels: those of the inner ones first."""
    rest, found = count, list[Part]()
    for level in reversed(machine.levels[first:last]):
        size = math.gcd(rest, level.size)
        if size != level.size and rest != size:
            rest = 0  # an outer level would be used before this one is full
        found.insert(0, Part(level.name, max(size, 1)))
        rest //= size
    if rest != 1:
        names = ", ".join(f"{x.name}[{x.size}]" for x in machine.levels[first:last]) or "no level"
        raise ReadError(
            f"{count} {what} are not a part of {names} of machine @{machine.name}; --from "
            "FILE,over=LEVELS says which levels these are",
            table.place,
        )
    return found
