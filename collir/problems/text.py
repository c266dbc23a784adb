"""The words of an input text with their positions, and the errors of wrong words."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.syntax.encoding import decode

MAX_BYTES = 16 * 2**20
"""The maximum number of bytes of a file."""

EXACT = 2**53
"""The greatest number up to which a float64 holds every integer: bounds are shared as floats."""

_WORD = re.compile(r"\S+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_SHOWN = 40
_MAX_WORDS = 2**20


@dataclass(frozen=True)
class Word:
    """A word of a text and its position."""

    text: str
    position: Position

    @property
    def shown(self) -> str:
        """The word in quotes, cut if it is long."""
        return f"'{self.text}'" if len(self.text) <= _SHOWN else f"'{self.text[:_SHOWN]}...'"


def bad(position: Position | None, message: str) -> DiagnosticError:
    """Return the error of a position in an input."""
    return DiagnosticError(Diagnostic(message, position))


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """Return the text of a file of at most ``limit`` bytes.

    Raises:
        DiagnosticError: the file cannot be read, is too long, or is not UTF-8.
    """
    message = f"{path} is longer than {limit / 2**20:g} MiB, the most that is read"
    hint = "an instance that can be solved exactly is far smaller"
    return decode(read_limited(path, limit, f"{message}; {hint}"), str(path))


def read_limited(path: Path, limit: int, too_long: str) -> bytes:
    """Return the bytes of a file, at most ``limit``.

    Raises:
        DiagnosticError: the file cannot be read, or is longer (message ``too_long``).
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise bad(None, f"cannot read {path}: {reason(error)}") from error
    if len(data) > limit:
        raise bad(None, too_long)
    return data


def reason(error: Exception) -> str:
    """Return the reason why a file could not be read or written."""
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error)).lower()


def words_of(line: str, start: Position) -> list[Word]:
    """Return the words of a piece of a line that begins at ``start``; at most a million."""
    return [
        Word(match.group(), Position(start.file, start.line, start.column + match.start()))
        for match in islice(_WORD.finditer(line), _MAX_WORDS)
    ]


def word_rows(text: str, file: str) -> Iterator[list[Word]]:
    """Yield the lines of a text as words, without empty ones."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line and not line.isspace():
            yield words_of(line, Position(file, number, 1))


def integer(word: Word, what: str, low: int = 0, high: int = EXACT) -> int:
    """Return the integer that a word gives, from ``low`` to ``high``.

    Raises:
        DiagnosticError: the word is no such number.
    """
    if not _INTEGER.fullmatch(word.text):
        hint = "; give it in a smaller unit" if _REAL.fullmatch(word.text) else ""
        raise bad(word.position, f"{what} must be a whole number, not {word.shown}{hint}")
    value = int(word.text)
    if value < low:
        least = "must not be negative" if low == 0 else f"must be at least {low}"
        raise bad(word.position, f"{what} {least}, not {value}")
    if value > high:
        raise bad(word.position, f"{what} must be at most {high}, not {value}")
    return value


def real_number(word: Word, what: str, limit: float) -> float:
    """Return the number that a word gives, from ``-limit`` to ``limit``.

    Raises:
        DiagnosticError: the word is no such number.
    """
    if not _REAL.fullmatch(word.text):
        raise bad(word.position, f"{what} must be a number, not {word.shown}")
    value = float(word.text)
    if not math.isfinite(value) or abs(value) > limit:
        raise bad(word.position, f"{what} must be from {-limit:g} to {limit:g}, not {word.shown}")
    return value
