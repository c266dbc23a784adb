"""The steps of a function, or of a program that is only planned, and what each of them needs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from collir.dialects.nested import NestedOp
from collir.dialects.operation import DistOp, attribute_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import AxesAttr, DistTensorType, PlaceAttr
from collir.layout import DistType, Mesh
from collir.layout.steps import ASYNC, OVER, Argument, Arguments, StepKind


@dataclass(frozen=True, eq=False)
class PlannedValue:
    """A value of a planned program, known by its type alone."""

    type: DistType


@dataclass(frozen=True, eq=False)
class PlannedStep:
    """A typed step that is not an operation yet: it can be priced, and built where it is to stand.

    Attributes:
        kind: the row of the step.
        arguments: the arguments by the names of their parameters.
        operands: the values that the step takes.
        result: the value that it makes.
    """

    kind: StepKind
    arguments: Arguments
    operands: tuple[PlannedValue, ...]
    result: PlannedValue

    @property
    def over(self) -> tuple[str, ...]:
        """The sub-axes that the step names, in order; none, if it names none."""
        axes = self.properties.get(OVER.name)
        return axes.data if isinstance(axes, AxesAttr) else ()

    @property
    def is_async(self) -> bool:
        """True if the step need not be waited for."""
        return ASYNC.name in self.arguments

    @property
    def properties(self) -> dict[str, Attribute]:
        """The arguments as properties of an operation."""
        parameters = (p for p in self.kind.parameters if p.name in self.arguments)
        return {p.name: attribute_of(p.kind, self.arguments[p.name]) for p in parameters}

    def is_free(self, mesh: Mesh) -> bool:
        """Return whether the step is only another view of its operand."""
        return self.kind.is_free(mesh, self.operands[0].type, self.arguments)


def step_op(
    mesh: Mesh, kind: StepKind, operands: Sequence[SSAValue], /, **arguments: Argument
) -> DistOp:
    """Return the operation of a row of the tables, with its result typed; it is in no block.

    Raises:
        LayoutError: the step is not well typed.
    """
    kinds = {parameter.name: parameter.kind for parameter in kind.parameters}
    properties = {name: attribute_of(kinds[name], x) for name, x in arguments.items()}
    return OPERATIONS[kind.name].make(mesh, *operands, **properties)


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


Step = DistOp | PlannedStep | NestedOp
"""A step of a program, built or only planned; a loop or a call is one."""


@overload
def steps_of(
    ops: Iterable[PlannedStep], mesh: Mesh
) -> Iterator[tuple[PlannedStep, tuple[int, ...]]]: ...


@overload
def steps_of(
    ops: Iterable[Operation], mesh: Mesh
) -> Iterator[tuple[DistOp | NestedOp, tuple[int, ...]]]: ...


@overload
def steps_of(
    ops: Iterable[Operation | PlannedStep], mesh: Mesh
) -> Iterator[tuple[Step, tuple[int, ...]]]: ...


def steps_of(
    ops: Iterable[Operation | PlannedStep], mesh: Mesh
) -> Iterator[tuple[Step, tuple[int, ...]]]:
    """Yield the steps that are more than views, in order, each with its predecessors.

    The predecessors of a step are the numbers of the steps that make its operands, counted in the
    order in which steps are yielded, and ascending. A view stands for the step that makes its
    operand.
    """
    maker: dict[SSAValue | PlannedValue, int] = {}
    count = 0
    for op in ops:
        if isinstance(op, DistOp):  # the most often first: this runs for every step
            free = op.place_in_operand(mesh) is not None and not op.kind.computes
        elif isinstance(op, PlannedStep):
            free = op.is_free(mesh)
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


def _predecessors(step: Step, maker: Mapping[SSAValue | PlannedValue, int]) -> tuple[int, ...]:
    """Return the numbers of the steps that make the operands of a step, ascending."""
    return tuple(sorted({maker[value] for value in step.operands if value in maker}))
