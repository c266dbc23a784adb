"""Steps that run as one kernel, as those of a ``call`` that is ``fused``.

The name of the kernel is a discardable attribute of its steps, which follow each other. It changes
nothing that a program computes. A step that a pass puts in the place of another has no kernel, and
divides the kernel that it stands in.
"""

from collections.abc import Container, Generator, Iterable
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
    """Return whether an operation is a part of a kernel that is the reverse of one."""
    return (kernel_name(op) or "").endswith(_REVERSE)


def fusion_error(call: CallOp, op: Operation) -> Diagnostic | None:
    """Return the error for a call that is fused, and a step that is no part of a kernel: one that
    sends, is a loop, or waits for others."""
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
    """Let the steps of a fused call in a function be one kernel.

    Raises:
        DiagnosticError: one of them is no part of a kernel.
    """
    taken = {kernel_name(op) for op in function.walk()}
    names = (f"{call.symbol}_{number}" for number in count(1))
    kernel = next(name for name in names if name not in taken)
    for op in steps:
        if error := fusion_error(call, op):
            raise DiagnosticError(error)
        op.attributes[KERNEL] = StringAttr(kernel)


@contextmanager
def fused_like(op: Operation, block: Block, apart: Container[Operation]) -> Generator[None]:
    """Let the local steps that are added to the end of a block be a kernel, if an operation is a
    part of one: that of its reverse.

    Args:
        apart: steps that are in none.
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
