"""Values of JSON of other tools, which may be anything: converted to the right type, or empty."""

import json
import math
from typing import Any, cast

from collir.importing.values import MALFORMED

UNREADABLE = (*MALFORMED, OverflowError, RecursionError)
"""The exceptions raised by values that no tool writes: numbers too large, lists too deep."""


def listed(value: Any) -> list[Any]:
    """Return a list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def mapped(value: Any) -> dict[str, Any]:
    """Return an object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """Return a text."""
    return value if isinstance(value, str) else ""


def number(value: Any) -> float:
    """Return a finite number."""
    try:
        return finite(value) if isinstance(value, int | float) else 0.0
    except (OverflowError, ValueError):
        return 0.0


def finite(value: Any) -> float:
    """Return a number, or what is written in a text.

    Raises:
        ValueError, TypeError, OverflowError: it is none, or not finite.
    """
    made = float(value)
    if not math.isfinite(made):
        raise ValueError(f"{made} is no time")
    return made


def integer(value: Any, default: int, most: int = 2**31) -> int:
    """Return a number that is not negative, such as a rank."""
    return value if isinstance(value, int) and 0 <= value < most else default


def integers(value: Any) -> list[int] | None:
    """Return a list of whole numbers; None if it is none, or empty."""
    found = listed(value)
    return found if found and all(isinstance(x, int) for x in found) else None


def json_list(value: Any) -> list[Any]:
    """Return a list, or a list that is written as JSON in a text."""
    if isinstance(value, str):
        try:
            return listed(json.loads(value))
        except (ValueError, RecursionError):
            return []
    return listed(value)
