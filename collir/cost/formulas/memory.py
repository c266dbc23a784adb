"""The largest number of bytes that a device holds, as an expression.

It is exact where steps follow each other. Where steps overlap, it is an upper bound: all buffers
that may exist while a step runs, whatever the times, count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import sympy

from collir.cost.formulas.functions import Column, Expr, Larger, Printer, Valued, expression
from collir.cost.formulas.overlaps import ended_before
from collir.cost.programs.memory import AT_END, Buffer, BufferUse
from collir.cost.programs.schedule import StepTask
from collir.cost.programs.simulation import LoopStep, Simulation

Life = tuple[int | None, tuple[int, ...] | None]
"""The step that allocates a buffer, and the steps after which it is free."""


class Spare(Valued):
    """The number of second buffers of a carry, 0 or 1, by the number of iterations. ``odd`` says
    whether an odd number of iterations needs none."""

    is_nonnegative = True

    @classmethod
    def eval(cls, *args: Expr) -> Expr | None:
        """Return a number for numbers."""
        times, odd = args
        return sympy.Integer(int(cls.values(int(times), int(odd)))) if times.is_Number else None

    def _latex(self, printer: Printer) -> str:
        """Return Iverson's bracket of the iterations that need one."""
        times, odd = self.args
        which = "> 1" if odd == 0 else r"\text{ even}"
        return rf"\left[{printer.doprint(times)} {which}\right]"

    @classmethod
    def values(cls, *numbers: Column) -> Column:
        """Return the numbers of buffers."""
        times, odd = numbers
        return np.where((times <= 1) | ((odd > 0) & (times % 2 == 1)), 0.0, 1.0)


def peak_bytes(simulation: Simulation, inside: bool = False, device_class: int = 0) -> Expr:
    """Return the most bytes that a device of a class holds at any time, or an upper bound.

    Args:
        inside: whether arguments and results are left out, as for an iteration.
    """
    return largest(totals(simulation, inside, device_class))


def is_exact(simulation: Simulation) -> bool:
    """Return whether steps follow each other, so that the peak is exact."""
    return len(simulation.places) == 1 and all(
        step.task.waited and (step.loop is None or is_exact(step.loop.body))
        for step in simulation.program
    )


def totals(
    simulation: Simulation,
    inside: bool,
    device_class: int = 0,
    steps: Iterable[int] | None = None,
) -> list[Expr]:
    """Return the bytes that a device may hold at the beginning, at its steps and at the end.

    Args:
        steps: the steps; the beginning is -1. None: all.
    """
    held = _held(simulation, inside, device_class, steps)
    return [inner + around for around, inner in held]


def bytes_at(simulation: Simulation, step: int) -> tuple[Expr, Expr]:
    """Return the bytes that a device may hold at a step: around it, and inside of a loop."""
    [parts] = _held(simulation, False, 0, [step])
    return parts


def _held(
    simulation: Simulation, inside: bool, device_class: int, steps: Iterable[int] | None
) -> list[tuple[Expr, Expr]]:
    """Return the bytes that a device may hold at each step, around it and inside of it."""
    program = simulation.program
    ended = ended_before(_tasks_of(simulation, device_class))
    lives: dict[Life, list[float]] = {}
    for buffer in simulation.held[device_class]:
        counts = not buffer.of_loop and (buffer.is_inside or not inside)
        if counts and not _is_in_place(buffer, ended):
            lives.setdefault((buffer.first, buffer.until), []).append(buffer.size)
    sizes = {life: sympy.Add(*map(expression, alike)) for life, alike in lives.items()}
    own = [n for n, step in enumerate(program) if device_class in step.task.on]
    states: dict[tuple[Expr, frozenset[tuple[Expr, int]]], None] = {}
    for step in [-1, *own, len(program)] if steps is None else steps:
        held = Counter(size for life, size in sizes.items() if _may_be_there(life, step, ended))
        states[_inside(simulation, step, device_class), frozenset(held.items())] = None
    return [(sympy.Add(*(n * size for size, n in held)), inner) for inner, held in states]


