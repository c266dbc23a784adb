"""The fields of records among names: those of ``%w`` are all values named ``%w.`` and more."""

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")

Fields = tuple[str, ...]
"""The names of the fields of a record, in order."""


def records_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield the records that a value belongs to by its name, each with the name of the field in
    it, the outermost first."""
    parts = name.split(".")
    for depth in range(1, len(parts)):
        yield ".".join(parts[:depth]), ".".join(parts[depth:])


def groups(names: Sequence[str], records: Container[str] = ()) -> tuple[Fields | None, ...]:
    """Return the outermost records that names are fields of, and None for a single value.

    The fields of a record follow each other. A field that comes again begins another record, and
    one alone is no record.

    Args:
        records: the names of fields that are some of a record even alone.
    """
    listed: list[tuple[str, list[str]]] = []
    for name in names:
        head, _, field = name.partition(".")
        if field and listed and listed[-1][0] == head and not {"", field} & {*listed[-1][1]}:
            listed[-1][1].append(field)
        else:
            listed.append((head, [field]))
    return tuple(
        tuple(fields) if len(fields) > 1 or f"{head}.{fields[0]}" in records else None
        for head, fields in listed
    )


def parted(items: Sequence[Item], expected: Iterable[Fields | None]) -> Iterator[list[Item]]:
    """Yield the items of each record, one for each of its fields, and those of single values."""
    left = iter(items)
    for fields in expected:
        yield list(islice(left, len(fields or ("",))))


class Scope:
    """The records among the values that are defined so far."""

    def __init__(self) -> None:
        self.records: dict[str, list[str]] = {}

    def add(self, name: str) -> None:
        """Add a value, which is a field if its name has dots."""
        if "." in name:
            for record, field in records_of(name):
                self.records.setdefault(record, []).append(field)

    def add_all(self, names: Iterable[str]) -> None:
        """Add values in order."""
        for name in names:
            self.add(name)

    def fields(self, name: str) -> Fields | None:
        """Return the fields of a record; None if there is none of a name."""
        found = self.records.get(name)
        return None if found is None else tuple(found)

    def whole(self, names: Sequence[str]) -> list[str]:
        """Return names with those of whole records, the outermost, in the place of their fields."""
        shown_names: list[str] = []
        left = list(names)
        while left:
            shown, count = left[0], 1
            for record, _ in records_of(left[0]):
                fields = self.records.get(record, ())
                if fields and left[: len(fields)] == [f"{record}.{field}" for field in fields]:
                    shown, count = record, len(fields)
                    break
            shown_names.append(shown)
            left = left[count:]
        return shown_names

    def named(self, names: Sequence[str], expected: Sequence[Fields | None]) -> list[str]:
        """Return names with those of whole records where records of their fields are expected."""
        found: list[str] = []
        for fields, mine in zip(expected, parted(names, expected), strict=True):
            record = mine[0].removesuffix(f".{fields[0]}") if fields else ""
            found += [record] if fields and self.whole(mine) == [record] else mine
        return found
