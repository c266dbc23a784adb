"""The lifetimes of memory: from the first operation that uses it until after the last."""

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
    """Allocate the memory of a block where it is first used, and free it, in place."""
    last: dict[SSAValue, Operation] = {}
    for op in reversed(list(block.ops)):
        if isinstance(op, ViewOp | AllocOp):
            _move_to_first_use(op, op.result, block)
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


def _move_to_first_use(op: Operation, result: SSAValue, block: Block) -> None:
    """Move an operation of a block in front of the first one that uses its result."""
    users = {block.find_ancestor_op_in_block(use.operation) for use in result.uses}
    following = op.next_op
    while following is not None and following not in users:
        following = following.next_op
    if following is not None and following is not op.next_op:
        op.detach()
        block.insert_op_before(op, following)


def _used(op: Operation) -> set[SSAValue]:
    """Return the allocations and arguments that an operation uses until it ends."""
    used: set[SSAValue] = set()
    for inner in op.walk():
        for operand in inner.operands:
            started = started_by(operand)
            if started is not None:
                used |= _used(started)
            used.add(origin_of(operand)[0])
    return used
