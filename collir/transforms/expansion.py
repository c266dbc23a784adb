"""Composite operations of models, replaced by steps with the same result.

An operation that needs a whole dimension often follows an all_gather. If its result lacks the
dimension, or is cut again, the steps take the blocks from before the gather.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Block, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.names import set_name
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.coll import SLICE
from collir.layout.types import with_axes
from collir.transforms.terms import BlockSteps, BlockValue

Blocks = Mapping[str, tuple[str, ...]]
"""The sub-axes over which formerly whole indices are sharded."""


@dataclass(frozen=True)
class _AtStep:
    """A step, as expansions see it (a ``Forward``)."""

    x: Sequence[BlockValue]
    arguments: Mapping[str, Any]

    @property
    def types(self) -> Sequence[DistType]:
        return [x.type for x in self.x]


def is_composite(op: DistOp) -> bool:
    """Return whether an operation has an expansion, and is no map or reduction (a mean)."""
    if op.kind.expansion is None:
        return False
    structure = op.structure
    return structure is None or not structure.reduced or bool(structure.blocked)


def expand_operation(op: DistOp, rewriter: PatternRewriter | None = None) -> None:
    """Replace a composite operation: on blocks if that saves gathering, else as it is typed."""
    block, blocks = Block(), _gathered(op)
    steps = BlockSteps(mesh_of(op), block)
    steps.location = op.location
    to = dist_type(op.result)
    try:
        result = steps.laid_out(expanded(op, steps, _blocks(op, steps, blocks)), to)
    except LayoutError:  # such as averages of blocks of several sizes
        for made in reversed(list(block.ops)):
            block.erase_op(made)
        result = steps.laid_out(expanded(op, steps, op.operands), to)
    if result.name_hint is None:
        set_name(result, op.result.name_hint)
    made = list(block.ops)
    for step in made:
        step.detach()
    rewriter = rewriter or PatternRewriter(op)
    rewriter.insert(made, InsertPoint.before(op))  # not by `replace`, which would name each result
    rewriter.replace(op, [], [result])


def expanded(op: DistOp, steps: BlockSteps, operands: Sequence[SSAValue]) -> SSAValue:
    """Add the steps that expand a composite operation on some operands, and return their result.

    Raises:
        LayoutError: they are not well typed on these operands.
    """
    assert op.kind.expansion is not None
    at = _AtStep([BlockValue(steps, operand) for operand in operands], op.arguments)
    result = op.kind.expansion(at)
    assert isinstance(result, BlockValue)
    return result.value


def expansion_on(op: DistOp, mesh: Mesh, types: Sequence[DistType]) -> tuple[Block, DistType]:
    """Return a block with the steps that expand a composite operation on operands of some types,
    and the type of their result.

    Raises:
        LayoutError: they are not well typed on these operands.
    """
    block = Block(arg_types=[DistTensorType(x) for x in types])
    return block, dist_type(expanded(op, BlockSteps(mesh, block), block.args))


def _blocks(op: DistOp, steps: BlockSteps, blocks: Blocks) -> list[SSAValue]:
    """Return the operands of an operation, in blocks."""
    assert op.structure is not None
    operands: list[SSAValue] = []
    for operand, indices in zip(op.operands, op.structure.operands, strict=True):
        for dim, index in enumerate(indices):
            if index in blocks:
                operand = _block(steps, operand, dim, blocks[index])
        operands.append(operand)
    return operands


def _block(steps: BlockSteps, value: SSAValue, dim: int, axes: tuple[str, ...]) -> SSAValue:
    """Return the block of a value in a dimension: the one from before the gather, or a slice."""
    source = _source(value, dim)
    if source is not None and dist_type(source).dims[dim].axes == axes:
        return source
    return steps.step(SLICE.name, (value,), {"axes": axes, "dim": dim})


def _source(value: SSAValue, dim: int) -> SSAValue | None:
    """Return the value from which only this dimension was gathered, or None."""
    op = value.owner
    if not isinstance(op, DistOp) or not op.kind.layout_only:
        return None
    before, after = dist_type(op.input), dist_type(value)
    gathered = with_axes(before, dim, ())
    return op.input if not before.agrees(after) and gathered.agrees(after) else None


def _gathered(op: DistOp) -> Blocks:
    """Return the sub-axes of the indices that need not be gathered, from before the gathers."""
    structure = op.structure
    assert structure is not None
    blocks: dict[str, tuple[str, ...]] = {}
    for operand, indices in zip(op.operands, structure.operands, strict=True):
        for dim, index in enumerate(indices):
            source = _source(operand, dim) if index in structure.blocked else None
            if source is None or index in blocks:
                continue
            axes = dist_type(source).dims[dim].axes
            if index not in structure.result or _is_cut(op, structure.result.index(index), axes):
                blocks[index] = axes
    return blocks


def _is_cut(op: DistOp, dim: int, axes: tuple[str, ...]) -> bool:
    """Return whether all users of a result take its blocks in a dimension."""
    users = [use.operation for use in op.result.uses]
    return bool(users) and all(
        isinstance(user, DistOp)
        and user.kind.layout_only
        and with_axes(dist_type(op.result), dim, axes).agrees(dist_type(user.result))
        for user in users
    )
