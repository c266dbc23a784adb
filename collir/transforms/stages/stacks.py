"""Values with a dimension of layers, and steps on parts of them.

A stack has one row for each layer along its leading dimension. A step that treats the rows apart,
such as a map or a cast, is cut with the stacks: it runs on the rows of each chunk.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp, attribute_of, value_text
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Dim, DistType, Mesh
from collir.layout.coll import MASK, RESHAPE
from collir.layout.dtypes import Reduction
from collir.layout.sizes import same_size
from collir.layout.steps import ArgumentKind
from collir.layout.structure import REPEATED

COMBINED = {
    Reduction.SUM: "add",
    Reduction.AVG: "add",
    Reduction.MAX: "maximum",
    Reduction.MIN: "minimum",
}
"""The step that combines two values reduced from parts; means of parts are scaled first."""


def leading(x: DistType, size: int, axes: tuple[str, ...] = ()) -> DistType:
    """Return a type with another leading dimension."""
    return replace(x, dims=(Dim(size, axes), *x.dims[1:]))


def stacks_of(function: FuncOp, loop: RepeatOp, layers: Sequence[RepeatOp]) -> set[SSAValue]:
    """Return the stacks in a function, in its body and in that of a loop over microbatches.

    Stacks are the values that loops over layers slice and stack, and all values tied to these:
    operands and results whose leading dimensions run over the same index.

    Raises:
        DiagnosticError: a step needs all layers at once inside the loop over microbatches.
    """
    body, last = loop.body.block, loop.body.block.last_op
    assert last is not None
    ties = [tie for op in (*function.body.ops, *body.ops) for tie in _ties(op)]
    count = len(loop.carried)
    for index, (argument, operand) in enumerate(zip(body.args, loop.operands, strict=True)):
        if index < count:
            ties.append((argument, operand, loop.results[index], last.operands[index]))
        elif index >= count + len(loop.sliced):
            ties.append((argument, operand))
    of_value: dict[SSAValue, list[tuple[SSAValue, ...]]] = {}
    for tie in ties:
        for value in tie:
            of_value.setdefault(value, []).append(tie)
    left = [x for op in layers for x in (*op.sliced, *op.results[len(op.carried) :])]
    stacks = set(left)
    while left:
        for tie in of_value.get(left.pop(), ()):
            left += (value for value in tie if value not in stacks)
            stacks |= set(tie)
    for op in body.ops:
        if isinstance(op, RepeatOp) and op in layers:
            _check_layers(op, stacks)
        elif op is not last:
            _check(op, stacks)
    for value in last.operands[count:]:
        if value in stacks:
            raise DiagnosticError.at(
                loop,
                f"{value_text(value, 'a value')} of each microbatch has all layers, which a "
                "pipeline has at several places: add it up over the microbatches",
            )
    return stacks


def _check(op: Operation, stacks: set[SSAValue]) -> None:
    """Check that a step treats the rows of its stacks apart, or reduces them.

    Raises:
        DiagnosticError: it does not.
    """
    if isinstance(op, DistOp) and is_splat(op):
        return
    used = [value for value in (*op.operands, *op.results) if value in stacks]
    if used and not takes_rows_apart(op, stacks):
        raise DiagnosticError.at(
            op,
            "this step needs all layers at once in each microbatch, and a pipeline has them at "
            "several places: do it behind the loop over microbatches",
        )


def _check_layers(loop: RepeatOp, stacks: set[SSAValue]) -> None:
    """Check that a loop over layers only takes slices of stacks.

    Raises:
        DiagnosticError: each layer takes a whole stack.
    """
    for value in (*loop.carried, *loop.invariant):
        if value in stacks:
            raise DiagnosticError.at(
                loop,
                f"each layer takes all rows of {value_text(value, 'a value')}, which layers slice "
                "too, so that a pipeline has them at several places: let the step take what each "
                "layer needs of all rows as another argument",
            )


def takes_rows_apart(op: Operation, stacks: set[SSAValue]) -> bool:
    """Return whether a step treats all rows of its stacks alike and apart, or reduces them."""
    tied = {value for tie in _ties(op) for value in tie}
    apart = all(x in tied for x in (*op.operands, *op.results) if x in stacks)
    return apart and (op.results[0] in stacks or rows_reduced_by(op, stacks) is not None)


def rows_reduced_by(op: Operation, stacks: set[SSAValue]) -> Reduction | None:
    """Return how a step reduces the rows of its stacks, so that the results of chunks can be
    combined; None if the result is a stack or they cannot be."""
    structure = op.indices if isinstance(op, DistOp) else None
    if structure is None or op.results[0] in stacks:
        return None
    pairs = zip(op.operands, structure.operands, strict=True)
    leads = {over[0] for value, over in pairs if value in stacks}
    reduced = len(leads) == 1 and leads.issubset(structure.reduced)
    return structure.reduction if reduced and leads.isdisjoint(structure.selected) else None


def _ties(op: Operation) -> Iterator[tuple[SSAValue, ...]]:
    """Yield the values of a step whose leading dimensions run over one index, or none of them."""
    if not isinstance(op, DistOp) or not op.operands:
        return
    structure = op.indices
    if structure is None or not _keeps_rows(op):
        return
    indices = [*structure.operands, structure.result]
    values = list(zip((*op.operands, op.result), indices, strict=True))
    whole = structure.blocked | structure.selected | structure.regrouped | {REPEATED}
    for lead in dict.fromkeys(over[0] for over in indices if over):
        inside = any(lead in over[1:] for over in indices)
        made = all(lead not in over for over in structure.operands)
        # What is made depends on its position, as a seed, but for what is the same everywhere.
        if not (inside or lead in whole or (made and op.mnemonic != "broadcast_to")):
            yield tuple(value for value, over in values if over[:1] == (lead,))


def _keeps_rows(op: DistOp) -> bool:
    """Return whether a step without a structure moves elements only inside of rows."""
    if not op.kind.layout_only or op.kind.placeholder or op.kind.elementwise:
        return True
    dims = [p.name for p in op.kind.parameters if p.kind is ArgumentKind.INTEGER]
    return op.kind.before is not None and all(op.arguments.get(name) != 0 for name in dims)


def is_splat(op: Operation | Block) -> bool:
    """Return whether a step without operands makes the same value for all elements."""
    if not isinstance(op, DistOp) or op.operands or op.structure is None:
        return False
    return not any(p.kind is ArgumentKind.INTEGER for p in op.kind.parameters)


def write_splats_at_uses(function: FuncOp) -> None:
    """Give each use of a splat its own copy, as one may be of a stack and another not; likewise for
    the parts that sums start with."""
    for op in [op for op in function.walk() if _is_mask_of_splat(op)]:
        _write_at_uses(op)
    for op in [op for op in function.walk() if is_splat(op)]:
        _write_at_uses(op)


def _is_mask_of_splat(op: Operation) -> bool:
    return isinstance(op, DistOp) and op.kind is MASK and is_splat(op.input.owner)


def _write_at_uses(op: Operation) -> None:
    for use in [*op.results[0].uses][1:]:
        copy = op.clone()
        assert op.parent is not None
        op.parent.insert_op_after(copy, op)
        use.operation.operands[use.index] = copy.results[0]


def remade(
    op: DistOp, mesh: Mesh, operands: Sequence[SSAValue], to: DistType | None = None
) -> DistOp:
    """Return a step on other operands, with its result typed again.

    Args:
        to: the type of the result, if the step names its type.

    Raises:
        LayoutError: the step is not well typed.
    """
    properties: dict[str, Attribute] = dict(op.properties)
    rows = [dist_type(x).shape[:1] for x in (*operands[:1], *op.operands[:1])]
    if op.kind is RESHAPE and not same_size(*rows):
        shape = (*rows[0], *op.sizes("shape")[1:])
        properties["shape"] = attribute_of(ArgumentKind.SIZES, shape)
    if to is not None:
        named = [name for name, x in properties.items() if isinstance(x, DistTensorType)]
        properties |= {name: DistTensorType(to) for name in named}
    new = OPERATIONS[op.kind.name].make(mesh, *operands, **properties)
    new.attributes = dict(op.attributes)
    new.location = op.location
    return new


def users_in(value: SSAValue, ops: Iterable[Operation]) -> list[Operation]:
    """Return the operations among some that use a value."""
    kept = set(ops)
    return list(dict.fromkeys(use.operation for use in value.uses if use.operation in kept))


def needed_by(values: Iterable[SSAValue]) -> set[Operation]:
    """Return the operations of a block that values need, directly or not."""
    needed: set[Operation] = set()
    left = [value.owner for value in values]
    while left:
        op = left.pop()
        if isinstance(op, Operation) and op not in needed:
            needed.add(op)
            left += [operand.owner for operand in op.operands]
    return needed
