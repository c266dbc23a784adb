"""Remarks on a text of measurements as a whole: failures, lines that were cut out, equal runs."""

import re
from collections.abc import Iterator, Sequence

from collir.importing.measurements import logs
from collir.importing.measurements.tables import MeasuredTable
from collir.importing.values import Remark, TextPlace, shown

_WARNING = re.compile(r"\bNCCL WARN (?P<message>.*)")
_FAILURE = re.compile(
    r"\bTest (?:NCCL |CUDA )?failure\b|\bMPI_A(?:BORT|bort)\b|\bSegmentation fault\b|\bBus error\b"
    r"|\bunhandled (?:cuda|system) error\b|\bout of memory\b|\bCANCELLED\b|\bTraceback \("
    r"|\bsrun: error\b|\bBAD TERMINATION\b|^Killed\b|\bTest exited with Error\b"
)


def oddities(lines: Sequence[str], tables: Sequence[MeasuredTable]) -> list[Remark]:
    """Return remarks on what the reader of a format does not see."""
    return [*_messages(lines), *_elided(lines, tables), *_again(tables)]


def _messages(lines: Sequence[str]) -> Iterator[Remark]:
    """Yield a remark for the first warning of NCCL, and one for the first failure."""
    warned = failed = False
    for number, line in enumerate(lines, 1):
        if not warned and (match := _WARNING.search(line)):
            warned = True
            message = f"NCCL warned here: {shown(match['message'].strip())}"
            yield Remark(
                f"{message}; times may be of a run that did not go as intended", TextPlace(number)
            )
        elif not failed and _FAILURE.search(line):
            failed = True
            yield Remark("a program failed here: runs may be cut off", TextPlace(number))


def _elided(lines: Sequence[str], tables: Sequence[MeasuredTable]) -> Iterator[Remark]:
    """Yield a remark for each line after times that replaces lines that were cut out."""
    places = sorted({row.place.line for table in tables for row in table.rows})
    last = 0
    for number, line in enumerate(lines, 1):
        if number in places[last : last + 1]:
            last += 1
        elif last and not line[-1:].isdigit() and (match := logs.ELIDED.fullmatch(line)):
            before = lines[places[last - 1] - 1]
            if before.startswith(match[1].rstrip()):
                yield Remark(
                    "lines were cut out here: the times in them are missing", TextPlace(number)
                )


def _again(tables: Sequence[MeasuredTable]) -> Iterator[Remark]:
    """Yield a remark for each run that measured the same as one before it, of the same size."""
    seen: dict[object, TextPlace] = {}
    for table in tables:
        group = table.over, table.hosts, table.ranks, table.beside
        places = [seen.setdefault((group, row.kind, row.size), table.place) for row in table.rows]
        earlier = [place for place in places if place != table.place]
        if earlier:
            text = f"this run measured the same as that of line {earlier[0].line}: both are read"
            yield Remark(text, table.place)
