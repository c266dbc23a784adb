"""A block that is being written: named steps, arithmetic, and values in other layouts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from collir.dialects.operation import attribute_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import dist_type
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.coll import KEEP, REDISTRIBUTE, SEND, step_between
from collir.layout.mesh import index_over
from collir.layout.rules import unreached
from collir.layout.sizes import same_size
from collir.layout.steps import AT, DIM, OVER, Argument, ArgumentKind, StepKind
from collir.layout.types import State, place_at


class BlockSteps:
    """The steps that are added at the end of a block, all with one source position.

    Attributes:
        location: the position of the steps that are added next.
    """

    def __init__(self, mesh: Mesh, block: Block):
        self.mesh, self.block = mesh, block
        self.location: LocationAttr | None = None

    def add(self, op: Operation) -> Operation:
        """Add an operation."""
        if self.location is not None:
            op.location = self.location
        self.block.add_op(op)
        return op

    def step(
        self, operation: str, operands: Sequence[SSAValue], arguments: Mapping[str, Any]
    ) -> SSAValue:
        """Add a step, and return its result; parameters that are not given have their defaults.

        Raises:
            LayoutError: it is not well typed.
        """
        kind = OPERATIONS[operation].KIND
        properties: dict[str, Attribute] = {}
        for parameter in kind.parameters:
            value = arguments.get(parameter.name, parameter.default)
            if value is not None and value is not False:
                properties[parameter.name] = attribute_of(parameter.kind, value)
        op = OPERATIONS[operation].make(self.mesh, *operands, **properties)
        self.add(op)
        return op.result

    def constant(self, x: DistType, value: float) -> SSAValue:
        """Add a constant. The parts of a partial one are the constant at one device, and neutral
        elements elsewhere."""
        made = self.step("constant", (), {"value": value, "to": x.whole})
        if not x.partial:
            return made
        over = self.mesh.ordered(x.partial)
        return self.step("mask", (made,), {"axes": over, "reduction": str(x.reduction)})

    def sum(self, values: Sequence[SSAValue]) -> SSAValue:
        """Return the sum of values of one shape, in their common layout or else whole."""
        by_type: dict[DistType, SSAValue] = {}
        for value in values:
            x = dist_type(value)
            known = by_type.get(x)
            by_type[x] = value if known is None else self.step("add", (known, value), {})
        if len(by_type) == 1:
            return next(iter(by_type.values()))
        to = next((x for x in by_type if not x.partial), next(iter(by_type)).whole)
        total, *others = (self.laid_out(value, to) for value in by_type.values())
        for addend in others:
            total = self.step("add", (total, addend), {})
        return total

    def laid_out(self, value: SSAValue, to: DistType) -> SSAValue:
        """Return a value in another layout, by one step where one does it.

        Raises:
            LayoutError: the layout cannot be reached.
        """
        x = dist_type(value)
        if x.agrees(to):
            return value
        for kind, arguments in single_steps(self.mesh, x, to):
            return self.step(kind.name, (value,), arguments)
        if away := unreached(x, to):
            return self._at_place(value, to, away)
        return self.step(REDISTRIBUTE.name, (value,), {"to": to})

    def _at_place(self, value: SSAValue, to: DistType, away: Sequence[str]) -> SSAValue:
        """Return a value in a layout at coordinates that no redistribution leads to: it is sent
        from its holder, or kept where every coordinate has it."""
        place, held = dict(to.place), dict(dist_type(value).place)
        sent = self.mesh.ordered(axis for axis in away if axis in held)
        before = to.without_place(away).with_place({axis: held[axis] for axis in sent})
        value = self.laid_out(value, before)
        if sent:
            sender, receiver = (index_over(self.mesh, sent, at) for at in (held, place))
            ends = {"axes": sent, "sender": sender, "receiver": receiver}
            value = self.step(SEND.name, (value,), ends)
        kept = {axis: place[axis] for axis in away if axis not in held}
        return self.step(KEEP.name, (value,), {AT.name: place_at(kept)}) if kept else value


def single_steps(
    mesh: Mesh, x: DistType, to: DistType
) -> Iterator[tuple[StepKind, Mapping[str, Argument]]]:
    """Yield the steps that lead from a layout to another."""
    for kind, arguments in _moves(mesh, x, to):
        try:
            if kind.result_type(mesh, [x], arguments).agrees(to):
                yield kind, arguments
        except LayoutError:
            continue


def _moves(
    mesh: Mesh, x: DistType, to: DistType
) -> Iterator[tuple[StepKind, Mapping[str, Argument]]]:
    """Yield the steps that may lead from a layout to another."""

    def step(
        before: State, after: State, axes: tuple[str, ...], dim: int | None = None
    ) -> Iterator[tuple[StepKind, Mapping[str, Argument]]]:
        kind = step_between(before, after)
        if kind is not None and axes:
            yield kind, {OVER.name: axes, **({} if dim is None else {DIM.name: dim})}

    reduced = mesh.ordered(x.partial - to.partial)
    yield from step("partial", "replicated", reduced)
    left = mesh.ordered(x.placed - to.placed)
    entered = mesh.ordered(to.placed - x.placed)
    yield from step("root", "replicated", left)
    yield from step("partial" if reduced else "replicated", "root", entered)
    for number, (old, new) in enumerate(zip(x.dims, to.dims, strict=True)):
        more, gone = new.axes[len(old.axes) :], old.axes[len(new.axes) :]
        source: State = "partial" if reduced else "root" if left else "replicated"
        yield from step(source, "sharded", more, number)
        yield from step("sharded", "root" if entered else "replicated", gone, number)
        for target, (own, there) in enumerate(zip(x.dims, to.dims, strict=True)):
            if gone and there.axes == own.axes + gone:
                yield from _between_dims(gone, number, target)


def _between_dims(
    axes: tuple[str, ...], source: int, target: int
) -> Iterator[tuple[StepKind, Mapping[str, Argument]]]:
    """Yield the step that moves sub-axes from one dimension to another."""
    kind = step_between("sharded", "sharded")
    if kind is not None:
        dims = [x.name for x in kind.parameters if x.kind is ArgumentKind.INTEGER]
        yield kind, {OVER.name: axes, **dict(zip(dims, (source, target), strict=True))}


@dataclass(frozen=True, eq=False)
class BlockValue:
    """A value of a block that is being written; arithmetic adds steps (a ``Term``)."""

    steps: BlockSteps
    value: SSAValue

    @property
    def type(self) -> DistType:
        return dist_type(self.value)

    def __add__(self, other: "BlockValue") -> "BlockValue":
        return self.step("add", other)

    def __sub__(self, other: "BlockValue") -> "BlockValue":
        return self.step("sub", other)

    def __mul__(self, other: "BlockValue") -> "BlockValue":
        return self.step("mul", other)

    def __truediv__(self, other: "BlockValue") -> "BlockValue":
        return self.step("div", other)

    def __neg__(self) -> "BlockValue":
        return self.step("neg")

    def step(self, operation: str, *others: "BlockValue", **arguments: Any) -> "BlockValue":
        """Add a step whose first operand is this value, and return its result."""
        operands = [self.value, *(other.value for other in others)]
        return BlockValue(self.steps, self.steps.step(operation, operands, arguments))

    def full(self, value: float) -> "BlockValue":
        """Return a constant without dimensions, with the dtype and the devices of this value."""
        x = replace(self.type.whole, dims=())
        return BlockValue(self.steps, self.steps.constant(x, value))

    def whole(self) -> "BlockValue":
        """Return the value behind its reduction, if it is partial."""
        return BlockValue(self.steps, self.steps.laid_out(self.value, self.type.whole))

    def repeated(self, x: DistType) -> "BlockValue":
        """Return the value repeated along dimensions of size 1 to the shape and the layout of a
        type; a partial value stays partial."""
        to = replace(x, partial=self.type.partial, reduction=self.type.reduction)
        return self if self.type.agrees(to) else self.step("broadcast_to", to=to)

    def summed_to(self, x: DistType) -> "BlockValue":
        """Return the sum over the dimensions along which a value of this shape was repeated."""
        own, shape = self.type.shape, x.shape
        if same_size(own, shape):
            return self
        more = len(own) - len(shape)
        dims = [d for d, n in enumerate(own) if d < more or not same_size(n, shape[d - more])]
        total = self.step("sum", dims=tuple(dims)) if dims else self
        return total if same_size(total.type.shape, shape) else total.step("reshape", shape=shape)
