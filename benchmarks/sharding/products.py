"""The FLOP of the matrix products in the text of a program of XLA, as often as each runs."""

import math
import re
from collections.abc import Iterator

_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%([\w.-]+) = (.*?) ([a-z][a-z0-9-]*)\((.*)$")
_CALLED = re.compile(r"(?:body|calls|to_apply)=%([\w.-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


def flop_of(text: str) -> int:
    """Return the FLOP of the matrix products of a program on a device."""
    bodies: dict[str, list[str]] = {}
    entry, current = "", list[str]()
    for line in text.splitlines():
        if start := _COMPUTATION.match(line):
            current = bodies[start[2]] = []
            entry = start[2] if start[1] else entry
        else:
            current.append(line)
    flop: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in flop:
            flop[name] = sum(_flop(bodies[name]))
            flop[name] += sum(times * of(called) for called, times in _called(bodies[name]))
        return flop[name]

    return of(entry)


def _flop(lines: list[str]) -> Iterator[int]:
    """Yield the FLOP of each product of a computation itself."""
    shapes: dict[str, list[int]] = {}
    for line in lines:
        if (found := _INSTRUCTION.match(line)) is None:
            continue
        name, made, op, rest = found.groups()
        if array := re.match(r"[a-z]+\d*\[([\d,]*)\]", made):
            shapes[name] = [int(size) for size in array[1].split(",") if size]
        if op == "dot":
            left = re.findall(r"%([\w.-]+)", rest)[0]
            summed = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", rest)
            dims = [int(dim) for dim in summed[1].split(",") if dim] if summed else []
            yield 2 * math.prod(shapes[name]) * math.prod(shapes[left][dim] for dim in dims)


def _called(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the computations that one calls, and how often."""
    for line in lines:
        found = _INSTRUCTION.match(line)
        if found is not None and found[3] in ("fusion", "while", "call", "conditional"):
            trips = _TRIPS.search(line) if found[3] == "while" else None
            if found[3] == "while" and trips is None:
                raise ValueError(f"a loop of unknown length: {found[1]}")
            for called in _CALLED.findall(found[4]):
                yield called, int(trips[1]) if trips else 1
