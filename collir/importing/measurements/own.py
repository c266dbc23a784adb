"""Measurements of collir itself: a line each, as ``collir calibrate --run`` makes them.

    # collir measurements
    # collective over bytes seconds
    all_reduce node:2*gpu:2+2 1048576 0.00123

``over`` are the levels of a group as in a mesh; ``gpu:2+2`` says that on this level two groups of
two run at the same time. ``bytes`` are those of the full buffer.
"""

import difflib

from collir.importing.machines import Place, ReadError
from collir.importing.measurements.tables import KINDS, MAX_SIZE, Part, Row, Table, Tables, parts
from collir.importing.numbers import real, whole
from collir.importing.values import shown

TITLE = "# collir measurements"
COLUMNS = "# collective over bytes seconds"


def read(text: str, kind: str | None = None, file: str = "") -> Tables:
    """The times in a text, which says of what they are.

    Raises:
        ReadError: a line that is none.
    """
    rows: dict[tuple[Part, ...], list[Row]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        place, cells = Place(number), line.split()
        if not cells or cells[0].startswith("#"):
            continue
        if len(cells) != 4:
            raise ReadError("a line has a collective, levels, bytes and seconds, not this", place)
        name, over, size, seconds = cells
        if name not in KINDS:
            close = difflib.get_close_matches(name, KINDS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there is {', '.join(KINDS)}"
            raise ReadError(f"there is no collective '{shown(name)}'; {hint}", place)
        row = Row(
            name, whole(size, "a size", place, 1, MAX_SIZE), real(seconds, "a time", place), place
        )
        rows.setdefault(parts(over, place), []).append(row)
    if not rows:
        raise ReadError("there are no times in this file", Place(1))
    tables = tuple(Table(tuple(each), each[0].place, over) for over, each in rows.items())
    return Tables("Times of `collir calibrate --run`.", tables)


def written(tables: Tables) -> str:
    """The text of tables that all say their levels."""
    lines = [TITLE, COLUMNS]
    for table in tables.tables:
        over = "*".join(_part(part) for part in table.over)
        lines += [f"{row.kind} {over} {row.size} {row.seconds:.9g}" for row in table.rows]
    return "\n".join([*lines, ""])


def _part(part: Part) -> str:
    return f"{part.level}:{part.size}" + (f"+{part.beside}" if part.beside > 1 else "")
