"""Reader of DistIR's configurations of MLPs, as comma-separated values with a line of names.

The columns are those of its own files; the model is one by name, or ``layers`` and ``width``. Other
columns, such as results, are passed over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from collir.importing.numbers import integer
from collir.importing.values import ReadError, TextPlace, shown
from distir import MODELS, Configuration

MAX_NUMBER = 2**24
"""The largest number in a column: sizes in bytes stay exact."""

DEGREES = ("batch_size", "dp_degree", "hp_degree", "pp_degree", "num_microbatches")
"""The columns of a configuration but for its model, in the order of the fields."""

SIZES = ("layers", "width")


@dataclass(frozen=True)
class ConfigurationRow:
    """A configuration, its place, and the name of its model, or None if it has its sizes."""

    configuration: Configuration
    model: str | None
    place: TextPlace


@dataclass(frozen=True)
class ConfigurationCell:
    """The text of a cell without the blanks around it, and its place."""

    text: str
    place: TextPlace


def read(text: str) -> tuple[list[ConfigurationRow], list[ReadError]]:
    """Return the rows of a text, and all its errors, a row with an error having the first only."""
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        return [], [ReadError("the file is empty", TextPlace(1))]
    names = _cells(*lines[0])
    if errors := _header_errors(names):
        return [], errors
    rows: list[ConfigurationRow] = []
    errors: list[ReadError] = []
    for number, line in lines[1:]:
        try:
            rows.append(_row(_by_name(names, _cells(number, line))))
        except ReadError as error:
            errors.append(error)
    return rows, errors


def _cells(number: int, line: str) -> list[ConfigurationCell]:
    """Return the cells of a line."""
    cells: list[ConfigurationCell] = []
    start = 0
    for part in line.split(","):
        text = part.strip()
        column = start + len(part) - len(part.lstrip()) + 1 if text else start + 1
        cells.append(ConfigurationCell(text, TextPlace(number, column)))
        start += len(part) + 1
    return cells


def _header_errors(names: Sequence[ConfigurationCell]) -> list[ReadError]:
    """Return the errors of the line of names: columns that are missing or there twice."""
    first: dict[str, TextPlace] = {}
    errors: list[ReadError] = []
    for cell in names:
        if cell.text in first:
            errors.append(ReadError(f"column {shown(cell.text)} is there twice", cell.place))
        first.setdefault(cell.text, cell.place)
    sizes = () if "model_size" in first else SIZES
    missing = [name for name in (*sizes, *DEGREES) if name not in first]
    if missing:
        hint = "; model_size may stand for layers and width" if set(missing) & set(SIZES) else ""
        message = f"columns are missing: {', '.join(missing)}{hint}"
        errors.append(ReadError(message, names[0].place))
    return errors


def _by_name(
    names: Sequence[ConfigurationCell], cells: Sequence[ConfigurationCell]
) -> Mapping[str, ConfigurationCell]:
    """Return the cells of a line by the names of their columns."""
    if len(cells) != len(names):
        message = f"this line has {len(cells)} cells, the line of names {len(names)}"
        raise ReadError(message, cells[0].place)
    return {name.text: cell for name, cell in zip(names, cells, strict=True)}


def _row(cells: Mapping[str, ConfigurationCell]) -> ConfigurationRow:
    """Return the configuration of a line."""
    degrees = [_number(cells, name) for name in DEGREES]
    model = cells.get("model_size")
    sizes = _sizes(model) if model else [_number(cells, name) for name in SIZES]
    configuration = Configuration(*sizes, *degrees)
    if "world_size" in cells and _number(cells, "world_size") != configuration.devices:
        message = (
            f"world_size is {cells['world_size'].text}, but {configuration.data} x "
            f"{configuration.tensor} x {configuration.pipeline} are {configuration.devices} devices"
        )
        raise ReadError(message, cells["world_size"].place)
    place = TextPlace(cells["batch_size"].place.line)
    return ConfigurationRow(configuration, model.text if model else None, place)


def _number(cells: Mapping[str, ConfigurationCell], name: str) -> int:
    return integer(cells[name].text, name, cells[name].place, 1, MAX_NUMBER)


def _sizes(model: ConfigurationCell) -> tuple[int, int]:
    """Return the layers and the width of a model."""
    if model.text in MODELS:
        return MODELS[model.text]
    close = get_close_matches(model.text, MODELS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there is {', '.join(MODELS)}"
    raise ReadError(f"there is no model '{shown(model.text)}'; {hint}", model.place)
