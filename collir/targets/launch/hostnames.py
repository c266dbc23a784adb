"""Lists of host names as SLURM writes them: ``node[001-004,010]``, ``rack[0-1]n[0-7],login``."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

_PIECE = re.compile(r"([\w.+-]+)|\[([\d,-]+)\]", re.ASCII)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a range such as ``001-004``, written with at least ``width`` digits."""

    numbers: range
    width: int

    def __iter__(self) -> Iterator[str]:
        return (f"{number:0{self.width}}" for number in self.numbers)


_Part = tuple[Sequence[str] | _Numbers, ...]
"""The alternatives for a part of a name: one text, or the numbers of the ranges in brackets."""


@dataclass(frozen=True)
class HostNames:
    """Host names in the order they are written; ranges stay ranges until names are asked for."""

    names: tuple[tuple[_Part, ...], ...]

    @staticmethod
    def parse(text: str) -> "HostNames":
        """Return the names of a list with commas.

        Raises:
            ValueError: the text is not such a list.
        """
        return HostNames(tuple(_name(name) for name in re.split(r",(?![^\[]*\])", text)))

    @property
    def count(self) -> int:
        """The number of names."""
        return sum(
            math.prod(sum(len(_items(texts)) for texts in part) for part in name)
            for name in self.names
        )

    def __iter__(self) -> Iterator[str]:
        for name in self.names:
            parts = ([text for texts in part for text in texts] for part in name)
            yield from map("".join, product(*parts))


def _items(texts: Sequence[str] | _Numbers) -> Sequence[object]:
    return texts.numbers if isinstance(texts, _Numbers) else texts


def _name(text: str) -> tuple[_Part, ...]:
    """Return the parts of a name."""
    parts: list[_Part] = []
    end = 0
    while match := _PIECE.match(text, end):
        literal, ranges = match.groups()
        parts.append(((literal,),) if literal else tuple(map(_numbers, ranges.split(","))))
        end = match.end()
    if end < len(text) or not parts:
        raise ValueError(f"'{text}' is not a host name: write n0,n1 or \"node[00-15]\"")
    return tuple(parts)


def _numbers(text: str) -> _Numbers:
    match = _RANGE.fullmatch(text)
    low, high = match.groups() if match else ("", "")
    last = high or low
    if not low or len(last) > 18 or int(last) < int(low):
        raise ValueError(f"'{text}' is not a range of hosts: write 0-15, the smaller number first")
    return _Numbers(range(int(low), int(last) + 1), len(low))
