"""Tables by the names of operations, to which packages add: errors name the table."""

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")


class MissingRowError(KeyError):
    """An operation that a table lacks.

    Attributes:
        operation: its name.
    """

    def __init__(self, operation: str, message: str):
        super().__init__(operation, message)
        self.operation = operation

    def __str__(self) -> str:
        return str(self.args[1])


class OperationTable(dict[str, V]):
    """A table by the names of operations.

    Args:
        name: the name of the table in its module.
        module: the name of the module.
        rows: the first rows.
        row: the word for a row, for the error of a look-up.

    Raises:
        MissingRowError: by a look-up, if there is no row of that name.
        ValueError: if a row is added after ``close``.
    """

    def __init__(self, name: str, module: str, rows: Mapping[str, V] | None = None, row: str = ""):
        super().__init__(rows or {})
        self._name, self._module, self._row = name, module, row
        self._closed = ""

    @property
    def title(self) -> str:
        """Its name and the name of its module."""
        return f"{self._name} ({self._module})"

    def close(self, reason: str) -> None:
        """Allow no more rows, for a reason that errors give."""
        self._closed = reason

    def __missing__(self, name: str) -> V:
        message = f"{name} has no row in {self.title}"
        if self._row:
            message += f': add {self._name}["{name}"], {self._row}'
        raise MissingRowError(name, message)

    def __setitem__(self, name: str, row: V) -> None:
        if self._closed:
            raise ValueError(f"{name} comes too late for {self.title}: {self._closed}")
        super().__setitem__(name, row)
