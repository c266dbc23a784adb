"""Steps that run as one kernel, such as the steps of a ``fused`` call.

The name of the kernel is a discardable attribute of its steps, which follow each other. It changes
nothing that a program computes. A step that a pass adds has no kernel, and divides the kernel
around it. Steps for layouts, such as gathers, are put around kernels.
"""

from collections.abc import Container, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation

from collir.dialects.nested import CallOp
from collir.dialects.operation import DistOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note

KERNEL = "coll.kernel"
"""The attribute with the name of a kernel."""

_REVERSE = "_gradient"
"""The end of the name of a kernel that is the reverse of one."""


def kernel_name(op: Operation) -> str | None:
    """Return the name of the kernel of several steps that an operation is a part of, or None."""
    name = op.attributes.get(KERNEL)
    return name.data if isinstance(name, StringAttr) else None


def is_of_gradient(op: Operation) -> bool:
    """Return whether an operation belongs to the reverse of a kernel."""
    return (kernel_name(op) or "").endswith(_REVERSE)


def fusion_error(call: CallOp, op: Operation) -> Diagnostic | None:
    """Return the error for a fused call with a step that cannot be in a kernel: one that sends, is
    a loop, or waits for others."""
    if isinstance(op, DistOp) and op.kind.local and not op.kind.computes:
        return None
    name = op.mnemonic if isinstance(op, DistOp) else op.name.rpartition(".")[2]
    return Diagnostic(
        f"@{call.symbol} cannot be fused: its {name} is no computation of each device alone; leave "
        "out `fused`",
        Position.of(call),
        (note("the step is here", Position.of(op)),),
    )


def fuse(steps: Iterable[Operation], call: CallOp, function: FuncOp) -> None:
    """Make the steps of a fused call in a function one kernel.

    Raises:
        DiagnosticError: a step cannot be in a kernel.
    """
    taken = {kernel_name(op) for op in function.walk()}
    names = (f"{call.symbol}_{number}" for number in count(1))
    kernel = next(name for name in names if name not in taken)
    for op in steps:
        if error := fusion_error(call, op):
            raise DiagnosticError(error)
        op.attributes[KERNEL] = StringAttr(kernel)


def keep_kernels_together(function: FuncOp) -> None:
    """Let the steps of each kernel of a function follow each other, in place: their operands are
    computed in front of them, and their users stand behind."""
    for op in [*function.walk()]:
        for block in (block for region in op.regions for block in region.blocks):
            kernels: dict[str, list[Operation]] = {}
            for step in block.ops:
                if (name := kernel_name(step)) is not None and not _is_view(step):
                    kernels.setdefault(name, []).append(step)
            for steps in kernels.values():
                _bring_together(steps)


def _bring_together(steps: Sequence[Operation]) -> None:
    first, last, own = steps[0], steps[-1], {*steps}
    in_front: list[Operation] = []
    behind: list[Operation] = []
    needing = set[Operation](own)
    step = first.next_op
    while step is not None and step is not last:
        if step not in own:
            needs_own = not needing.isdisjoint(_needed(step))
            (behind if needs_own else in_front).append(step)
            needing |= {step} if needs_own else set()
        step = step.next_op
    if any(not {*behind}.isdisjoint(_needed(moved)) for moved in own):
        return
    block = first.parent
    assert block is not None
    for moved in in_front:
        moved.detach()
        block.insert_op_before(moved, first)
    for moved in reversed(behind):
        moved.detach()
        block.insert_op_after(moved, last)


def _is_view(step: Operation) -> bool:
    """Return whether a step computes nothing, so that it may be outside of a kernel, too."""
    return isinstance(step, DistOp) and step.kind.is_view


def _needed(step: Operation) -> Iterator[Operation]:
    """Yield the operations whose results a step needs, itself or inside of it."""
    for op in step.walk():
        yield from (value.owner for value in op.operands if isinstance(value.owner, Operation))


@contextmanager
def fused_like(op: Operation, block: Block, apart: Container[Operation]) -> Generator[None]:
    """Make the local steps added to the end of a block a kernel, the reverse of an operation's
    kernel if it has one.

    Args:
        apart: steps that are in no kernel.
    """
    last = block.last_op
    yield
    name = kernel_name(op)
    if name is None:
        return
    added = block.first_op if last is None else last.next_op
    while added is not None:
        if isinstance(added, DistOp) and added.kind.local and added not in apart:
            added.attributes[KERNEL] = StringAttr(f"{name}{_REVERSE}")
        added = added.next_op
