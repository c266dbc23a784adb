"""Values of loops that may be written over each other: sums to which iterations add."""

from xdsl.ir import OpResult, SSAValue

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import same_type


def is_updated(loop: RepeatOp, number: int) -> bool:
    """Return whether iterations of a loop may overwrite a carry: nothing reads an element of the
    old value after the step that writes the new one."""
    return _overwrites(loop.body.block.args[number], loop.yielded[number])


def _overwrites(value: SSAValue, new: SSAValue) -> bool:
    """Return whether a new value of a block may overwrite an argument of the block.

    Only one step may read the argument, element by element, or a loop that does so with each slice.
    """
    uses, users = [*value.uses], [*new.uses]
    if len(uses) != 1 or len(users) != 1 or not same_type(value, new):
        return False
    [use] = uses
    op = use.operation
    if op is not new.owner:
        return False
    if isinstance(op, RepeatOp):
        assert isinstance(new, OpResult)
        carries, stack = len(op.carried), new.index
        is_slice = carries <= use.index < carries + len(op.sliced)
        if not is_slice or stack < carries:
            return False
        return _overwrites(op.body.block.args[use.index], op.yielded[stack])
    return isinstance(op, DistOp) and op.kind.elementwise
