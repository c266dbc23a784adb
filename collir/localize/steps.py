"""Steps that send nothing: copies between buffers, and computations on blocks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from collir.dialects.local import MASK, ComputeOp, CopyOp, number
from collir.dialects.local_types import buffer_of
from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, SizeAttr, dist_type
from collir.layout import Mesh, Place
from collir.layout.local import LocalBuffer, coordinate_index
from collir.layout.sizes import OpenSize
from collir.layout.steps import ArgumentKind
from collir.localize.blocks import CutBlocks, part, permuted, repeated, starts_of
from collir.localize.writer import LocalWriter, Steps


@dataclass
class BufferedStep:
    """A step with the buffers of its operands and its result.

    Attributes:
        held: the start of each operand in the memory of the result, in elements, if it lies there.
    """

    op: DistOp
    mesh: Mesh
    writer: LocalWriter
    inputs: Sequence[SSAValue]
    output: SSAValue
    held: Sequence[int | None]

    @property
    def place(self) -> Place:
        """The place of the ranks that run it."""
        return dist_type(self.op.result).place

    @property
    def x(self) -> LocalBuffer:
        """The buffer of the first operand."""
        return buffer_of(self.inputs[0])

    @property
    def y(self) -> LocalBuffer:
        """The buffer of the result."""
        return buffer_of(self.output)

    def copy(
        self,
        source: LocalBuffer,
        target: LocalBuffer,
        *,
        number: int = 0,
        read_from: int = 0,
        write_from: int = 0,
    ) -> Operation:
        """Return the copy of a view of an operand to a view of the result."""
        place = dist_type(self.op.operands[number]).place
        read = self.writer.view(self.inputs[number], source, read_from, place)
        written = self.writer.view(self.output, target, write_from, place)
        return CopyOp.of(read, written)


Lowering = Callable[[BufferedStep], list[Operation]]
"""A function from a step to the operations of the ranks at its place."""


def _sliced(s: BufferedStep) -> list[Operation]:
    dim = s.op.integer("dim")
    blocks = CutBlocks.of(s.x, dim, s.op, s.mesh)
    return [s.copy(part(s.x, dim, s.y.shape[dim]), s.y, read_from=blocks.begin)]


def _masked(s: BufferedStep) -> list[Operation]:
    index = coordinate_index(s.mesh, s.op.over)
    word = {"reduction": StringAttr(s.op.word("reduction"))}
    return [ComputeOp.of(MASK, word, s.inputs, [s.output], [index])]


def _transposed(s: BufferedStep) -> list[Operation]:
    return [s.copy(permuted(s.x, s.op.sizes("order")), s.y)]


def _padded(s: BufferedStep) -> list[Operation]:
    dim, low, high = (s.op.integer(name) for name in ("dim", "low", "high"))
    kept = s.x.shape[dim] + min(0, low) + min(0, high)
    x_step, y_step = s.x.steps[dim], s.y.steps[dim]
    ops: list[Operation] = []
    for size, start in ((low, 0), (high, max(0, low) + kept)):
        if size > 0:
            edge = part(s.y, dim, size)
            view = s.writer.view(s.output, edge, start * y_step)
            value = {"value": NumberAttr(s.op.number("value"))}
            ops.append(ComputeOp.of("constant", value, [], [view]))
    if kept > 0:
        source, target = part(s.x, dim, kept), part(s.y, dim, kept)
        begin = max(0, -low) * x_step
        ops.append(s.copy(source, target, read_from=begin, write_from=max(0, low) * y_step))
    return ops


def _joined(s: BufferedStep) -> list[Operation]:
    dim, done = s.op.integer("dim"), 0
    ops: list[Operation] = []
    for place, value in enumerate(s.inputs):
        x = buffer_of(value)
        begin = done * s.y.steps[dim]
        if s.held[place] != begin:
            target = part(s.y, dim, x.shape[dim])
            ops.append(s.copy(x, target, number=place, write_from=begin))
        done += x.shape[dim]
    return ops


def _repeated(s: BufferedStep) -> list[Operation]:
    return [s.copy(repeated(s.x, s.y.shape), s.y)]


COPIES: dict[str, Lowering] = {
    "slice": _sliced,
    "mask": _masked,
    "transpose": _transposed,
    "pad": _padded,
    "concat": _joined,
    "broadcast_to": _repeated,
}
"""The steps that are no computations of their name, by their names."""

RESULT = -1

PLACED = {
    "iota": RESULT,
    "uniform": RESULT,
    "take": 0,
    "take_transpose": RESULT,
    "take_along_dim": 0,
    "take_along_dim_transpose": RESULT,
    "grouped_matmul": 1,
    "grouped_matmul_transpose": RESULT,
    "one_hot": RESULT,
}
"""The computations that depend on the place of a block in the whole, with the operand, or the
result, that the block belongs to."""


def lowered(s: BufferedStep) -> Steps:
    """Return the operations of a step that sends nothing, whose result has memory of its own."""
    if s.op.kind.assembles:
        return list(_assembled(s))
    lowering = COPIES.get(s.op.mnemonic, _computed)
    return [(s.place, lowering(s))]


def _assembled(s: BufferedStep) -> Iterator[tuple[Place, list[Operation]]]:
    for place, operand in enumerate(s.op.operands):
        if s.held[place] != 0:
            copy = s.copy(buffer_of(s.inputs[place]), s.y, number=place)
            yield dist_type(operand).place, [copy]


def _computed(s: BufferedStep) -> list[Operation]:
    op = s.op
    whose = PLACED.get(op.mnemonic)
    x = dist_type((*op.operands, op.result)[RESULT if whose is None else whose])
    starts = () if whose is None else starts_of(x, s.mesh)
    whole = () if whose is None else [int(n) for n in x.shape]
    arguments = localised(op)
    return [ComputeOp.of(op.mnemonic, arguments, s.inputs, [s.output], starts, whole)]


def localised(op: DistOp) -> dict[str, Attribute]:
    """Return the properties of a step on the blocks of a rank, without its type."""
    kept: dict[str, Attribute] = {}
    numbers = {x.name for x in op.kind.parameters if x.kind is ArgumentKind.NUMBER}
    for name, value in op.properties.items():
        if isinstance(value, SizeAttr) and isinstance(value.data, OpenSize):
            kept[name] = value
        elif isinstance(value, SizeAttr):
            as_number = name in numbers
            kept[name] = NumberAttr(op.number(name)) if as_number else number(op.integer(name))
        elif name not in op.timing and not isinstance(value, DistTensorType):
            kept[name] = value
    return kept
