"""Values of JSON of other tools, which may be anything: as what they should be, or empty."""

from typing import Any, cast


def listed(value: Any) -> list[Any]:
    """Return a list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def mapped(value: Any) -> dict[str, Any]:
    """Return an object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def number(value: Any) -> float:
    """Return a number."""
    return float(value) if isinstance(value, int | float) else 0.0


def integer(value: Any, default: int) -> int:
    """Return a number that is not negative, such as a rank."""
    return value if isinstance(value, int) and 0 <= value < 2**31 else default


def integers(value: Any) -> list[int] | None:
    """Return a list of whole numbers; None if it is none, or empty."""
    found = listed(value)
    return found if found and all(isinstance(x, int) for x in found) else None
