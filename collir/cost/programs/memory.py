"""The memory that a device needs for a function, and the steps between which it needs it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from collir.cost.programs.schedule import TimeSpan
from collir.ir.buffers import BufferPlan, copied_results

AT_END = -1
"""Stands for a step: the time when all steps have ended."""


@dataclass(frozen=True)
class Buffer:
    """A buffer in the memory of a device.

    Attributes:
        size: bytes.
        first: the step from whose start it is needed, or ``AT_END``; None if from the beginning.
        until: the steps after whose ends it is free; None if it is never free.
    """

    size: float
    first: int | None
    until: tuple[int, ...] | None

    @property
    def is_inside(self) -> bool:
        """True if it is neither there from the beginning nor left at the end."""
        return self.first not in (None, AT_END) and self.until is not None


def buffers_of(
    function: FuncOp,
    where: BufferPlan,
    number_of: Mapping[Operation, int],
    is_held: Callable[[SSAValue], bool],
    bytes_of: Callable[[SSAValue], int],
) -> Iterator[Buffer]:
    """Yield the buffers that a device of one class holds.

    It holds arguments throughout, results from the step that first writes them, and all other
    values until the steps that read them have ended. Results that lie in other buffers are copied
    at the end.

    Args:
        number_of: the number of every step of the function that the class runs.
        is_held: a function that returns whether the class holds a value.
        bytes_of: a function that returns the bytes of a value on a device of the class.
    """
    for argument in filter(is_held, function.args):
        yield Buffer(bytes_of(argument), None, None)
    for value in filter(is_held, copied_results(where)):
        yield Buffer(bytes_of(value), AT_END, None)
    kept = {where.buffer(value) for value in where.returned}
    written: dict[SSAValue, int] = {}
    read: dict[SSAValue, list[int]] = {}
    for op, number in number_of.items():
        for buffer in map(where.buffer, op.operands):
            read.setdefault(buffer, []).append(number)
        for buffer in map(where.buffer, op.results):
            written.setdefault(buffer, number)
    for value, first in written.items():
        if not isinstance(value, BlockArgument) and is_held(value):
            until = None if value in kept else (first, *read.get(value, ()))
            yield Buffer(bytes_of(value), first, until)


def memory_use(buffers: Iterable[Buffer], spans: Sequence[TimeSpan]) -> list[tuple[float, float]]:
    """Return the bytes that a device holds from each time on, as (time, bytes) in order.

    Buffers that are allocated and freed at one time are so in the order of their steps. If a device
    holds more in between than before and after, there are two entries for that time.
    """
    end = max((end for _, end in spans), default=0.0), len(spans), False
    changes: list[tuple[tuple[float, int, bool], float]] = []
    for buffer in buffers:
        match buffer.first:
            case None:
                start = 0.0, -1, False
            case _ if buffer.first == AT_END:
                start = end
            case step:
                start = spans[step][0], step, False
        changes.append((start, buffer.size))
        if buffer.until is not None:
            freed = max((spans[step][1], step, True) for step in buffer.until)
            changes.append((freed, -buffer.size))
    changes.sort()
    use: list[tuple[float, float]] = []
    held = 0.0
    for time, group in groupby(changes, key=lambda change: change[0][0]):
        most = before = held
        for _, size in group:
            held += size
            most = max(most, held)
        use += [(time, most)] if most > max(before, held) else []
        use.append((time, held))
    return use
