"""Tables and quantities for people."""

import math
from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap

from collir.syntax.units import bytes_text as bytes_text
from collir.syntax.units import bytes_unit as bytes_unit
from collir.syntax.units import digits as digits
from collir.syntax.units import seconds_text as seconds_text
from collir.syntax.units import seconds_unit as seconds_unit
from collir.targets.reports.columns import folded
from collir.targets.reports.terminal import drawn, terminal_width

WIDTH = 120
"""The columns that lines of reports fit."""

_GAP = "  "
"""The gap between two columns of a table."""


def rate_text(rate: float) -> str:
    """Return a bandwidth such as ``235 GB/s``."""
    return f"{bytes_text(rate)}/s" if rate != float("inf") else "-"


def ratio_text(value: float, lowest: float) -> str:
    """Return the ratio of a value to its lower bound, such as ``1.05x``; ``-`` from 1000 on, where
    the bound tells nothing."""
    ratio = value / lowest if lowest > 0 else math.inf
    if ratio >= 1000:
        return "-"
    return f"{ratio:.2f}x" if ratio < 100 else f"{ratio:.0f}x"


def percent_text(part: float, total: float) -> str:
    """Return a share such as ``43%``."""
    return f"{100 * part / total:.0f}%" if total else "0%"


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], left: int, indent: int = 2
) -> list[str]:
    """Return lines of columns; the first ``left`` columns are flush left, the rest flush right.

    Cells are on several lines where the lines would be longer than ``WIDTH``. On a terminal, the
    table is drawn, and as wide as that.

    Args:
        head: the names of the columns; none if they have no names.
        indent: the columns before the table where it is printed.
    """
    return [line for row in table_rows(head, rows, left, indent) for line in row]


def table_rows(
    head: Sequence[str], rows: Sequence[Sequence[str]], left: int, indent: int = 2
) -> list[list[str]]:
    """Return the lines of each row of a ``table``, those of its head first if it has one."""
    cells = [head, *rows] if head else [*rows]
    if not cells:
        return []
    gaps = len(_GAP) * (len(cells[0]) - 1)
    terminal = terminal_width()
    folded_rows = folded(cells, left, (terminal or WIDTH) - indent - gaps)
    if head:  # its last lines stand next to the rows
        deep = max(map(len, folded_rows[0]))
        folded_rows[0] = [[*[""] * (deep - len(cell)), *cell] for cell in folded_rows[0]]
    if terminal:
        return drawn(folded_rows, bool(head), left)
    widths = [max(len(line) for cell in x for line in cell) for x in zip(*folded_rows, strict=True)]

    def line(parts: Sequence[str]) -> str:
        padded = (
            part.ljust(width) if i < left else part.rjust(width)
            for i, (part, width) in enumerate(zip(parts, widths, strict=True))
        )
        return _GAP.join(padded).rstrip()

    return [[line(parts) for parts in zip_longest(*row, fillvalue="")] for row in folded_rows]


def wrapped(text: str, indent: int = 0) -> list[str]:
    """Return a sentence on lines that are not longer than ``WIDTH``, with a hanging indent.

    Args:
        indent: the columns before the lines where they are printed.
    """
    hanging = " " * (len(text) - len(text.lstrip()) + 2)
    return wrap(
        text,
        min(WIDTH, terminal_width() or WIDTH) - indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
