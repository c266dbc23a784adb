"""The body of a loop over microbatches with its loops over layers cut into chunks.

The copy of the body is flat: a block whose loops run over the layers of one chunk each. A stack is
as many values as there are chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.names import set_name
from collir.ir.roles import pass_role
from collir.ir.steps import step_op
from collir.layout import DistType
from collir.layout.coll import ADD, BARRIER, MASK, SCALE
from collir.layout.dtypes import Reduction
from collir.layout.nn import CONSTANT
from collir.transforms.loops.fission import added_terms
from collir.transforms.stages.stacks import COMBINED, leading, needed_by, remade, rows_reduced_by


class Source(NamedTuple):
    """The origin of an argument of a flat body.

    Attributes:
        argument: an argument of the loop's body.
        chunk: the chunk of it; None for a whole value.
        is_extra: whether it is a further sum, which starts from zero and is added to the carry
            behind the loop.
        direction: the copy of the model that takes it.
    """

    argument: BlockArgument
    chunk: int | None = None
    is_extra: bool = False
    direction: int = 0


@dataclass(eq=False)
class Flat:
    """The flat body of a loop.

    Attributes:
        block: the operations, with a yield at the end.
        sources: the origin of each argument of the block.
        loops: the loops over layers, each with its chunk and the loop that it is a part of.
        carries: the number of arguments that are carries; they come first.
        slices: the number of arguments behind them that are slices.
        directions: the number of copies of the model, each of which takes its part of the
            microbatches.
    """

    block: Block
    sources: list[Source]
    loops: dict[Operation, tuple[int, RepeatOp]] = field(
        default_factory=dict[Operation, tuple[int, RepeatOp]]
    )
    carries: int = 0
    slices: int = 0
    directions: int = 1

    @property
    def last(self) -> YieldOp:
        """The end of the block, with what it yields."""
        assert isinstance(self.block.last_op, YieldOp)
        return self.block.last_op

    @property
    def ops(self) -> list[Operation]:
        """The operations without the yield."""
        return list(self.block.ops)[:-1]


def flattened(
    loop: RepeatOp, layers: Sequence[RepeatOp], stacks: set[SSAValue], sizes: Sequence[int]
) -> Flat:
    """Return the flat body of a loop over microbatches.

    Args:
        layers: its loops over layers.
        stacks: its values with a dimension of layers.
        sizes: the layers of each chunk.
    """
    return _Flattening(loop, layers, stacks, sizes).run()


class _Flattening:
    """The copy of a body, step by step."""

    def __init__(
        self,
        loop: RepeatOp,
        layers: Sequence[RepeatOp],
        stacks: set[SSAValue],
        sizes: Sequence[int],
    ):
        self.loop, self.layers, self.stacks, self.sizes = loop, set(layers), stacks, sizes
        self.mesh = mesh_of(loop)
        self.whole: dict[SSAValue, SSAValue] = {}
        self.parts: dict[SSAValue, list[SSAValue]] = {}
        self.flat = Flat(Block(), [])

    def run(self) -> Flat:
        loop, flat = self.loop, self.flat
        arguments = loop.body.block.args
        for index, argument in enumerate(arguments):
            self._add_argument(argument)
            if index + 1 == len(loop.carried):
                flat.carries = len(flat.sources)
            if index + 1 == len(loop.carried) + len(loop.sliced):
                flat.slices = len(flat.sources) - flat.carries
        *ops, last = loop.body.block.ops
        for op in ops:
            if isinstance(op, RepeatOp) and op in self.layers:
                self._cut_loop(op)
            elif isinstance(op, DistOp) and op.result in self.stacks:
                self._cut_step(op)
            elif isinstance(op, DistOp) and (how := rows_reduced_by(op, self.stacks)) is not None:
                self._reduce(op, how)
            else:
                self._put(op.clone(self.whole), op)
        yielded = [self._made(value) for old in last.operands for value in self._all(old)]
        flat.block.add_op(YieldOp.create(operands=yielded))
        return flat

    def _made(self, value: SSAValue) -> SSAValue:
        """Return the yielded form of a value, as a step of the body makes it."""
        if isinstance(value.owner, Operation):
            return value
        return self._added(step_op(self.mesh, BARRIER, [value])).result

    def _all(self, old: SSAValue) -> list[SSAValue]:
        return self.parts[old] if old in self.stacks else [self.whole[old]]

    def _add_argument(self, argument: BlockArgument) -> None:
        block, x = self.flat.block, dist_type(argument)
        if argument not in self.stacks:
            self.whole[argument] = self._argument(argument, x, None)
            return
        self.parts[argument] = [
            self._argument(argument, leading(x, size), chunk)
            for chunk, size in enumerate(self.sizes)
        ]
        assert len(block.args) == len(self.flat.sources)

    def _argument(self, old: BlockArgument, x: DistType, chunk: int | None) -> SSAValue:
        block = self.flat.block
        value = block.insert_arg(DistTensorType(x), len(block.args))
        set_name(value, old.name_hint)
        self.flat.sources.append(Source(old, chunk))
        return value

    def _put(self, new: Operation, old: Operation) -> None:
        """Add an operation that replaces a whole one."""
        self.flat.block.add_op(new)
        for before, after in zip(old.results, new.results, strict=True):
            set_name(after, before.name_hint)
            pass_role(before, after)
            self.whole[before] = after

    def _cut_step(self, op: DistOp) -> None:
        """Add a step for each chunk."""
        results: list[SSAValue] = []
        for chunk, size in enumerate(self.sizes):
            operands = [
                self.parts[x][chunk] if x in self.stacks else self.whole[x] for x in op.operands
            ]
            to = leading(dist_type(op.result), size)
            new = remade(op, self.mesh, operands, to)
            self.flat.block.add_op(new)
            set_name(new.result, op.result.name_hint)
            results.append(new.result)
        self.parts[op.result] = results

    def _reduce(self, op: DistOp, how: Reduction) -> None:
        """Add a step that reduces rows for each chunk, and combine their results: from the first
        chunk on in the forward pass, from the last on in the backward pass."""
        chunks = range(len(self.sizes))
        total: DistOp | None = None
        for chunk in reversed(chunks) if self._is_late(op) else chunks:
            operands = [
                self.parts[x][chunk] if x in self.stacks else self.whole[x] for x in op.operands
            ]
            new = self._added(remade(op, self.mesh, operands))
            if how is Reduction.AVG:
                share = self.sizes[chunk] / sum(self.sizes)
                new = self._added(step_op(self.mesh, SCALE, [new.result], factor=share))
            if total is not None:
                combine = OPERATIONS[COMBINED[how]]
                new = self._added(combine.make(self.mesh, total.result, new.result))
            total = new
        assert total is not None
        set_name(total.result, op.result.name_hint)
        pass_role(op.result, total.result)
        self.whole[op.result] = total.result

    def _sum(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self._added(OPERATIONS[ADD.name].make(self.mesh, a, b)).result

    def _added(self, op: DistOp) -> DistOp:
        self.flat.block.add_op(op)
        return op

    def _is_late(self, op: Operation) -> bool:
        """Return whether a step depends on a loop of the backward pass."""
        return any(x.is_reverse for x in needed_by(op.operands) if isinstance(x, RepeatOp))

    def _cut_loop(self, op: RepeatOp) -> None:
        """Add a loop for each chunk; each takes the carries that the one before yields.

        A sum over layers in the backward pass, such as the gradient of a shared weight, starts from
        zero in each chunk. They are added behind the loops, so no chunk waits for another.
        """
        count = len(op.carried)
        starts = [self.whole[x] for x in op.carried]
        sums = [n for n in range(count) if op.is_reverse and _sums_from_zero(op, n)]
        carried = list(starts)
        stacked: list[dict[int, SSAValue]] = [{} for _ in op.results[count:]]
        ends: list[list[SSAValue]] = [[] for _ in range(count)]
        chunks = range(len(self.sizes))
        for chunk in reversed(chunks) if op.is_reverse else chunks:
            new = self._chunk_of(op, chunk, carried)
            self.flat.block.add_op(new)
            self.flat.loops[new] = chunk, op
            for before, after in zip(op.results, new.results, strict=True):
                set_name(after, before.name_hint)
                pass_role(before, after)
            for end, value in zip(ends, new.results, strict=False):
                end.append(value)
            carried = [starts[n] if n in sums else new.results[n] for n in range(count)]
            for stack, value in zip(stacked, new.results[count:], strict=True):
                stack[chunk] = value
        for n in sums:
            carried[n] = reduce(self._sum, ends[n])
            set_name(carried[n], op.results[n].name_hint)
            pass_role(op.results[n], carried[n])
        self.whole |= zip(op.results, carried, strict=False)
        for result, stack in zip(op.results[count:], stacked, strict=True):
            self.parts[result] = [stack[chunk] for chunk in chunks]

    def _chunk_of(self, op: RepeatOp, chunk: int, carried: Sequence[SSAValue]) -> RepeatOp:
        block = Block(arg_types=[arg.type for arg in op.body.block.args])
        values: dict[SSAValue, SSAValue] = dict(zip(op.body.block.args, block.args, strict=True))
        for before, after in zip(op.body.block.args, block.args, strict=True):
            set_name(after, before.name_hint)
        for inner in op.body.block.ops:
            block.add_op(inner.clone(values))
        sliced = [self.parts[x][chunk] for x in op.sliced]
        fixed = [self.whole[x] for x in op.invariant]
        again = op.recompute is not None
        operands = [carried, sliced, fixed]
        size = self.sizes[chunk]
        new = RepeatOp.of(self.mesh, size, operands, block, op.is_reverse, again)
        new.attributes = dict(op.attributes)
        new.location = op.location
        return new


def _sums_from_zero(loop: RepeatOp, number: int) -> bool:
    """Return whether a carry starts from zero, and each iteration adds to it."""
    start: object = loop.carried[number].owner
    while isinstance(start, DistOp) and start.kind is MASK:
        start = start.operands[0].owner
    is_zero = isinstance(start, DistOp) and start.kind is CONSTANT and start.number("value") == 0
    return is_zero and bool(added_terms(loop, number))


__all__ = ["Flat", "Source", "flattened"]
