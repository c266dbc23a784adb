"""Results of a program of ranks that may lie in the memory of its arguments."""

from collections.abc import Collection, Iterator, Sequence

from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.local import (
    AtOp,
    ComputeOp,
    LocalFuncOp,
    LocalRepeatOp,
    StartOp,
    WaitOp,
    origin_of,
    started_by,
)
from collir.dialects.local_types import BufferType
from collir.localize.memory import accesses

_ELEMENTWISE = ("add", "scale")
"""The computations that read an element of an operand before they write that of their result."""


def in_place(function: LocalFuncOp, collectives: Collection[str]) -> dict[int, int]:
    """Return for results the number of an argument whose memory each may take.

    Nothing may read the argument when the result is first written, except an operation on elements,
    or a collective that may overwrite its operand.

    Args:
        collectives: the names of these.
    """
    reused: dict[int, int] = {}
    places = function.places.data
    for number, output in enumerate(function.outputs):
        for index, argument in enumerate(function.inputs):
            alike = argument.type == output.type
            alike = alike and places[index] == places[len(function.inputs) + number]
            if not alike or index in reused.values():
                continue
            if _is_free(function, argument, output, collectives):
                reused[number] = index
                break
    return reused


def _is_free(
    function: LocalFuncOp, argument: SSAValue, output: SSAValue, collectives: Collection[str]
) -> bool:
    """Return whether an argument is read for the last time before a result is written."""
    ops = list(_in_order(function.body.block))
    first_write, last_read = len(ops), -1
    ending = set[Operation]()
    for number, op in enumerate(ops):
        if isinstance(op, WaitOp) and started_by(op.token) in ending:
            continue
        if first_write > number and _works_in_place(op, argument, output, collectives):
            first_write = number + 1
            ending.add(op)
            continue
        reads, writes = _used(op)
        if output in writes:
            first_write = min(first_write, number)
        if argument in reads:
            last_read = number
    return last_read < first_write


def _in_order(block: Block) -> Iterator[Operation]:
    for op in block.ops:
        if isinstance(op, AtOp):
            yield from _in_order(op.body.block)
        else:
            yield op


def _used(op: Operation) -> tuple[set[SSAValue], set[SSAValue]]:
    """Return the memory that an operation reads and the memory that it writes; a wait counts like
    its start, and a loop may do both with everything that it uses."""
    started = started_by(op.token) if isinstance(op, WaitOp) else None
    reads, writes = accesses(started or op)
    if isinstance(op, LocalRepeatOp):
        buffers = (x for inner in op.walk() for x in inner.operands)
        reads = writes = [x for x in buffers if isinstance(x.type, BufferType)]
    return _memory(reads), _memory(writes)


def _memory(values: Sequence[SSAValue]) -> set[SSAValue]:
    return {origin_of(value)[0] for value in values}


def _works_in_place(
    op: Operation, argument: SSAValue, output: SSAValue, collectives: Collection[str]
) -> bool:
    """Return whether an operation may write its whole result to an argument that it reads."""
    if isinstance(op, StartOp):
        return op.called in collectives and op.source is argument and op.target is output
    if not isinstance(op, ComputeOp) or op.kernel.data not in _ELEMENTWISE:
        return False
    read = [value for value in op.inputs if origin_of(value)[0] is argument]
    return all(value is argument for value in read) and list(op.outputs) == [output]
