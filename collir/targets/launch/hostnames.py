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
    """``001-004``: the numbers of a range, written with ``width`` digits at least."""

    numbers: range
    width: int

    def __iter__(self) -> Iterator[str]:
        return (f"{number:0{self.width}}" for number in self.numbers)


_Part = tuple[Sequence[str] | _Numbers, ...]
"""What may stand in one place of a name: one text, or the numbers of the ranges in brackets."""


@dataclass(frozen=True)
class HostNames:
    """Host names in the order they are written; ranges stay ranges until names are asked for."""

    names: tuple[tuple[_Part, ...], ...]

    @staticmethod
    def parse(text: str) -> "HostNames":
        """The names of a list with commas.

        Raises:
            ValueError: it is not such a list.
        """
        return HostNames(tuple(_name(one) for one in re.split(r",(?![^\[]*\])", text)))

    @property
    def count(self) -> int:
        """How many names these are."""
        return sum(
            math.prod(sum(len(_items(one)) for one in part) for part in name) for name in self.names
        )

    def __iter__(self) -> Iterator[str]:
        for name in self.names:
            places = ([text for one in part for text in one] for part in name)
            yield from map("".join, product(*places))


def _items(one: Sequence[str] | _Numbers) -> Sequence[object]:
    return one.numbers if isinstance(one, _Numbers) else one


def _name(text: str) -> tuple[_Part, ...]:
    """The places of one name."""
    parts: list[_Part] = []
    at = 0
    while match := _PIECE.match(text, at):
        literal, ranges = match.groups()
        parts.append(((literal,),) if literal else tuple(map(_numbers, ranges.split(","))))
        at = match.end()
    if at < len(text) or not parts:
        raise ValueError(f"'{text}' is not a host name: write n0,n1 or \"node[00-15]\"")
    return tuple(parts)


def _numbers(text: str) -> _Numbers:
    match = _RANGE.fullmatch(text)
    low, high = match.groups() if match else ("", "")
    last = high or low
    if not low or len(last) > 18 or int(last) < int(low):
        raise ValueError(f"'{text}' is not a range of hosts: write 0-15, the smaller number first")
    return _Numbers(range(int(low), int(last) + 1), len(low))
