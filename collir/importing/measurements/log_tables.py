"""Tables in logs: a title, the names of columns, and the lines below, without their prefix."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from collir.importing.measurements import logs
from collir.importing.values import TextPlace


@dataclass
class LogTable:
    """A table of a log, while it is read.

    Attributes:
        place: the place of the title, or of the names of columns if there is none.
        title: the match of the title, or None.
        header: the line of the names of columns, from their start; empty before it is read.
        lines: the lines below, each with its place.
    """

    place: TextPlace
    title: re.Match[str] | None
    header: str = ""
    lines: list[tuple[TextPlace, str]] = field(default_factory=list[tuple[TextPlace, str]])


def log_tables(
    text: str, title: re.Pattern[str], header: re.Pattern[str] | None = None
) -> list[LogTable]:
    """Return the tables of a text, in order; those without names of columns too.

    What stands in front of a title or of names of columns is the prefix of the lines below. Lines
    with another prefix belong to other tables, or to none. Without a pattern
    for them, names of columns are lines like others.
    """
    listed: list[LogTable] = []
    streams: dict[str, tuple[str, LogTable]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        place = TextPlace(number)
        if match := title.search(line):
            prefix = line[: match.start()]
            listed.append(LogTable(place, match))
            logs.begin(streams, prefix, (prefix, listed[-1]))
        elif header and (match := header.search(line)):
            prefix = line[: match.start()]
            _, table = streams.get(logs.stream(prefix), ("", None))
            if table is None or table.header:
                table = LogTable(place, table.title if table else None)
                listed.append(table)
            table.header = line[match.start() :]
            logs.begin(streams, prefix, (prefix, table))
        else:
            for table, rest in _belonging(streams, line):
                table.lines.append((place, rest))
    return listed


def _belonging(
    streams: dict[str, tuple[str, LogTable]], line: str
) -> Iterator[tuple[LogTable, str]]:
    """Yield the tables that a line belongs to by its prefix, with the rest of the line."""
    for prefix, table in streams.values():
        rest = logs.without(prefix, line)
        if rest is not None:
            yield table, rest
