"""Tables and quantities for people."""

import math
from collections.abc import Sequence

from collir.syntax.units import bytes_text as bytes_text
from collir.syntax.units import bytes_unit as bytes_unit
from collir.syntax.units import digits as digits
from collir.syntax.units import seconds_text as seconds_text
from collir.syntax.units import seconds_unit as seconds_unit


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


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return lines of columns; the first ``left`` columns are flush left, the rest flush right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    return [line(head), *map(line, rows)]
