"""Cells of the tables of pages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HtmlCell:
    """A cell of a table.

    Attributes:
        value: the number that it is sorted by; None: it is sorted by its text.
    """

    text: str
    value: float | None = None
