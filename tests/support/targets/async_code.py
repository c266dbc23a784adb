"""Checks of the events with which streams of NCCL wait for each other.

Vector clocks say what each stream knows to be done. What a collective on a stream of its own uses
must be done before it starts, and it must be done before anything else uses its memory.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.local import AllocOp, FreeOp, LocalRepeatOp, StartOp, WaitOp, ranks_at
from collir.dialects.local_types import buffer_of
from collir.dialects.operation import DistOp
from collir.layout import Place
from collir.layout.local import Ranks
from collir.localize.memory import accesses, memory_of
from collir.targets.code.nccl_file import NcclFile
from collir.targets.code.nccl_method import NcclMethod
from collir.targets.code.nccl_streams import StreamPlan
from collir.targets.code.rank_leaves import leaves, place_of_memory


def able(function: FuncOp) -> list[DistOp]:
    """Return the collectives of a function that may be ``async``."""
    return [
        op
        for op in function.walk()
        if isinstance(op, coll.COLLECTIVES) and not isinstance(op, OPERATIONS["permute"])
    ]


def make_async(
    functions: Iterable[FuncOp], rng: random.Random | None = None, share: float = 1.0
) -> int:
    """Make all collectives or about a share of them ``async``; return their number."""
    count = 0
    for op in (op for function in functions for op in able(function)):
        if rng is None or rng.random() < share:
            op.properties["async"] = UnitAttr()
            count += 1
    return count


def marked(module: ModuleOp) -> int:
    """Return the number of ``async`` operations of a module."""
    return sum(isinstance(op, DistOp) and "async" in op.properties for op in module.walk())


# --- streams ------------------------------------------------------------------------------------


class Bytes(NamedTuple):
    """A range of bytes of an argument, or of the arena, of the ranks at a place."""

    base: object
    low: int
    high: int
    place: Place

    def meets(self, other: "Bytes") -> bool:
        at = dict(self.place)
        if any(at.get(axis, n) != n for axis, n in other.place):
            return False
        return self.base == other.base and self.low < other.high and other.low < self.high


def bytes_of(value: SSAValue, ranks: Ranks) -> Bytes:
    """Return where a buffer lies."""
    base, low, high = memory_of(value, ranks)
    size = buffer_of(base).dtype.bytes
    if not isinstance(base.owner, AllocOp):
        return Bytes(base, low * size, high * size, ())
    start = ranks.bounds(base.owner.start.data)[0] if base.owner.start else 0
    return Bytes("arena", start + low * size, start + high * size, place_of_memory(base))


class Work(NamedTuple):
    """Something that a stream does.

    Attributes:
        number: its number on the stream.
    """

    stream: object
    number: int
    reads: Sequence[Bytes]
    writes: Sequence[Bytes]
    op: Operation


CALLERS = "the caller's"


class _Clocks:
    """For every stream, the number of the last work on each stream that it knows to be done."""

    def __init__(self) -> None:
        self.of: dict[object, dict[object, int]] = {}
        self.done: list[Work] = []

    def own(self, stream: object) -> dict[object, int]:
        return self.of.setdefault(stream, {})

    def wait(self, stream: object, known: dict[object, int]) -> None:
        clock = self.own(stream)
        for other, number in known.items():
            clock[other] = max(clock.get(other, 0), number)

    def work(self, stream: object, op: Operation, ranks: Ranks) -> Iterator[str]:
        """Add work to a stream, and yield what it disturbs or lacks."""
        reads, writes = ([bytes_of(x, ranks) for x in side] for side in accesses(op))
        clock = self.own(stream)
        for other in self.done:
            if clock.get(other.stream, 0) >= other.number:
                continue
            if any(a.meets(b) for a in other.writes for b in (*reads, *writes)) or any(
                a.meets(b) for a in other.reads for b in writes
            ):
                yield f"{op.name} does not wait for {other.op.name} on {other.stream}"
        clock[stream] = clock.get(stream, 0) + 1
        self.done.append(Work(stream, clock[stream], reads, writes, op))


def hazards(module: ModuleOp) -> list[str]:
    """Return what the code of NCCL for a module does too early."""
    faults: list[str] = []
    for text in NcclFile(module).texts:
        name = text.function.sym_name.data
        faults += [f"{name}: {fault}" for fault in _in_function(text)]
    return faults


def _in_function(text: NcclMethod) -> Iterator[str]:
    clocks, events = _Clocks(), dict[object, dict[object, int]]()
    events[StreamPlan.BEGIN] = {}
    yield from _in_block(text, text.function.body.block, clocks, events)
    last = clocks.own(CALLERS)
    yield from (
        f"{work.op.name} on {work.stream} may not have ended"
        for work in clocks.done
        if last.get(work.stream, 0) < work.number
    )


def _in_block(
    text: NcclMethod, block: Block, clocks: _Clocks, events: dict[object, dict[object, int]]
) -> Iterator[str]:
    """Yield the faults of a block; that of a loop runs twice."""
    ranks, plan = ranks_at(text.function), text.streams
    for _, op in leaves(block):
        if isinstance(op, WaitOp | AllocOp | FreeOp):
            continue
        is_free = isinstance(op, StartOp) and op in plan.stream
        stream = f"that of {plan.stream[op]}" if isinstance(op, StartOp) and is_free else CALLERS
        ends = plan.ends.get(op, []) if isinstance(op, StartOp) else []
        for what in (x for side in ends or [plan.waits.get(op, [])] for x in side):
            clocks.wait(stream, clocks.own(CALLERS) if what is StreamPlan.NOW else events[what])
        if isinstance(op, LocalRepeatOp):
            for _ in range(2):
                yield from _in_block(text, op.body.block, clocks, events)
        else:
            yield from clocks.work(stream, op, ranks)
        if is_free or op in plan.recorded:
            events[op] = dict(clocks.own(stream))
    for op in plan.joined[block]:
        clocks.wait(CALLERS, events[op])
