"""Numbers that stand for intervals and for parts of expressions, the same for equal ones.

They are given in turn, and belong to a proof, which ``new_numbers`` surrounds.
"""

from collections.abc import Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class _Numbers(NamedTuple):
    intervals: dict[Hashable, int]
    parts: dict[Hashable, int]


_OUTSIDE = _Numbers({}, {})
"""The numbers outside of a proof, as when expressions are made by hand."""

_numbers = ContextVar("numbers", default=_OUTSIDE)


@contextmanager
def new_numbers() -> Generator[None]:
    """Number everything anew for a proof; its expressions mean nothing outside of it."""
    outer = _numbers.set(_Numbers({}, {}))
    try:
        yield
    finally:
        _numbers.reset(outer)


def interval_number(interval: Hashable) -> int:
    """Return the number of an interval, from 0 on in a proof."""
    known = _numbers.get().intervals
    return known.setdefault(interval, len(known))


def part_number(part: Hashable) -> int:
    """Return the number of a part of an expression."""
    known = _numbers.get().parts
    return known.setdefault(part, len(known))
