"""Places in a text, and the remarks and errors that point at them."""

from dataclasses import dataclass

MAX_BYTES = 4 * 2**20
"""The length of the longest text that is read, in bytes."""


MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError)
"""The exceptions that a rule raises on operands or attributes that its operation cannot have."""


@dataclass(frozen=True, order=True)
class TextPlace:
    """A line and a column in a text, counted from 1."""

    line: int
    column: int = 1


@dataclass(frozen=True)
class Remark:
    """An oddity of a text, and how it was read."""

    message: str
    place: TextPlace


class ReadError(ValueError):
    """An error in a text, with its message and its place."""

    def __init__(self, message: str, place: TextPlace):
        super().__init__(message)
        self.message = message
        self.place = place


def shown(text: str) -> str:
    """Return input text for a message: at most 40 characters, in one line."""
    cut = text if len(text) <= 40 else f"{text[:40]}..."
    return "".join(c if c.isprintable() else "?" for c in cut)
