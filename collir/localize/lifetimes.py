"""The ends of the lives of memory: behind the last operation that uses it."""

from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.local import (
    AllocOp,
    FreeOp,
    LocalRepeatOp,
    ViewOp,
    origin_of,
    started_by,
)


def free_memory(block: Block) -> None:
    """Free all memory that a block allocates, in place."""
    last: dict[SSAValue, Operation] = {}
    for op in block.ops:
        if isinstance(op, ViewOp | AllocOp):
            continue
        for value in _used(op):
            last[value] = op
        if isinstance(op, LocalRepeatOp):
            free_memory(op.body.block)
    for op in list(block.ops):
        if isinstance(op, AllocOp):
            end = last.get(op.result)
            if end is None:
                op.detach()
                op.erase()
            else:
                block.insert_op_after(FreeOp.create(operands=[op.result]), end)


def _used(op: Operation) -> set[SSAValue]:
    """Return the allocations and arguments that an operation uses, until what it waits for."""
    used: set[SSAValue] = set()
    for inner in op.walk():
        for operand in inner.operands:
            started = started_by(operand)
            if started is not None:
                used |= _used(started)
            used.add(origin_of(operand)[0])
    return used
