"""The memory that a device needs for a function, by use and by step."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, groupby
from types import MappingProxyType

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from collir.cost.programs.kernels import FusedKernels
from collir.cost.programs.schedule import TimeSpan
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import same_type
from collir.ir.buffers import BufferPlan, copied_results
from collir.ir.roles import ROLE, Role, argument_roles, result_roles, role_of

AT_END = -1
"""Stands for a step: the time when all steps have ended."""


class BufferUse(StrEnum):
    """The use of a buffer: the role of a value in it, or its part in the function."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    STATE = "optimiser state"
    ACTIVATIONS = "activations"
    INPUTS = "inputs"
    RESULTS = "results"
    TEMPORARIES = "temporaries"


_OF_ROLES = {
    Role.PARAMETER: BufferUse.PARAMETERS,
    Role.GRADIENT: BufferUse.GRADIENTS,
    Role.STATE: BufferUse.STATE,
    Role.ACTIVATION: BufferUse.ACTIVATIONS,
}


def use_of(value: SSAValue) -> BufferUse:
    """Return the use of memory for a value by its role alone."""
    role = role_of(value)
    return _OF_ROLES[role] if role else BufferUse.TEMPORARIES


BY_ROLE = frozenset(_OF_ROLES.values())
"""The uses that only values with a role have."""


@dataclass(frozen=True)
class Buffer:
    """A buffer in the memory of a device.

    Attributes:
        size: bytes.
        first: the step at whose start it is allocated, or ``AT_END``; None at the beginning.
        until: the steps after which it is free; None if it is never freed.
        use: what it is for.
        over: for the new value of an argument, the steps that read the argument; else None. If
            these have ended before ``first``, the new value overwrites the argument.
        of_loop: whether it stands for the values inside of a loop or of a task.
    """

    size: float
    first: int | None
    until: tuple[int, ...] | None
    use: BufferUse = BufferUse.TEMPORARIES
    over: tuple[int, ...] | None = None
    of_loop: bool = False

    @property
    def is_inside(self) -> bool:
        """True if it is allocated after the beginning and freed before the end."""
        return self.first not in (None, AT_END) and self.until is not None


def buffers_of(
    function: FuncOp,
    where: BufferPlan,
    uses: Mapping[SSAValue, BufferUse],
    replaced: Mapping[SSAValue, SSAValue],
    kernels: FusedKernels,
    number_of: Mapping[Operation, int],
    is_held: Callable[[SSAValue], bool],
    bytes_of: Callable[[SSAValue], int],
    last_of: Mapping[Operation, int] = MappingProxyType({}),
) -> Iterator[Buffer]:
    """Yield the buffers that a device of one class holds.

    It holds arguments throughout, results from the step that first writes them, and all other
    values until the steps that read them have ended. Results that lie in other buffers are copied
    at the end. Values inside of kernels have no memory.

    Args:
        uses: the uses of buffers of values with a role, from ``uses_of``.
        replaced: arguments with new values, from ``replaced_arguments``.
        number_of: the number of every step that the class runs; a kernel has one number.
        is_held: a function that returns whether the class holds a value.
        bytes_of: a function that returns the bytes of a value on a device of the class.
        last_of: the last step of an operation of several steps. It reads all operands that the
            first step does not carry on.
    """
    for argument in filter(is_held, function.args):
        yield Buffer(bytes_of(argument), None, None, uses.get(argument, BufferUse.INPUTS))
    for value in filter(is_held, copied_results(where)):
        use = uses.get(where.buffer(value), BufferUse.RESULTS)
        yield Buffer(bytes_of(value), AT_END, None, use)
    kept = {where.buffer(value) for value in where.returned}
    written: dict[SSAValue, int] = {}
    read: dict[SSAValue, list[int]] = {}
    for op, number in number_of.items():
        carried = len(op.carried) if isinstance(op, RepeatOp) else 0
        for index, buffer in enumerate(map(where.buffer, op.operands)):
            until = number if index < carried else last_of.get(op, number)
            read.setdefault(buffer, []).append(until)
        for buffer in map(where.buffer, op.results):
            written.setdefault(buffer, number)
    for value, first in written.items():
        if not isinstance(value, BlockArgument) and is_held(value):
            if kernels.is_inside(value):
                continue
            until = None if value in kept else (first, *read.get(value, ()))
            use = uses.get(value, BufferUse.RESULTS if value in kept else BufferUse.TEMPORARIES)
            over = None
            if (argument := replaced.get(value)) is not None:
                writer = value.owner
                assert isinstance(writer, Operation)
                in_place = kernels.overwrites(writer, argument)
                over = tuple(n for n in read.get(argument, ()) if n != first or not in_place)
            yield Buffer(bytes_of(value), first, until, use, over)


def uses_of(function: FuncOp, where: BufferPlan) -> dict[SSAValue, BufferUse]:
    """Return the uses of the buffers that hold values with a role. The first role in the order of
    ``Role`` counts."""
    roles: dict[SSAValue, Role] = {}
    order = list(Role)

    def note(value: SSAValue, role: Role | None) -> None:
        buffer = where.buffer(value)
        known = roles.get(buffer)
        if role is not None and (known is None or order.index(role) < order.index(known)):
            roles[buffer] = role

    for argument, role in zip(function.args, argument_roles(function), strict=True):
        note(argument, role)
    for op in function.body.ops:
        for result in op.results if ROLE in op.attributes else ():
            note(result, role_of(result))
    for value, role in zip(where.returned, result_roles(function), strict=True):
        if where.buffer(value) not in roles:
            note(value, role)
    return {value: _OF_ROLES[role] for value, role in roles.items()}


