"""The steps of a function: its operations that are more than views, and what each of them needs."""

from collections.abc import Iterable, Iterator

from xdsl.ir import Operation, SSAValue

from collir.dialects.operation import DistOp
from collir.layout import Mesh


def is_free(op: Operation, mesh: Mesh) -> bool:
    """Return whether an operation is only another view of its operand, for which nothing waits."""
    if not isinstance(op, DistOp) or op.kind.computes:
        return False
    return op.place_in_operand(mesh) is not None


def steps_of(ops: Iterable[Operation], mesh: Mesh) -> Iterator[tuple[DistOp, tuple[int, ...]]]:
    """Yield the operations that are more than views, in order, each with its predecessors.

    The predecessors of a step are the numbers of the steps that make its operands, counted in the
    order in which steps are yielded, and ascending. A view stands for the step that makes its
    operand.
    """
    maker: dict[SSAValue, int] = {}
    count = 0
    for op in ops:
        if not isinstance(op, DistOp):  # the return
            continue
        predecessors = tuple(sorted({maker[value] for value in op.operands if value in maker}))
        if not is_free(op, mesh):
            maker[op.result] = count
            count += 1
            yield op, predecessors
        elif predecessors:
            (maker[op.result],) = predecessors
