"""Tables by the names of operations, to which packages add: errors name the table."""

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")


class MissingRowError(KeyError):
    """An operation that a table lacks."""

    def __str__(self) -> str:
        return str(self.args[0])


class OperationTable(dict[str, V]):
    """A table by the names of operations.

    Args:
        name: the name of the table in its module.
        module: the name of the module.
        rows: the first rows.

    Raises:
        MissingRowError: by a look-up, if there is no row of that name.
        ValueError: if a row is added after ``close``.
    """

    def __init__(self, name: str, module: str, rows: Mapping[str, V] | None = None):
        super().__init__(rows or {})
        self._title = f"{name} ({module})"
        self._closed = ""

    def close(self, reason: str) -> None:
        """Allow no more rows, for a reason that errors give."""
        self._closed = reason

    def __missing__(self, name: str) -> V:
        raise MissingRowError(f"{name} has no row in {self._title}")

    def __setitem__(self, name: str, row: V) -> None:
        if self._closed:
            raise ValueError(f"{name} comes too late for {self._title}: {self._closed}")
        super().__setitem__(name, row)
