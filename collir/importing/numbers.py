"""Parsers of numbers that report errors at a place in the text."""

import math
import re

from collir.importing.values import ReadError, TextPlace, shown
from collir.machine.model import MAX_DEVICES

_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def integer(text: str, noun: str, place: TextPlace, least: int = 1, most: int = MAX_DEVICES) -> int:
    """Return the integer of a text, between bounds.

    Raises:
        ReadError: the text is no integer between the bounds.
    """
    if not _WHOLE.fullmatch(text):
        raise ReadError(f"{noun} must be an integer, not '{shown(text)}'", place)
    value = int(text) if len(text) <= 30 else None
    if value is not None and least <= value <= most:
        return value
    raise ReadError(f"{noun} must be from {least} to {most}, not {shown(text)}", place)


def real(text: str, noun: str, place: TextPlace, zero: bool = False) -> float:
    """Return the finite number of a text, above zero, or zero if ``zero`` is set.

    Raises:
        ReadError: the text is no such number.
    """
    if not _REAL.fullmatch(text) or len(text) > 400:
        raise ReadError(f"{noun} must be a number, not '{shown(text)}'", place)
    value = float(text)
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        bound = "must not be negative" if zero else "must be positive"
        raise ReadError(f"{noun} {bound} and finite, not {shown(text)}", place)
    return value
