"""Prefixes that change from line to line, or that stand in front of all lines of a text.

Text in front of known text is a prefix (see ``logs``). Two kinds are found without known text:
numbers that count lines or seconds, as ``cat -n``, ``grep -n`` and ``ts`` write them, and the
prefix that all lines have in common.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from collir.importing.measurements import logs

_COUNTER = re.compile(r"\s*[\[(]?\s*(\d{1,15}(?:\.\d{1,9})?)(?:\s?m?s\b)?[\])]?(?:[:>]\s?|\s|$)")
_END = re.compile(r".*[\]:>|)]\s*")
_MOST = 0.8
"""The part of the lines that a counter stands in front of, at least."""


def without_counter(lines: Sequence[str], is_known: Callable[[str], bool]) -> list[str]:
    """Return lines without numbers in front of them that count lines or seconds.

    Such numbers never decrease, and stand in front of known lines, which have none of their own.
    """
    counters = [_COUNTER.match(line) for line in lines]
    numbers = [float(match[1]) for match in counters if match]
    filled = sum(bool(line.strip()) for line in lines)
    counting = (
        len(numbers) >= max(3, _MOST * filled)
        and len(set(numbers)) >= max(3, len(numbers) // 2)
        and all(one <= other for one, other in pairwise(numbers))
        and all(match for match, line in zip(counters, lines, strict=True) if is_known(line))
    )
    if not counting:
        return list(lines)
    return [
        line[match.end() :] if match else line for match, line in zip(counters, lines, strict=True)
    ]


def without_common(lines: Sequence[str]) -> list[str]:
    """Return lines without the prefix that all have in common, beside the time of day."""
    rest = [line[logs.leading_clock(line) :] for line in lines]
    filled = [line for line in rest if line.strip()]
    match = _END.match(_common(min(filled), max(filled))) if filled[1:] else None
    start = match.end() if match else 0
    return [line[start:] if line.strip() else line for line in rest]


def _common(one: str, other: str) -> str:
    """Return the text that two texts begin with."""
    lengths = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(lengths, min(len(one), len(other)))]
