"""Tables as a terminal shows them, drawn by rich; plain text everywhere else."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from itertools import accumulate, pairwise
from typing import TextIO

from collir.targets.reports.columns import Cell

_width: ContextVar[int | None] = ContextVar("terminal_width", default=None)

_USUAL = 80
"""The columns of a terminal that does not say how many it has."""

_NARROWEST = 20
"""The columns that tables and sentences are folded to at least."""

_SHORT = 2
"""The longest cells of a column of marks or numbers of rows, which has no colour."""


def terminal_width() -> int | None:
    """Return the columns of the terminal that tables are drawn for; None if they are plain."""
    return _width.get()


@contextmanager
def drawn_on(stream: TextIO | None) -> Generator[None]:
    """Draw tables while the block runs if they go to a terminal; None: keep them plain."""
    token = _width.set(_columns(stream) if stream else None)
    try:
        yield
    finally:
        _width.reset(token)


def _columns(stream: TextIO) -> int | None:
    """Return the columns of a terminal that shows styles."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return None
    if not (stream.encoding or "").lower().startswith("utf") or find_spec("rich") is None:
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or _USUAL
        return max(columns, _NARROWEST)
    except OSError:
        return _USUAL


def drawn(rows: Sequence[Sequence[Cell]], has_head: bool, left: int) -> list[list[str]]:
    """Return the lines of each row of a table as rich draws them.

    Args:
        rows: the lines of all cells.
        has_head: whether the first row is the head.
        left: the number of columns, from the first, that are flush left.
    """
    # Imported here because it is slow, and most runs draw nothing.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    head, body = (rows[0], rows[1:]) if has_head else ([[""]] * len(rows[0]), rows)
    table = Table(
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0),
        show_header=has_head,
    )  # fmt: skip
    widest = [max(len(line) for row in rows for line in row[i]) for i in range(left)]
    coloured = next((i for i, width in enumerate(widest) if width > _SHORT), 0)
    for i, cell in enumerate(head):
        # Cells are Text, so that rich takes no word of a user for one of its own.
        table.add_column(
            Text("\n".join(cell)), justify="left" if i < left else "right", no_wrap=True,
            header_style="bold", style="cyan" if i == coloured else "",
        )  # fmt: skip
    for row in body:
        table.add_row(*(Text("\n".join(cell)) for cell in row))
    console = Console(
        force_terminal=True, color_system="standard", legacy_windows=False, width=10**6
    )
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().splitlines()
    depths = [max(map(len, row)) for row in rows]
    depths[0] += has_head  # the rule below the head
    return [lines[start:end] for start, end in pairwise(accumulate(depths, initial=0))]
