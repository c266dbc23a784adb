"""The way in which rows of JAX are added to the table of all rows."""

from collections.abc import Callable
from typing import TypeVar

from collir.importing.models.rows.table import JAX, Row, row

_Row = TypeVar("_Row", bound=Row)


def jax_row(*names: str) -> Callable[[_Row], _Row]:
    """Add a row to the table, for operations of JAX of some names."""
    return row(*(JAX + name for name in names))