def bytes_by_use(simulation: Simulation) -> dict[BufferUse, Expr]:
    """Return the bytes of arguments and results that are held throughout, by use, each on the class
    of devices that holds most of it."""
    by_use: dict[BufferUse, list[Expr]] = {}
    for held in simulation.held:
        own: dict[BufferUse, list[Expr]] = {}
        for buffer in held:
            if buffer.first is None:
                own.setdefault(buffer.use, []).append(expression(buffer.size))
        for use, sizes in own.items():
            by_use.setdefault(use, []).append(sympy.Add(*sizes))
    return {use: largest(sizes) for use, sizes in by_use.items()}


def _tasks_of(simulation: Simulation, device_class: int) -> list[StepTask]:
    """Return the tasks of a program. With loops that classes run apart, return the tasks of one
    class, whose loops wait for all of its steps."""
    tasks = [step.task for step in simulation.program]
    if len(simulation.places) == 1 or not any(step.loop for step in simulation.program):
        return tasks
    alone: list[StepTask] = []
    for step, task in zip(simulation.program, tasks, strict=True):
        own = [n for n, other in enumerate(alone) if other.on]
        after = own if step.loop else [n for n in task.after if n in own]
        on = (device_class,) if device_class in task.on else ()
        alone.append(replace(task, after=tuple(after) if on else (), on=on))
    return alone


def _inside(simulation: Simulation, number: int, device_class: int) -> Expr:
    """Return the bytes that a device needs inside of a loop or a task."""
    step = simulation.program[number] if 0 <= number < len(simulation.program) else None
    if step is not None and step.pipelined is not None:
        return peak_bytes(step.pipelined.body, inside=True)
    if step is None or step.loop is None:
        return sympy.S.Zero
    loop = step.loop
    if len(simulation.places) > 1:
        held = simulation.held[device_class]
        spares = [expression(b.size) for b in held if b.of_loop and b.first == number]
    else:
        spares = _spares(loop)
    return sympy.Add(peak_bytes(loop.body, True, device_class), *spares)


def _spares(loop: LoopStep) -> list[Expr]:
    """Return the bytes of the second buffers of what a loop carries."""
    times = expression(loop.times)
    return [Spare(times, int(odd)) * expression(size) for size, odd in loop.spares]


def _is_in_place(buffer: Buffer, ended: Sequence[int]) -> bool:
    """Return whether a new value overwrites its argument, which nothing reads any more."""
    if buffer.over is None or buffer.first in (None, AT_END):
        return False
    return all(ended[buffer.first] >> reader & 1 for reader in buffer.over)


def _may_be_there(life: Life, step: int, ended: Sequence[int]) -> bool:
    """Return whether a device may hold a buffer at a step; -1 is before the first."""
    first, until = life
    if step < 0:
        return first is None
    if step == len(ended):
        return until is None
    if first == AT_END or (first is not None and ended[first] >> step & 1):
        return False
    return until is None or not all(ended[step] >> n & 1 for n in until)


def largest(numbers: Iterable[Expr]) -> Expr:
    """Return the largest of some sums, leaving out sums that are never larger than another one."""
    kept: dict[Expr, Mapping[Expr, Expr]] = {}
    for number in dict.fromkeys(numbers):
        own = sympy.sympify(number).as_coefficients_dict()
        if any(_is_never_less(other, own) for other in kept.values()):
            continue
        kept = {x: other for x, other in kept.items() if not _is_never_less(own, other)}
        kept[number] = own
    if not kept:
        return sympy.Integer(0)
    return next(iter(kept)) if len(kept) == 1 else Larger(*kept)


def _is_never_less(a: Mapping[Expr, Expr], b: Mapping[Expr, Expr]) -> bool:
    """Return whether all terms of a sum are at least those of another one, by their coefficients; a
    coefficient may be negative, as in a dimension that loses elements."""
    return all(a.get(term, 0) >= b.get(term, 0) for term in (*a, *b))