def replaced_arguments(function: FuncOp, where: BufferPlan) -> dict[SSAValue, SSAValue]:
    """Return each memory of a result that is the new value of an argument, with that argument.

    A result with the role of a parameter or a state is the new value of the first argument of this
    role and type that has no new value yet.
    """
    left = list(zip(function.args, argument_roles(function), strict=True))
    replaced: dict[SSAValue, SSAValue] = {}
    for number, (value, role) in enumerate(
        zip(where.returned, result_roles(function), strict=True)
    ):
        if role not in (Role.PARAMETER, Role.STATE):
            continue
        old = next((it for it in left if it[1] is role and same_type(it[0], value)), None)
        if old is None:
            continue
        left.remove(old)
        if where.result_of.get(where.owner[value]) == number:
            replaced[where.owner[value]] = old[0]
    return replaced


@dataclass(frozen=True)
class Peak:
    """The largest number of bytes that a device holds.

    Attributes:
        size: bytes.
        time: the seconds after which the device first holds them.
        step: the number of the step at whose start it does; None at the beginning, ``AT_END`` where
            all steps have ended.
        uses: the bytes for each use.
    """

    size: float = 0.0
    time: float = 0.0
    step: int | None = None
    uses: Mapping[BufferUse, float] = field(default_factory=dict[BufferUse, float])


def peak_of(buffers: Iterable[Buffer], spans: Sequence[TimeSpan]) -> Peak:
    """Return the first peak of the memory of a device."""
    peak, held = Peak(), 0.0
    uses: dict[BufferUse, float] = {}
    for (time, step, _), size, use in _changes(buffers, spans):
        held += size
        uses[use] = uses.get(use, 0.0) + size
        if held > peak.size:
            place = None if step < 0 else AT_END if step == len(spans) else step
            peak = Peak(held, time, place, dict(uses))
    return peak


_Change = tuple[tuple[float, int, bool], float, BufferUse]
"""The time of a change, with the step and whether it ends; the bytes; what they are for."""


def _changes(buffers: Iterable[Buffer], spans: Sequence[TimeSpan]) -> list[_Change]:
    """Return the changes of the bytes that a device holds, in order."""
    end = max((end for _, end in spans), default=0.0), len(spans), False
    changes: list[_Change] = []
    for buffer in buffers:
        if buffer.over is not None and buffer.first is not None and _is_free(buffer, spans):
            continue
        match buffer.first:
            case None:
                start = 0.0, -1, False
            case _ if buffer.first == AT_END:
                start = end
            case step:
                start = spans[step][0], step, False
        changes.append((start, buffer.size, buffer.use))
        if buffer.until is not None:
            freed = max((spans[step][1], step, True) for step in buffer.until)
            changes.append((freed, -buffer.size, buffer.use))
    return sorted(changes)


def _is_free(buffer: Buffer, spans: Sequence[TimeSpan]) -> bool:
    """Return whether nothing reads an argument any more when its new value is written."""
    assert buffer.first is not None and buffer.over is not None
    return all(spans[step][1] <= spans[buffer.first][0] for step in buffer.over)


def most_held(buffers: Iterable[Buffer], spans: Sequence[TimeSpan]) -> float:
    """Return the most bytes that a device holds at any time."""
    sizes = (size for _, size, _ in _changes(buffers, spans))
    return max(accumulate(sizes, initial=0.0))


def memory_use(buffers: Iterable[Buffer], spans: Sequence[TimeSpan]) -> list[tuple[float, float]]:
    """Return the bytes that a device holds over time, as pairs (time, bytes) in order.

    Buffers that are allocated and freed at the same time change in the order of their steps. If a
    device holds more in between, there are two entries for that time.
    """
    use: list[tuple[float, float]] = []
    held = 0.0
    for time, group in groupby(_changes(buffers, spans), key=lambda change: change[0][0]):
        most = before = held
        for _, size, _ in group:
            held += size
            most = max(most, held)
        use += [(time, most)] if most > max(before, held) else []
        use.append((time, held))
    return use


def uses_over_time(
    buffers: Iterable[Buffer], spans: Sequence[TimeSpan]
) -> list[tuple[float, dict[BufferUse, float]]]:
    """Return the bytes held over time for each use; see ``memory_use``."""
    series: list[tuple[float, dict[BufferUse, float]]] = []
    uses: dict[BufferUse, float] = {}
    for time, group in groupby(_changes(buffers, spans), key=lambda change: change[0][0]):
        before = sum(uses.values())
        most = dict(uses)
        for _, size, use in group:
            uses[use] = uses.get(use, 0.0) + size
            if sum(uses.values()) > sum(most.values()):
                most = dict(uses)
        if sum(most.values()) > max(before, sum(uses.values())):
            series.append((time, most))
        series.append((time, dict(uses)))
    return series
