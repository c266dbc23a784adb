"""Where the values of a function live: which are parts or views of others, and until when.

Shared by all code targets, and by what says how much memory a function needs; it decides nothing
about a runtime.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.names import unique_names
from collir.layout import Mesh


@dataclass(frozen=True)
class BufferPlan:
    """The buffers of a function.

    ``owner`` maps every value to the value whose memory it lies in, ``offset`` to where it starts
    there, in elements. ``last_use`` maps an owner to the last operation that reads it.
    ``result_of`` maps an owner to the index of the result it is written to directly; results that
    are arguments, or that share memory with an earlier result, are not in it and have to be copied.
    ``part_of`` maps an owner to the owner whose memory it is written to directly, and where: a
    part of what ``concat`` makes a result of.
    """

    names: dict[SSAValue, str]
    owner: dict[SSAValue, SSAValue]
    offset: dict[SSAValue, int]
    last_use: dict[SSAValue, Operation]
    result_of: dict[SSAValue, int]
    part_of: dict[SSAValue, tuple[SSAValue, int]]
    returned: tuple[SSAValue, ...]

    def is_temporary(self, value: SSAValue) -> bool:
        """Whether a value needs memory of the function's own."""
        return (
            self.owner[value] is value
            and isinstance(value.owner, Operation)
            and value not in self.result_of
            and value not in self.part_of
        )

    def is_view(self, op: Operation) -> bool:
        """Whether the result of an operation lies in the memory of its operand."""
        return any(self.owner[result] is not result for result in op.results)


def plan_buffers(function: FuncOp) -> BufferPlan:
    """The plan of a function with one block."""
    mesh = mesh_of(function)
    owner: dict[SSAValue, SSAValue] = {argument: argument for argument in function.args}
    offset: dict[SSAValue, int] = dict.fromkeys(function.args, 0)
    last_use: dict[SSAValue, Operation] = {}
    returned: tuple[SSAValue, ...] = ()
    for op in function.body.ops:
        start = op.place_in_operand(mesh) if isinstance(op, DistOp) else None
        for operand in op.operands if start is None or _computes(op) else ():
            last_use[owner[operand]] = op
        for result in op.results:
            owner[result] = result if start is None else owner[op.operands[0]]
            offset[result] = 0 if start is None else offset[op.operands[0]] + start
        if not op.results:
            returned = tuple(op.operands)
    result_of: dict[SSAValue, int] = {}
    for index, value in enumerate(returned):
        root = owner[value]
        # Memory that starts out on more devices than the result is on must not be the caller's.
        whole = _size(root, mesh) == _size(value, mesh)
        same = dist_type(root).root == dist_type(value).root and whole
        if isinstance(root.owner, Operation) and root not in result_of and same:
            result_of[root] = index
    part_of: dict[SSAValue, tuple[SSAValue, int]] = {}
    for result in result_of:
        for value, start in _parts(result, mesh):
            root = owner[value]
            whole = _size(root, mesh) == _size(value, mesh)
            same = dist_type(root).root == dist_type(result).root and whole
            free = root not in result_of and root not in part_of
            if isinstance(root.owner, Operation) and same and free:
                part_of[root] = (result, start)
    names = unique_names(function)
    return BufferPlan(names, owner, offset, last_use, result_of, part_of, returned)


def copied_results(where: BufferPlan) -> Iterator[SSAValue]:
    """The values that are returned but lie elsewhere, so that they are copied in the end."""
    for index, value in enumerate(where.returned):
        if where.result_of.get(where.owner[value]) != index:
            yield value


def _size(value: SSAValue, mesh: Mesh) -> int:
    """The elements that a device holds of a value."""
    return math.prod(dist_type(value).local_shape(mesh))


def _computes(op: Operation) -> bool:
    return isinstance(op, DistOp) and op.kind.computes


def _parts(result: SSAValue, mesh: Mesh) -> list[tuple[SSAValue, int]]:
    """The values that a result is made of, one behind the other in memory, and where they start."""
    op = result.owner
    if not isinstance(op, DistOp) or not op.kind.packs:
        return []
    if math.prod(dist_type(result).local_shape(mesh)[: op.integer("dim")]) > 1:
        return []
    found: list[tuple[SSAValue, int]] = []
    start = 0
    for operand in op.operands:
        found.append((operand, start))
        start += _size(operand, mesh)
    return found
