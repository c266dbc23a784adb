"""The steps of a function: its operations that are more than views, and what each waits for."""

from collections.abc import Iterable, Iterator

from xdsl.ir import Operation, SSAValue

from collir.dialects.operation import DistOp
from collir.layout import Mesh


def is_free(op: Operation, mesh: Mesh) -> bool:
    """Whether an operation is another look at its operand, for which nothing waits."""
    if not isinstance(op, DistOp) or op.kind.computes:
        return False
    return op.place_in_operand(mesh) is not None


def steps_of(ops: Iterable[Operation], mesh: Mesh) -> Iterator[tuple[DistOp, list[DistOp]]]:
    """The operations that are more than views, in order, each with those that make its operands."""
    made_by: dict[SSAValue, DistOp] = {}
    for op in ops:
        if not isinstance(op, DistOp):  # the return
            continue
        makers = list(dict.fromkeys(made_by[one] for one in op.operands if one in made_by))
        if not is_free(op, mesh):
            made_by[op.result] = op
            yield op, makers
        elif makers:
            (made_by[op.result],) = makers
