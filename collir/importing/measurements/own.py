"""Reader and writer of collir's own measurements, made by ``collir calibrate --run``.

    # collir measurements
    # collective over bytes seconds
    all_reduce node:2*gpu:2+2 1048576 0.00123

``over`` are the levels of a group as in a mesh; ``gpu:2+2`` says that on this level two groups of
two run at the same time. ``bytes`` are those of the full buffer.
"""

import difflib

from collir.importing.measurements.tables import (
    KINDS,
    MAX_SIZE,
    LevelExtent,
    MeasuredRow,
    MeasuredTable,
    MeasuredTables,
    extents,
)
from collir.importing.numbers import integer, real
from collir.importing.values import ReadError, TextPlace, shown

TITLE = "# collir measurements"
COLUMNS = "# collective over bytes seconds"


def read(text: str, kind: str | None = None, file: str = "") -> MeasuredTables:
    """Return the times in a text, which names the collectives.

    Raises:
        ReadError: a line is no measurement.
    """
    rows: dict[tuple[LevelExtent, ...], list[MeasuredRow]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        place, cells = TextPlace(number), line.split()
        if not cells or cells[0].startswith("#"):
            continue
        if len(cells) != 4:
            raise ReadError("a line has a collective, levels, bytes and seconds, not this", place)
        name, over, size, seconds = cells
        if name not in KINDS:
            close = difflib.get_close_matches(name, KINDS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there is {', '.join(KINDS)}"
            raise ReadError(f"there is no collective '{shown(name)}'; {hint}", place)
        row = MeasuredRow(
            name, integer(size, "a size", place, 1, MAX_SIZE), real(seconds, "a time", place), place
        )
        rows.setdefault(extents(over, place), []).append(row)
    if not rows:
        raise ReadError("there are no times in this file", TextPlace(1))
    tables = tuple(
        MeasuredTable(tuple(group_rows), group_rows[0].place, over)
        for over, group_rows in rows.items()
    )
    return MeasuredTables("Times of `collir calibrate --run`.", tables)


def written(tables: MeasuredTables) -> str:
    """Return the text of tables that all have levels."""
    lines = [TITLE, COLUMNS]
    for table in tables.tables:
        over = "*".join(_extent_text(extent) for extent in table.over)
        lines += [f"{row.kind} {over} {row.size} {row.seconds:.9g}" for row in table.rows]
    return "\n".join([*lines, ""])


def _extent_text(extent: LevelExtent) -> str:
    return f"{extent.level}:{extent.size}" + (f"+{extent.beside}" if extent.beside > 1 else "")
