"""The tables of a code target: one line for every step that it prints."""

from collections.abc import Callable
from typing import Any, TypeVar

Seen = TypeVar("Seen")
"""A step as the methods of a target see it."""

Emitters = dict[str, Callable[[Any, Seen], list[str]]]
"""The methods of a class that print the statements of steps, by the names of the steps."""
