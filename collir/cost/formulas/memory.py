# pyright: basic
"""The largest number of bytes that a device holds, as an expression."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import sympy

from collir.cost.formulas.functions import Expr, Larger, Valued, expression
from collir.cost.programs.memory import AT_END, Buffer, Use
from collir.cost.programs.simulation import Simulation


class Spare(Valued):
    """The number of second buffers of a carry: of the iterations of its loop, and whether an odd
    number of them needs none; 0 or 1."""

    is_nonnegative = True

    @classmethod
    def eval(cls, times: Expr, odd: Expr) -> Expr | None:
        """Return a number for numbers."""
        return sympy.Integer(int(cls.values(int(times), int(odd)))) if times.is_Number else None

    @classmethod
    def values(cls, times: Any, odd: Any) -> Any:
        """Return the numbers of buffers."""
        return np.where((times <= 1) | ((odd > 0) & (times % 2 == 1)), 0.0, 1.0)


def peak_bytes(simulation: Simulation, inside: bool = False) -> Expr:
    """Return the most bytes that a device of the first class holds, if steps follow each other.

    Args:
        inside: whether arguments and results do not count, as of an iteration.
    """
    return largest(totals(simulation, inside))


def totals(simulation: Simulation, inside: bool) -> list[Expr]:
    """Return the bytes that a device holds at the beginning, at each step and at the end."""
    buffers = [b for b in simulation.held[0] if not b.of_loop and (b.is_inside or not inside)]
    steps = len(simulation.program)
    found: list[Expr] = []
    for step in range(-1, steps + 1):
        alive = [expression(b.size) for b in buffers if _is_alive(b, step, steps)]
        loop = simulation.program[step].loop if 0 <= step < steps else None
        if loop is not None:
            alive.append(peak_bytes(loop.body, inside=True))
            times = expression(loop.times)
            alive += (Spare(times, int(odd)) * expression(size) for size, odd in loop.spares)
        found.append(sympy.Add(*alive))
    return found


def bytes_by_use(simulation: Simulation) -> dict[Use, Expr]:
    """Return the bytes of arguments and results, which are there throughout, by their uses."""
    found: dict[Use, Expr] = {}
    for buffer in simulation.held[0]:
        if buffer.first is None:
            found[buffer.use] = found.get(buffer.use, sympy.Integer(0)) + expression(buffer.size)
    return found


def _is_alive(buffer: Buffer, step: int, steps: int) -> bool:
    """Return whether a buffer has memory of its own at a step; -1 is before the first."""
    if _is_in_place(buffer):
        return False
    first = -1 if buffer.first is None else steps if buffer.first == AT_END else buffer.first
    last = steps if buffer.until is None else max(buffer.until)
    return first <= step <= last


def _is_in_place(buffer: Buffer) -> bool:
    """Return whether a new value is in the memory of its argument, which nothing reads any more."""
    if buffer.over is None or buffer.first in (None, AT_END):
        return False
    return all(reader < buffer.first for reader in buffer.over)


def largest(numbers: Iterable[Expr]) -> Expr:
    """Return the largest of some sums, without those that are never larger than another one: all of
    their terms are smaller, and no term is negative."""
    kept: dict[Expr, Mapping[Expr, Any]] = {}
    for number in dict.fromkeys(numbers):
        own = sympy.sympify(number).as_coefficients_dict()
        if any(_is_never_less(other, own) for other in kept.values()):
            continue
        kept = {x: other for x, other in kept.items() if not _is_never_less(own, other)}
        kept[number] = own
    if not kept:
        return sympy.Integer(0)
    return next(iter(kept)) if len(kept) == 1 else Larger(*kept)


def _is_never_less(a: Mapping[Expr, Any], b: Mapping[Expr, Any]) -> bool:
    """Return whether all terms of a sum are at least those of another one, by coefficients."""
    return all(a.get(term, 0) >= factor for term, factor in b.items())
