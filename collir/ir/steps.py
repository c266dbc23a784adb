"""The steps of a function, and what each of them needs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.dialects.nested import NestedOp
from collir.dialects.operation import DistOp, properties_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import AxesAttr, DistTensorType, PlaceAttr
from collir.layout import Mesh
from collir.layout.steps import Argument, StepKind


def step_op(
    mesh: Mesh, kind: StepKind, operands: Sequence[SSAValue], /, **arguments: Argument
) -> DistOp:
    """Return the operation of a row of the tables, with its result typed; it is in no block.

    Raises:
        LayoutError: the step is not well typed.
    """
    return OPERATIONS[kind.name].make(mesh, *operands, **properties_of(kind, arguments))


def axes_named(op: Operation) -> Iterator[str]:
    """Yield the sub-axes in the types that an operation makes, in its properties, and in the types
    of the arguments of its regions."""
    arguments = (arg for region in op.regions for block in region.blocks for arg in block.args)
    values = (value.type for value in (*op.results, *arguments))
    for attribute in (*values, *op.properties.values()):
        if isinstance(attribute, DistTensorType):
            yield from attribute.data.axes
        elif isinstance(attribute, AxesAttr):
            yield from attribute.data
        elif isinstance(attribute, PlaceAttr):
            yield from dict(attribute.data)


def first_use(function: FuncOp, subs: Sequence[str]) -> Operation | None:
    """Return the first operation of a function that is over some sub-axes; None without one."""
    return next((op for op in function.walk() if not set(subs).isdisjoint(axes_named(op))), None)


def is_free(op: Operation, mesh: Mesh) -> bool:
    """Return whether an operation is only another view of its operand, for which nothing waits."""
    if not isinstance(op, DistOp) or op.kind.computes:
        return False
    return op.place_in_operand(mesh) is not None


Step = DistOp | NestedOp
"""A step of a program; a loop or a call is one."""


def steps_of(ops: Iterable[Operation], mesh: Mesh) -> Iterator[tuple[Step, tuple[int, ...]]]:
    """Yield the steps that are more than views, in order, each with its predecessors.

    The predecessors of a step are the numbers of the steps that make its operands, counted in the
    order in which steps are yielded, and ascending. A view stands for the step that makes its
    operand.
    """
    maker: dict[SSAValue, int] = {}
    count = 0
    for op in ops:
        if isinstance(op, DistOp):  # the most often first: this runs for every step
            free = op.place_in_operand(mesh) is not None and not op.kind.computes
        elif isinstance(op, NestedOp):
            yield op, _predecessors(op, maker)
            maker |= dict.fromkeys(op.results, count)
            count += 1
            continue
        else:  # the return
            continue
        predecessors = _predecessors(op, maker)
        if not free:
            maker[op.result] = count
            count += 1
            yield op, predecessors
        elif predecessors:
            (maker[op.result],) = predecessors


def _predecessors(step: Step, maker: Mapping[SSAValue, int]) -> tuple[int, ...]:
    """Return the numbers of the steps that make the operands of a step, ascending."""
    return tuple(sorted({maker[value] for value in step.operands if value in maker}))
