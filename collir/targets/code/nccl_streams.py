"""The streams and events of a function with ``async`` collectives.

An ``async`` collective runs on a stream of the mesh, the one of the outermost level that it goes
through; everything else runs on the caller's stream. The streams of the mesh start behind the
earlier work of the caller's stream. An operation waits for the events of the operations that
computed its operands on another stream. In the end the caller's stream waits for all streams.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, NestedOp
from collir.dialects.operation import DistOp
from collir.ir.buffers import BufferPlan
from collir.ir.steps import is_free
from collir.layout.coll import SEND
from collir.targets.code.ranks import outermost

CALLERS = "stream"
"""The caller's stream."""


def is_async(op: object) -> TypeGuard[DistOp]:
    """Return whether an operation is a collective that is not waited for."""
    return isinstance(op, DistOp) and op.is_async


def levels_of(functions: Iterable[FuncOp]) -> tuple[str, ...]:
    """Return the levels whose streams functions on one mesh need, outermost first."""
    used: set[str] = set()
    levels: dict[str, None] = {}
    for function in functions:
        mesh = mesh_of(function)
        levels |= dict.fromkeys(level.name for level in mesh.machine.levels)
        used |= {outermost(mesh, op) for op in function.body.ops if is_async(op)}
    return tuple(level for level in ("", *levels) if level in used)


def events_of(functions: Iterable[FuncOp]) -> int:
    """Return the number of events that functions on one mesh need: one for each collective that is
    not waited for, and the first for the caller's stream."""
    most = max(map(_events_with_callees, functions), default=0)
    return 1 + most if most else 0


def _events_with_callees(function: FuncOp) -> int:
    """Return the most events that wait to be used at once by a function and those it calls."""
    return sum(map(is_async, function.body.ops)) + _events_of_callees(function)


def _events_of_callees(function: FuncOp) -> int:
    calls = (op for op in function.body.ops if isinstance(op, CallOp))
    callees = {callee for call in calls if (callee := call.function())}
    return max(map(_events_with_callees, callees), default=0)


@dataclass
class Streams:
    """The streams of one function, and the waits between them.

    Attributes:
        mesh: the variable of the mesh.
        levels: the levels that have a stream.
        events: the number of the event of each ``async`` collective.
        shared: the values whose memory other streams than the caller's use.
        _seen: for a stream and another one, the place of the last operation of the other stream
            that the first has waited for.
        _last: the place of the last operation on each stream.
        _places: the places of the operations in the function.
    """

    function: FuncOp
    plan: BufferPlan
    mesh: str
    levels: Sequence[str]
    events: dict[DistOp, int] = field(default_factory=dict[DistOp, int])
    _seen: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    _last: dict[str, int] = field(default_factory=dict[str, int])
    _places: dict[DistOp | NestedOp, int] = field(default_factory=dict[DistOp | NestedOp, int])

    def __post_init__(self) -> None:
        self.shared: set[SSAValue] = set()
        self.on: dict[DistOp | NestedOp, str] = {}
        first = 1 + _events_of_callees(self.function)
        for place, op in enumerate(self.function.body.ops):
            if isinstance(op, DistOp | NestedOp):
                self._places[op] = place
                self.on[op] = CALLERS
                if is_async(op):
                    self.events[op] = first + len(self.events)
                    number = self.levels.index(outermost(mesh_of(self.function), op))
                    self.on[op] = f"{self.mesh}.streams[{number}]"
                    self.shared |= set(map(self.plan.buffer, (*op.operands, *op.results)))

    def fork(self) -> list[str]:
        """Return the statements that let the streams of the mesh start."""
        lines = [self._record(0, CALLERS)] if self.events else []
        for stream in dict.fromkeys(self.on[op] for op in self.events):
            self._seen[stream, CALLERS] = -1
            lines.append(self._waits(stream, 0))
        return lines

    def before(self, op: DistOp | NestedOp) -> list[str]:
        """Return the statements that let the stream of an operation wait for its operands."""
        seen = dict(self._seen)
        lines: list[str] = []
        for operand in dict.fromkeys(map(self._written, op.operands)):
            lines += self._awaits(self.on[op], operand, self._places[op])
        if self.waits_at_sender(op):
            self._seen = seen
        return lines

    def waits_at_sender(self, op: DistOp | NestedOp) -> bool:
        """Return whether only the rank that sends waits for the operand of an operation: the other
        one is ready to receive while its own stream works."""
        return isinstance(op, DistOp) and op in self.events and op.kind is SEND

    def _written(self, value: SSAValue) -> SSAValue:
        """Return the value that is written when a value is ready: the origin of a view."""
        op, mesh = value.owner, mesh_of(self.function)
        while isinstance(op, DistOp) and is_free(op, mesh):
            value = op.operands[0]
            op = value.owner
        return value

    def after(self, op: DistOp) -> list[str]:
        """Return the statements that record the end of a collective."""
        if op not in self.events:
            return []
        self._last[self.on[op]] = self._places[op]
        return [self._record(self.events[op], self.on[op])]

    def join(self) -> list[str]:
        """Return the statements that let the caller's stream wait for all others so far."""
        by_place = {self._places[op]: op for op in self.events}
        return [
            line
            for place in self._last.values()
            for line in self._awaits(CALLERS, by_place[place].result, place)
        ]

    def _awaits(self, stream: str, value: SSAValue, now: int) -> list[str]:
        """Return the statements that let a stream wait for a value of another stream, if it has not
        waited yet."""
        op = value.owner
        if not isinstance(op, DistOp | NestedOp) or self.on[op] == stream:
            return []
        source, place = self.on[op], self._places[op]
        if self._seen.get((stream, source), -1) >= place:
            return []
        self._seen[stream, source] = now if source == CALLERS else place
        if source == CALLERS:
            return [self._record(0, CALLERS), self._waits(stream, 0)]
        assert isinstance(op, DistOp)
        return [self._waits(stream, self.events[op])]

    def _record(self, event: int, stream: str) -> str:
        return f"TRY_CUDA(cudaEventRecord({self.mesh}.events[{event}], {stream}));"

    def _waits(self, stream: str, event: int) -> str:
        return f"TRY_CUDA(cudaStreamWaitEvent({stream}, {self.mesh}.events[{event}], 0));"
