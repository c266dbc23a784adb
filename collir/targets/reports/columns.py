"""Cells of tables on several lines, so that a table is as narrow as it has to be."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

_BREAKS = (
    r"(?<=[,;] )",  # between the parts of a list
    r"(?<= )(?<!\d )(?<!= )(?=[^\s=])|(?<== )(?=\D)|(?<=\d )(?=[^\sA-Za-z%=])",  # between words
    r"(?<=\+)|(?<=[^B]/)|(?<=[^\d],)",  # in fused kernels, algorithms and passes, but not in GB/s
    r"(?<=[^\d.][._])(?=\w)",  # in names
    r"(?<= )(?=\S)",  # before units
)
"""The places to break cells: each is used only if the table is too wide with all earlier ones."""

_WORDS = 2
"""The number of the breaks that are used where the table is too wide with all of them."""

_MARKS = re.compile(r"(?:- | )*")
"""The marks before a cell for the loops around it."""

_HANGING = 2
"""The columns by which further lines of a cell that is flush left are indented."""

Cell = Sequence[str]
"""The lines of a cell."""


def folded(rows: Sequence[Sequence[str]], left: int, width: int) -> list[list[Cell]]:
    """Return the lines of the cells of rows, so that the columns together are not wider than a
    width, if they can be.

    As few cells as possible are broken, of columns with as many the widest. Nothing of a cell is
    left out.

    Args:
        left: the number of columns, from the first, that are flush left.
    """
    columns = [*zip(*rows, strict=True)]
    lengths = [sorted(map(len, column)) for column in columns]
    widths = [own[-1] for own in lengths]
    if sum(widths) <= width:
        return [[[cell] for cell in row] for row in rows]
    hanging = [_HANGING * (i < left) for i in range(len(columns))]
    unlike = [dict.fromkeys(column) for column in columns]
    count, least = _least(unlike, hanging, width)

    def rank(i: int) -> tuple[int, int]:
        return len(lengths[i]) - bisect_left(lengths[i], widths[i]), -widths[i]

    while sum(widths) > width and widths != least:
        widths[min((i for i in range(len(widths)) if widths[i] > least[i]), key=rank)] -= 1
    lines = [
        {cell: [*_lines(cell, count, indent, own)] for cell in column}
        for column, indent, own in zip(unlike, hanging, widths, strict=True)
    ]
    return [[lines[i][cell] for i, cell in enumerate(row)] for row in rows]


def _least(
    columns: Sequence[dict[str, None]], hanging: Sequence[int], width: int
) -> tuple[int, list[int]]:
    """Return how many of the breaks are needed, and how wide each column is with them at least."""
    for count in range(1, len(_BREAKS) + 1):
        least = _least_widths(columns, hanging, count)
        if sum(least) <= width:
            return count, least
    return _WORDS, _least_widths(columns, hanging, _WORDS)


def _least_widths(
    columns: Sequence[dict[str, None]], hanging: Sequence[int], count: int
) -> list[int]:
    return [
        max(min(len(x), max(map(len, _lines(x, count, indent, 0)))) for x in column)
        for column, indent in zip(columns, hanging, strict=True)
    ]


def _lines(cell: str, count: int, hanging: int, width: int) -> Iterator[str]:
    """Yield the lines of a cell, each not wider than a width if it can be broken."""
    marks = _MARKS.match(cell)
    assert marks is not None
    line, indent = marks[0], " " * (len(marks[0]) + hanging)
    pieces = [cell[len(line) :]]
    for breaks in _BREAKS[:count]:
        pieces = [
            part
            for piece in pieces
            for part in ([piece] if _fits(indent + piece, width) else re.split(breaks, piece))
        ]
    line += pieces[0]
    for piece in pieces[1:]:
        if _fits(line + piece, width):
            line += piece
        else:
            yield line.rstrip()
            line = indent + piece
    yield line


def _fits(line: str, width: int) -> bool:
    return len(line.rstrip()) <= width
