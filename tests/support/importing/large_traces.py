"""Traces of any length, made while they are read."""

import io
import json
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from support.importing.trace_jobs import Kernel, Ran, Sent, flight_recorder, kineto, nsys_table, xla

GAP = 1000
"""The nanoseconds from one step to the next."""

_STACK = ";".join(f"torch/nn/modules/module.py({x}): _call_impl" for x in range(40))
"""What a trace with stacks says of each event."""


class Pieces(io.RawIOBase):
    """A file of pieces that are made when they are read."""

    def __init__(self, pieces: Iterator[bytes]):
        super().__init__()
        self._pieces, self._rest, self.read_bytes = pieces, b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._pieces, b"")
        data, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(data)] = data
        self.read_bytes += len(data)
        return len(data)


def step(number: int) -> Ran:
    """Return a step: 8 kernels, each with the product that it is, and 2 collectives."""
    at = 10**9 + number * GAP
    kernels = tuple(
        Kernel(f"gemm_{x}", at + 50 * x, at + 50 * x + 40, (64, 64, 64)) for x in range(8)
    )
    sent = tuple(
        Sent(kind, at, at + 400 + 100 * x, at + 480 + 100 * x, 2**16, (0, 1))
        for x, kind in enumerate(("all_gather", "reduce_scatter"))
    )
    return Ran(0, 2, kernels, sent, ((at, at + GAP),))


def _events(kind: str, number: int, with_stacks: bool) -> list[Any]:
    match kind:
        case "kineto":
            events = kineto(step(number))["traceEvents"]
            for event in events if with_stacks else ():
                event.setdefault("args", {})["Call stack"] = _STACK
            return events
        case "recorder":
            return flight_recorder(step(number), True)["entries"]
        case _:
            return xla([step(number)], "GPU")["traceEvents"]


def large_json(kind: str, size: int, with_stacks: bool = False) -> Iterator[bytes]:
    """Yield the pieces of a file of so many bytes: ``kineto``, ``xla`` or ``recorder``.

    The same 100 steps are there again and again.
    """
    key = "entries" if kind == "recorder" else "traceEvents"
    steps = ",\n".join(
        json.dumps(x) for number in range(100) for x in _events(kind, number, with_stacks)
    )
    piece = steps.encode()
    about = '"schemaVersion": 1, ' if kind == "kineto" else ""
    yield f'{{{about}"{key}": ['.encode()
    for number in range(-(-size // len(piece))):
        yield b",\n" + piece if number else piece
    yield b"]}"


def large_table(size: int) -> Iterator[bytes]:
    """Yield the pieces of a table of Nsight Systems of so many bytes."""
    header, _, _ = nsys_table([step(0)]).partition("\n")
    rows = "".join(nsys_table([step(x)]).partition("\n")[2] for x in range(100)).encode()
    yield header.encode() + b"\n"
    yield from repeat(rows, -(-size // len(rows)))
