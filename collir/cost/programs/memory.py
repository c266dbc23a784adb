"""Which memory a device needs for a function, from which of its steps to which."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from collir.cost.programs.schedule import TimeSpan
from collir.dialects.tensor import dist_type
from collir.ir.buffers import BufferPlan, copied_results
from collir.layout import Mesh

AT_END = -1
"""In the place of a step: when all steps have ended."""


@dataclass(frozen=True)
class Buffer:
    """Memory of a device.

    Attributes:
        size: bytes.
        first: the step with whose start it is needed; None: before the first, or ``AT_END``.
        until: the steps after whose ends it is free; None: never.
    """

    size: float
    first: int | None
    until: tuple[int, ...] | None


def buffers_of(
    function: FuncOp, mesh: Mesh, where: BufferPlan, number_of: Mapping[Operation, int]
) -> Iterator[Buffer]:
    """What a device holds: arguments throughout, results from when they are first written, the rest
    until all that read it have ended. What is returned but lies elsewhere is copied in the end.

    Args:
        number_of: the steps of the function, numbered.
    """

    def bytes_of(value: SSAValue) -> int:
        return dist_type(value).local_bytes(mesh)

    for argument in function.args:
        yield Buffer(bytes_of(argument), None, None)
    for value in copied_results(where):
        yield Buffer(bytes_of(value), AT_END, None)
    kept = {where.owner[value] for value in where.returned}
    written: dict[SSAValue, int] = {}
    read: dict[SSAValue, list[int]] = {}
    for op, number in number_of.items():
        for value in (where.owner[one] for one in op.operands):
            read.setdefault(value, []).append(number)
        for value in (where.owner[one] for one in op.results):
            whole, _ = where.part_of.get(value, (value, 0))
            written.setdefault(whole, number)
    for value, first in written.items():
        if not isinstance(value, BlockArgument):
            until = None if value in kept else (first, *read.get(value, ()))
            yield Buffer(bytes_of(value), first, until)


def memory_use(buffers: Iterable[Buffer], spans: Sequence[TimeSpan]) -> list[tuple[float, float]]:
    """From when on a device holds how many bytes, in order of time.

    At one time buffers come and go in the order of their steps; where it holds more in between than
    before and after, there are two entries.
    """
    end = max((end for _, end in spans), default=0.0), len(spans), False
    changes: list[tuple[tuple[float, int, bool], float]] = []
    for buffer in buffers:
        match buffer.first:
            case None:
                at = 0.0, -1, False
            case _ if buffer.first == AT_END:
                at = end
            case step:
                at = spans[step][0], step, False
        changes.append((at, buffer.size))
        if buffer.until is not None:
            changes.append((max((spans[one][1], one, True) for one in buffer.until), -buffer.size))
    changes.sort()
    found: list[tuple[float, float]] = []
    now = 0.0
    for time, group in groupby(changes, key=lambda change: change[0][0]):
        most = before = now
        for _, size in group:
            now += size
            most = max(most, now)
        found += [(time, most)] if most > max(before, now) else []
        found.append((time, now))
    return found
