"""Instances of the travelling salesman in the TSPLIB format (Reinelt, "TSPLIB 95", 1995)."""

import difflib
import math
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

from collir.ir.diagnostics import Position
from collir.problems.text import (
    EXACT,
    Word,
    bad,
    integer,
    read_text,
    real_number,
    word_rows,
    words_of,
)
from collir.problems.tsp import MAX_CITIES, TSP

Coordinates = tuple[float, float]

LONGEST = EXACT // MAX_CITIES
"""The greatest distance between two cities."""

MAX_COORDINATE = 1e9


def nearest(x: float) -> int:
    """Round a nonnegative number half up."""
    return int(x + 0.5)


def _straight(a: Coordinates, b: Coordinates) -> float:
    return math.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2)


def _pseudo_euclidean(a: Coordinates, b: Coordinates) -> int:
    distance = math.sqrt(((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) / 10)
    rounded = nearest(distance)
    return rounded + 1 if rounded < distance else rounded


def _radians(coordinate: float) -> float:
    """Convert degrees and minutes, written as DDD.MM, to radians with the pi of TSPLIB."""
    degrees = int(coordinate)
    return 3.141592 * (degrees + 5 * (coordinate - degrees) / 3) / 180


def _geographical(a: Coordinates, b: Coordinates) -> int:
    (latitude, longitude), (latitude2, longitude2) = map(_radians, a), map(_radians, b)
    q1 = math.cos(longitude - longitude2)
    q2 = math.cos(latitude - latitude2)
    q3 = math.cos(latitude + latitude2)
    cosine = 0.5 * ((1 + q1) * q2 - (1 - q1) * q3)
    return int(6378.388 * math.acos(max(-1.0, min(1.0, cosine))) + 1)


METRICS: dict[str, Callable[[Coordinates, Coordinates], int]] = {
    "EUC_2D": lambda a, b: nearest(_straight(a, b)),
    "CEIL_2D": lambda a, b: math.ceil(_straight(a, b)),
    "MAN_2D": lambda a, b: nearest(abs(a[0] - b[0]) + abs(a[1] - b[1])),
    "MAX_2D": lambda a, b: max(nearest(abs(a[0] - b[0])), nearest(abs(a[1] - b[1]))),
    "GEO": _geographical,
    "ATT": _pseudo_euclidean,
}
"""The distance between two points, by EDGE_WEIGHT_TYPE."""


def _full(n: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(n) for j in range(n))


def _upper(n: int, diagonal: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(n) for j in range(i + 1 - diagonal, n))


def _lower(n: int, diagonal: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(n) for j in range(i + diagonal))


FORMATS: dict[str, Callable[[int], Iterator[tuple[int, int]]]] = {
    "FULL_MATRIX": _full,
    "UPPER_ROW": lambda n: _upper(n, 0),
    "LOWER_ROW": lambda n: _lower(n, 0),
    "UPPER_DIAG_ROW": lambda n: _upper(n, 1),
    "LOWER_DIAG_ROW": lambda n: _lower(n, 1),
    "UPPER_COL": lambda n: _lower(n, 0),
    "LOWER_COL": lambda n: _upper(n, 0),
    "UPPER_DIAG_COL": lambda n: _lower(n, 1),
    "LOWER_DIAG_COL": lambda n: _upper(n, 1),
}
"""The matrix entries in the order of their distances in the file, by EDGE_WEIGHT_FORMAT."""

KEYS = (
    "NAME",
    "TYPE",
    "COMMENT",
    "DIMENSION",
    "EDGE_WEIGHT_TYPE",
    "EDGE_WEIGHT_FORMAT",
    "NODE_COORD_TYPE",
    "DISPLAY_DATA_TYPE",
)
SECTIONS = ("NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION", "DISPLAY_DATA_SECTION")


def read_tsp(path: Path, target: int | None = None, dominance: bool = True) -> TSP:
    """Read the instance in a file; see ``parse_tsp``.

    Raises:
        DiagnosticError: the file cannot be read, or is not an instance.
    """
    return parse_tsp(read_text(path), str(path), target, dominance)


def parse_tsp(
    text: str, file: str = "<string>", target: int | None = None, dominance: bool = True
) -> TSP:
    """Return the instance of a text in the format of TSPLIB: TYPE TSP or ATSP, distances by
    coordinates (``METRICS``) or EXPLICIT (``FORMATS``). Solutions name the cities as the file
    numbers them.

    Raises:
        DiagnosticError: the text is not an instance.
    """
    matrix, names = _Reader(text, file).read()
    return TSP(matrix, target, dominance, names)


class _Reader:
    """The reader of a file, with the data read so far."""

    def __init__(self, text: str, file: str):
        self.rows = word_rows(text, file)
        self.end = Position(file, 1, 1)
        self.entries: dict[str, list[Word]] = {}
        self.places: dict[str, Position] = {}
        self.names: list[int] = []
        self.points: list[Coordinates] = []
        self.matrix: list[list[int]] = []
        self.left: Iterator[Word] = iter(())

    def read(self) -> tuple[list[list[int]], list[int]]:
        """Return the distances and the names of the cities."""
        for words in self.rows:
            self.end = words[0].position
            key, value = _entry(words)
            if key.text == "EOF":
                break
            self._take(key, value)
        if not self.places:
            raise bad(
                self.end, "there is nothing here; an instance begins with NAME, TYPE and so on"
            )
        kind, dimension = self._kind(), self._dimension()
        metric = self._metric()
        if metric == "EXPLICIT":
            if "EDGE_WEIGHT_SECTION" not in self.places:
                self._lacks("EDGE_WEIGHT_SECTION")
            self._check_symmetry(kind)
            return self.matrix, list(range(1, dimension + 1))
        if "NODE_COORD_SECTION" not in self.places:
            self._lacks("NODE_COORD_SECTION")
        if metric == "GEO":
            self._check_angles()
        return self._distances(METRICS[metric]), self.names

    def _take(self, key: Word, value: list[Word]) -> None:
        """Read an entry, or a section."""
        if key.text in self.places:
            place = self.places[key.text].line
            raise bad(
                key.position, f"{key.text} is given a second time; the first is in line {place}"
            )
        if key.text in KEYS:
            self.places[key.text] = key.position
            self.entries[key.text] = value
            self._check_entry(key.text)
            return
        if key.text not in SECTIONS:
            close = difflib.get_close_matches(key.text.upper()[:40], (*KEYS, *SECTIONS), n=1)
            hint = (
                f"did you mean {close[0]}?" if close else f"there is {', '.join(KEYS + SECTIONS)}"
            )
            raise bad(key.position, f"{key.shown} is nothing that is read of an instance; {hint}")
        if value:
            raise bad(value[0].position, f"{key.text} begins on a line of its own")
        self.places[key.text] = key.position
        if key.text == "EDGE_WEIGHT_SECTION":
            self._weights(key)
        elif key.text == "NODE_COORD_SECTION":
            self._coordinates(key)
        else:
            for _ in self._lines_of(key, "point"):
                pass

    def _check_entry(self, key: str) -> None:
        """Raise an error for an unsupported type or format before its data are read."""
        if key == "TYPE":
            self._kind()
        elif key == "DIMENSION":
            self._dimension()
        elif key == "EDGE_WEIGHT_TYPE":
            self._metric()
        elif key == "EDGE_WEIGHT_FORMAT":
            self._choice(key, ("FUNCTION", *FORMATS))

    def _lacks(self, key: str) -> None:
        raise bad(self.end, f"the file has no {key}")

    def _word(self, key: str) -> Word:
        """Return the first word of an entry."""
        if key not in self.places:
            self._lacks(key)
        if not self.entries[key]:
            raise bad(self.places[key], f"{key} says nothing")
        return self.entries[key][0]

    def _choice(self, key: str, choices: tuple[str, ...]) -> str:
        word = self._word(key)
        if word.text not in choices:
            known = ", ".join(choices)
            raise bad(word.position, f"{key} {word.shown} is not supported; there is {known}")
        return word.text

    def _kind(self) -> str:
        return self._choice("TYPE", ("TSP", "ATSP"))

    def _metric(self) -> str:
        return self._choice("EDGE_WEIGHT_TYPE", ("EXPLICIT", *METRICS))

    def _dimension(self) -> int:
        return integer(self._word("DIMENSION"), "DIMENSION", low=1, high=MAX_CITIES)

    def _lines_of(self, key: Word, what: str) -> Iterator[list[Word]]:
        """Yield the lines of a section that has one for each city: a number and two coordinates."""
        dimension = self._dimension()
        for done in range(dimension):
            words = next(self.rows, None)
            if words is None or words[0].text[0].isalpha():
                message = f"{key.text} has {done} lines, not one for each of {dimension} cities"
                raise bad(words[0].position if words else key.position, message)
            if len(words) != 3:
                message = (
                    f"a {what} is a number and two coordinates; this line has {len(words)} words"
                )
                raise bad(words[0].position, message)
            yield words

    def _coordinates(self, key: Word) -> None:
        seen: set[int] = set()
        for words in self._lines_of(key, "city"):
            name = integer(words[0], "the number of a city")
            if name in seen:
                raise bad(words[0].position, f"there is a city {name} already")
            seen.add(name)
            self.names.append(name)
            x, y = (real_number(word, "a coordinate", MAX_COORDINATE) for word in words[1:])
            self.points.append((x, y))

    def _weights(self, key: Word) -> None:
        dimension = self._dimension()
        style = self._choice("EDGE_WEIGHT_FORMAT", tuple(FORMATS))
        self.matrix = [[0] * dimension for _ in range(dimension)]
        numbers = self._numbers()
        for done, (i, j) in enumerate(FORMATS[style](dimension)):
            word = next(numbers, None)
            if word is None or word.text[0].isalpha():
                count = sum(1 for _ in FORMATS[style](dimension))
                message = (
                    f"{key.text} has {done} distances; {style} of {dimension} cities takes {count}"
                )
                raise bad(word.position if word else key.position, message)
            self.matrix[i][j] = integer(word, "a distance", high=LONGEST)
            if style != "FULL_MATRIX":
                self.matrix[j][i] = self.matrix[i][j]
        if more := next(self.left, None):
            message = f"{key.text} has more distances than {style} of {dimension} cities takes"
            raise bad(more.position, message)

    def _numbers(self) -> Iterator[Word]:
        """Yield the words of the next lines; ``left`` are those of the last line not yet taken."""
        for words in self.rows:
            self.left = iter(words)
            yield from self.left

    def _check_symmetry(self, kind: str) -> None:
        if kind == "ATSP":
            return
        for i, j in combinations(range(len(self.matrix)), 2):
            forth, back = self.matrix[i][j], self.matrix[j][i]
            if forth != back:
                message = f"it is {forth} from city {i + 1} to city {j + 1}, but {back} back"
                raise bad(
                    self._word("TYPE").position, f"{message}; TYPE ATSP is for such distances"
                )

    def _check_angles(self) -> None:
        for name, (latitude, longitude) in zip(self.names, self.points, strict=True):
            if abs(latitude) > 90 or abs(longitude) > 180:
                message = (
                    f"city {name} is at {latitude:g} {longitude:g}, which is no place on earth"
                )
                hint = "GEO takes latitude and longitude as DDD.MM"
                raise bad(self._word("EDGE_WEIGHT_TYPE").position, f"{message}; {hint}")

    def _distances(self, metric: Callable[[Coordinates, Coordinates], int]) -> list[list[int]]:
        matrix = [[0] * len(self.points) for _ in self.points]
        for (i, a), (j, b) in combinations(enumerate(self.points), 2):
            matrix[i][j] = matrix[j][i] = metric(a, b)
        return matrix


def _entry(words: list[Word]) -> tuple[Word, list[Word]]:
    """Return the key of a line and the words after it and its colon."""
    first, *rest = words
    key, colon, value = first.text.partition(":")
    place = first.position
    if colon:
        begin = Position(place.file, place.line, place.column + len(key) + 1)
        return Word(key, place), [*words_of(value, begin), *rest]
    if rest and rest[0].text.startswith(":"):
        colon_at = rest[0].position
        begin = Position(place.file, place.line, colon_at.column + 1)
        return first, [*words_of(rest[0].text[1:], begin), *rest[1:]]
    return first, rest
