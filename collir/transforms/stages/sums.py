"""Sums over microbatches of terms that several places compute, such as the gradient of an embedding
that the first and the last stage use: each place adds up its own, and they are added behind the
loop."""

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from collir.dialects.nested import YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.ir.names import set_name
from collir.layout import Mesh
from collir.layout.coll import ADD, CAST
from collir.transforms.stages.assignment import Assignment
from collir.transforms.stages.chunks import Flat
from collir.transforms.stages.stacks import remade


def split_sums(flat: Flat, tasks: Assignment, mesh: Mesh) -> bool:
    """Give each place a carry of its own for a sum with terms of several chunks; return whether
    there was such a sum."""
    changed = False
    for number in range(flat.carries):
        source = flat.sources[number]
        if source.is_extra or source.chunk is not None:  # a chunk's gradients are made at its place
            continue
        total = flat.last.operands[number].owner
        carry = flat.block.args[number]
        if not isinstance(total, DistOp) or total.kind is not ADD or carry not in total.operands:
            continue
        first, second = total.operands
        terms = list(_terms(second if first is carry else first, ()))
        if any(value is carry for value, _ in terms):
            continue
        chunk_of: dict[object, int] = {op: chunk for op, (_, chunk) in tasks.task.items()}
        chunks = [chunk_of.get(value.owner, -1) for value, _ in terms]
        if len(set(chunks)) == 1:
            continue
        changed = True
        _split(flat, number, terms, chunks, mesh)
    return changed


def _terms(
    value: SSAValue, casts: tuple[DistOp, ...]
) -> Iterator[tuple[SSAValue, tuple[DistOp, ...]]]:
    """Yield the terms of a value, each with the casts of the sums around it, innermost first."""
    op = value.owner
    once = len(list(value.uses)) == 1
    if isinstance(op, DistOp) and once and op.kind is ADD:
        for operand in op.operands:
            yield from _terms(operand, casts)
    elif isinstance(op, DistOp) and once and op.kind is CAST and _has_sum(op):
        yield from _terms(op.operands[0], (op, *casts))
    else:
        yield value, casts


def _has_sum(op: DistOp) -> bool:
    owner: object = op
    while isinstance(owner, DistOp) and owner.kind is CAST:
        owner = owner.operands[0].owner
    return isinstance(owner, DistOp) and owner.kind is ADD


def _split(
    flat: Flat,
    number: int,
    terms: list[tuple[SSAValue, tuple[DistOp, ...]]],
    chunks: list[int],
    mesh: Mesh,
) -> None:
    """Replace the sum of a carry by one for each chunk; the lowest has the carry."""
    block, last = flat.block, flat.last
    old, source = flat.block.args[number], flat.sources[number]
    yielded = list(last.operands)
    for index, chunk in enumerate(sorted(set(chunks))):
        if index:
            carry: SSAValue = block.insert_arg(old.type, flat.carries)
            set_name(carry, old.name_hint)
            flat.sources.insert(flat.carries, source._replace(is_extra=True))
        else:
            carry = old
        total = carry
        for value, casts in (t for t, own in zip(terms, chunks, strict=True) if own == chunk):
            for cast in casts:
                value = _before(remade(cast, mesh, [value]), last)
            total = _before(OPERATIONS[ADD.name].make(mesh, total, value), last)
        if index:
            yielded.insert(flat.carries, total)
            flat.carries += 1
        else:
            yielded[number] = total
    block.erase_op(last)
    block.add_op(YieldOp.create(operands=yielded))
    for op in reversed(flat.ops):
        if not any(result.uses for result in op.results):
            block.erase_op(op)


def _before(op: DistOp, last: Operation) -> SSAValue:
    assert last.parent is not None
    last.parent.insert_op_before(op, last)
    return op.result
