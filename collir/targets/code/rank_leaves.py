"""The operations of a local function in order, with their places, and the memory that they use."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.local import (
    AllocOp,
    AtOp,
    ComputeOp,
    CopyOp,
    FreeOp,
    LocalCallOp,
    LocalRepeatOp,
    LocalYieldOp,
    StartOp,
    ViewOp,
    WaitOp,
    origin_of,
    started_by,
)
from collir.dialects.local_types import BufferType, buffer_of
from collir.layout import Place, place_at

Piece = tuple[Place, list[str]]
"""Statements of the ranks at a place, what is inside of others indented."""


def merged_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """Return pieces, where neighbours of the same place are joined and empty pieces left out."""
    merged: list[Piece] = []
    for place, lines in pieces:
        if not lines:
            continue
        if merged and merged[-1][0] == place:
            merged[-1][1].extend(lines)
        else:
            merged.append((place, list(lines)))
    return merged


class RankOperation(NamedTuple):
    """An operation with the place of the ranks that run it."""

    place: Place
    op: Operation


def leaves(block: Block, place: Place = ()) -> Iterator[RankOperation]:
    """Yield the operations of a block in order, those of an ``at`` with its place."""
    for op in block.ops:
        if isinstance(op, AtOp):
            inner = place_at({**dict(place), **dict(op.place.data)})
            yield from leaves(op.body.block, inner)
        elif not isinstance(op, ViewOp | LocalYieldOp):
            yield RankOperation(place, op)


def written_by(op: Operation) -> Sequence[SSAValue]:
    """Return the buffers that an operation writes; of a loop, those of its carries."""
    match op:
        case CopyOp() | StartOp():
            return [op.target]
        case ComputeOp() | LocalCallOp():
            return list(op.outputs)
        case LocalRepeatOp():
            return list(op.ends)
        case _:
            return []


def used_by(op: Operation) -> Iterator[SSAValue]:
    """Yield the memory that an operation uses; of a loop, not its spare buffers."""
    is_loop = isinstance(op, LocalRepeatOp)
    values = (*op.begins, *op.ends, *op.stacks) if is_loop else op.operands
    yield from (origin_of(value)[0] for value in values if isinstance(value.type, BufferType))
    for inner in (x for region in op.regions for block in region.blocks for x in block.ops):
        yield from used_by(inner)


def is_memory(value: SSAValue) -> bool:
    """Return whether a value is memory of its own, or an argument."""
    return isinstance(value.type, BufferType) and not isinstance(value.owner, ViewOp)


def place_of_view(value: SSAValue) -> Place:
    """Return the place of the ranks that have a view; none if it is no view, or all do."""
    owner = value.owner
    return owner.place.data if isinstance(owner, ViewOp) and owner.place else ()


def place_of_memory(memory: SSAValue) -> Place:
    op = memory.owner
    return op.place.data if isinstance(op, AllocOp) and op.place else ()


def is_waited_at_once(ops: Sequence[RankOperation], number: int) -> bool:
    """Return whether nothing happens between the start of a collective and its wait."""
    op = ops[number].op
    if not isinstance(op, StartOp):
        return False
    behind = (ops[n].op for n in range(number + 1, len(ops)))
    behind = (op for op in behind if not isinstance(op, FreeOp))
    following = next(behind, None)
    return isinstance(following, WaitOp) and started_by(following.token) is op


def is_whole(value: SSAValue, in_any_order: bool) -> bool:
    """Return whether a buffer is all of the memory that it lies in.

    Args:
        in_any_order: whether its dimensions may lie in another order.
    """
    x, (root, start) = buffer_of(value), origin_of(value)
    if start != 0 or x.elements != buffer_of(root).elements:
        return False
    if x.is_contiguous or not in_any_order:
        return x.is_contiguous
    pairs = sorted(zip(x.steps, x.shape, strict=True), key=lambda pair: -int(pair[0]))
    inner = 1
    for step, size in reversed(pairs):
        if size != 1 and step != inner:
            return False
        inner = inner * size
    return True


def loops_around(op: Operation) -> int:
    """Return the number of loops around an operation."""
    parent, depth = op.parent_op(), 0
    while parent is not None:
        depth += isinstance(parent, LocalRepeatOp)
        parent = parent.parent_op()
    return depth
