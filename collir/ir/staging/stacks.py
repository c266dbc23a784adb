"""Values with a dimension of layers, and steps on parts of them.

A stack has one row for each layer along its leading dimension. A step that treats the rows apart,
such as a map or a cast, is cut with the stacks: it runs on the rows of each chunk.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Dim, DistType, Mesh
from collir.layout.steps import ArgumentKind
from collir.layout.structure import REPEATED, Structure, map_structure


def leading(x: DistType, size: int, axes: tuple[str, ...] = ()) -> DistType:
    """Return a type with another leading dimension."""
    return replace(x, dims=(Dim(size, axes), *x.dims[1:]))


def stacks_of(function: FuncOp, loop: RepeatOp, layers: Sequence[RepeatOp]) -> set[SSAValue]:
    """Return the stacks in a function, in its body and in that of a loop over microbatches.

    They are what loops over layers slice and stack, and what is tied to such values: operands and
    results whose leading dimensions run over the same index.

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
        if op not in layers and op is not last:
            _check(op, stacks)
    return stacks


def _check(op: Operation, stacks: set[SSAValue]) -> None:
    """Check that a step takes the rows of its stacks apart.

    Raises:
        DiagnosticError: it does not.
    """
    used = [value for value in (*op.operands, *op.results) if value in stacks]
    tied = {value for tie in _ties(op) for value in tie}
    if any(value not in tied for value in used) or (used and op.results[0] not in stacks):
        raise DiagnosticError.at(
            op,
            "this step needs all layers at once in each microbatch, and a pipeline has them at "
            "several places: do it behind the loop over microbatches",
        )


def structure_of(op: DistOp) -> Structure | None:
    """Return the index structure of a step; None if it has none, and is no map either."""
    if op.structure is not None:
        return op.structure
    if op.kind.elementwise:
        return map_structure(op.mnemonic, [dist_type(x) for x in op.operands])
    return None


def _ties(op: Operation) -> Iterator[tuple[SSAValue, ...]]:
    """Yield values of a step whose leading dimensions run over one index, or none of them."""
    if not isinstance(op, DistOp) or not op.operands or not dist_type(op.result).dims:
        return
    structure = structure_of(op)
    if structure is not None:
        lead = structure.result[0] if structure.result else REPEATED
        indices = [*structure.operands, structure.result]
        inside = any(lead in over[1:] for over in indices)
        if lead != REPEATED and not inside and lead not in structure.blocked:
            values = zip((*op.operands, op.result), indices, strict=True)
            yield tuple(value for value, over in values if over[:1] == (lead,))
    elif _keeps_rows(op):
        yield op.operands[0], op.result


def _keeps_rows(op: DistOp) -> bool:
    """Return whether a step without a structure changes the layout alone, and not along rows."""
    if op.kind.before is None or dist_type(op.operands[0]).shape != dist_type(op.result).shape:
        return False
    dims = [p.name for p in op.kind.parameters if p.kind is ArgumentKind.INTEGER]
    return all(op.arguments.get(name) != 0 for name in dims)


def is_splat(op: Operation) -> bool:
    """Return whether a step makes one value for all elements out of nothing."""
    if not isinstance(op, DistOp) or op.operands or op.structure is None:
        return False
    return not any(p.kind is ArgumentKind.INTEGER for p in op.kind.parameters)


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
