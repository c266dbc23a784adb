"""Tables that ``nsys stats -r cuda_gpu_trace --format csv`` prints: what ran on each device.

The units are in the header. Other lines may be before it.
"""

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

from collir.importing.traces.chrome import opened, read_up_to
from collir.importing.traces.loose import UNREADABLE, finite
from collir.importing.traces.names import is_collective_kernel, kind_of
from collir.importing.traces.profile import TraceProfile
from collir.importing.traces.trace import RankTrace, TracedCollective
from collir.importing.values import ReadError, TextPlace

_UNIT = re.compile(r"\((n|u|µ|μ|m)?s(?:ec)?\w*\)")
_UNITS = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "": 1.0}
_DEVICE = re.compile(r"(\d+)\)?$")
_CHUNK = 2**20
_LONGEST = 2**20
"""The most characters of a line."""


class _Columns(NamedTuple):
    """The columns of a row by content, and the units of times in seconds."""

    start: int
    duration: int
    name: int
    device: int | None
    stream: int | None
    start_unit: float
    duration_unit: float


def is_nsys_csv(head: str) -> bool:
    """Return whether this is the beginning of such a table."""
    return any(_columns(row) for row in _headers(head))


def _headers(head: str) -> Iterator[list[str]]:
    """Yield the rows of a text that may be the header of a table."""
    for line in head.splitlines():
        if "Start" in line and "Duration" in line and len(line) < _LONGEST:
            yield from csv.reader([line])


def _columns(header: Sequence[str]) -> _Columns | None:
    """Return the columns of a table, or None if it is another one."""
    places = {re.sub(r"\s*\(.*", "", x).strip(): number for number, x in enumerate(header)}
    if not {"Start", "Duration", "Name", "CorrId"} <= places.keys():
        return None
    start, duration = places["Start"], places["Duration"]
    return _Columns(
        start, duration, places["Name"], places.get("Device"), places.get("Strm"),
        _unit(header[start]), _unit(header[duration]),
    )  # fmt: skip


def _unit(name: str) -> float:
    match = _UNIT.search(name)
    return _UNITS[match[1] or ""] if match else 1e-9


def read_nsys_csv(path: Path) -> TraceProfile:
    """Return what a table says.

    Raises:
        ReadError: it is damaged.
        OSError: it cannot be read.
    """
    profile = TraceProfile(path)
    devices: dict[int, RankTrace] = {}
    columns: _Columns | None = None
    with opened(path) as stream:
        rows = csv.reader(_lines(stream, profile))
        try:
            for row in rows:
                if columns is None:
                    columns = _columns(row)
                    continue
                if not row:
                    continue
                profile.events += 1
                profile.ignored += not _take(row, columns, devices, path)
        except csv.Error as error:
            raise ReadError(
                f"this is no row of a table: {error}", TextPlace(rows.line_num)
            ) from error
    profile.devices = [devices[x] for x in sorted(devices)]
    for device in profile.devices:
        device.collectives.sort(key=lambda x: x.issued)
    return profile


def _take(row: Sequence[str], columns: _Columns, devices: dict[int, RankTrace], path: Path) -> bool:
    """Take in a row; return whether it says anything."""
    try:
        start = finite(row[columns.start]) * columns.start_unit
        end = start + max(0.0, finite(row[columns.duration])) * columns.duration_unit
        name = row[columns.name]
        device = "" if columns.device is None else row[columns.device]
        stream = "" if columns.stream is None else row[columns.stream]
    except UNREADABLE:
        return False
    match = _DEVICE.search(device)
    rank = devices.setdefault(int(match[1]) if match else 0, RankTrace(-1, str(path)))
    if is_collective_kernel(name):
        rank.collectives.append(
            TracedCollective(kind_of(name), name, 0.0, start, end, start, stream)
        )
    else:
        rank.work.add(name, start, end)
    return True


def _lines(stream: BufferedIOBase, profile: TraceProfile) -> Iterator[str]:
    """Yield the lines of a file; the last one is cut off if nothing ends it."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    rest, is_damaged = "", False
    while not is_damaged:
        data, is_damaged = read_up_to(stream, _CHUNK)
        if not data:
            break
        *lines, rest = (rest + decode(data)).split("\n")
        for line in lines:
            yield line + "\n"
        if len(rest) > _LONGEST:
            raise ReadError(f"a line is longer than {_LONGEST // 2**20} MB", TextPlace(1))
    profile.cut_off = is_damaged or bool(rest)
