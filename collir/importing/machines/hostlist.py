"""Lists of host names in SLURM's notation: ``rack[0-1]n[01-18,20],login``."""

import re
from itertools import product

from collir.importing.values import ReadError, TextPlace, shown

MAX_NAMES = 2**18
"""The largest number of names in a file."""

_PIECE = re.compile(r"\[([^\[\]]*)\]|[^\[\],]+")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def expand(text: str, place: TextPlace, most: int = MAX_NAMES) -> list[str]:
    """Return all names of a list; ``place`` is where the list begins.

    Raises:
        ReadError: the text is malformed, or has more than ``most`` names.
    """
    names: list[str] = []
    at = 0
    while True:
        expanded, at = _one(text, at, place, most - len(names))
        names += expanded
        if at == len(text):
            return names
        if text[at] != ",":
            raise ReadError(f"'{text[at]}' is not possible here", _at(place, at))
        at += 1


def _at(place: TextPlace, offset: int) -> TextPlace:
    return TextPlace(place.line, place.column + offset)


def _one(text: str, at: int, place: TextPlace, most: int) -> tuple[list[str], int]:
    """Return the names up to the next comma outside brackets, and the offset of that comma."""
    first = at
    count = 1
    pieces: list[list[str]] = []
    while match := _PIECE.match(text, at):
        inside: str | None = match[1]
        if inside is None:
            pieces.append([match[0]])
        else:
            pieces.append(_numbers(inside, _at(place, at + 1), most))
            count *= len(pieces[-1])
        if count > most:
            raise ReadError(f"the file names more than {MAX_NAMES} nodes", _at(place, first))
        at = match.end()
    if not pieces:
        message = "a bracket is not closed" if text[at : at + 1] == "[" else "a name is missing"
        raise ReadError(message, _at(place, at))
    if text[at : at + 1] == "[":
        raise ReadError("a bracket is not closed", _at(place, at))
    return ["".join(parts) for parts in product(*pieces)], at


def _numbers(text: str, place: TextPlace, most: int) -> list[str]:
    """Return the numbers that stand in brackets; ranges keep their leading zeros."""
    numbers: list[str] = []
    at = 0
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise ReadError(f"'{shown(part)}' is not a range such as 0-3", _at(place, at))
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise ReadError(f"the range {shown(part)} runs backwards", _at(place, at))
        if high - low >= most - len(numbers):
            raise ReadError(
                f"the range {shown(part)} names too many nodes: a file may name {MAX_NAMES}",
                _at(place, at),
            )
        numbers += [str(number).zfill(len(match[1])) for number in range(low, high + 1)]
        at += len(part) + 1
    return numbers
