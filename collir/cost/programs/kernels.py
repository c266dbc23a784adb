"""The operations of a model that run as one kernel: chains of maps, as every compiler fuses them.

A map computes each element of its result from the elements of its operands at the same indices:
nothing is reduced, and no dimension is needed whole. If all uses of its result are in one kernel
over as many points, it is a part of that kernel: it is launched with it, and its result is neither
written nor read. A kernel is a map, or a reduction of one operand, with the maps that are parts of
it. It runs where its last operation stands.

It is a conservative rule. A value that has a role, is returned, or is read elsewhere is kept; so is
one that is repeated along other dimensions, and one whose uses are behind a collective, a loop or a
barrier. Nothing is fused into products, softmaxes and the like. Programs without operations of
models run as they are written, as the code that targets print does.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.roles import role_of
from collir.layout import Mesh
from collir.layout.structure import Structure


@dataclass(frozen=True)
class Kernels:
    """The kernels of a block that have several operations.

    Attributes:
        last: for every operation that is a part of a kernel of another one, that operation.
        parts: for these last operations, the operations of their kernel in order, themselves too.
    """

    last: Mapping[Operation, DistOp] = field(default_factory=dict[Operation, DistOp])
    parts: Mapping[Operation, tuple[DistOp, ...]] = field(
        default_factory=dict[Operation, tuple[DistOp, ...]]
    )

    def is_inside(self, value: SSAValue) -> bool:
        """Return whether a value is in no memory, as it is made and used within a kernel."""
        return value.owner in self.last

    def of(self, op: DistOp) -> tuple[DistOp, ...]:
        """Return the operations that run with one that is the last of them."""
        return self.parts.get(op, (op,))

    def operands(self, op: DistOp) -> Iterator[SSAValue]:
        """Yield the values that the kernel of an operation reads."""
        parts = set[Operation](self.of(op))
        for part in self.of(op):
            yield from (value for value in part.operands if _behind_views(value) not in parts)

    def overwrites(self, op: Operation, argument: SSAValue) -> bool:
        """Return whether the kernel of an operation may write its result over an argument of the
        same type that it reads: it reads no element after it has written it."""
        parts = self.of(op) if isinstance(op, DistOp) else ()
        return bool(parts) and all(_is_map(part) and _in_order(part) for part in parts)


def runs_compiled(block: Block) -> bool:
    """Return whether a compiler runs a program, as it or its loops have operations of models."""
    return any(isinstance(op, DistOp) and op.kind.structure for op in block.walk())


def kernels_of(block: Block) -> Kernels:
    """Return the kernels of several operations in a program that a compiler runs."""
    mesh = mesh_of(block.first_op) if block.first_op else None
    if mesh is None:
        return Kernels()
    ops = list(block.ops)
    apart = [not isinstance(op, DistOp) or not op.kind.local or op.kind.fixed for op in ops]
    run = dict(zip(ops, accumulate(map(int, apart)), strict=True))
    last: dict[Operation, DistOp] = {}
    for op in reversed(ops):
        if not isinstance(op, DistOp) or not _is_map(op) or role_of(op.result) is not None:
            continue
        kernel = _only_kernel(op, last)
        if kernel is None or run[kernel] != run[op]:
            continue
        if _points(kernel, mesh) == _elements(op.result, mesh):
            last[op] = kernel
    parts: dict[DistOp, list[DistOp]] = {kernel: [] for kernel in last.values()}
    for op in ops:
        if isinstance(op, DistOp) and (kernel := last.get(op, op)) in parts:
            parts[kernel].append(op)
    return Kernels(last, {kernel: tuple(of) for kernel, of in parts.items()})


def _only_kernel(op: DistOp, last: Mapping[Operation, DistOp]) -> DistOp | None:
    """Return the last operation of the one kernel that uses a result; None if there is no such."""
    kernel: DistOp | None = None
    for user in _users(op.result):
        if not isinstance(user, DistOp):
            return None
        found = last.get(user, user)
        if kernel not in (None, found):
            return None
        kernel = found
    return kernel if kernel is not None and (_is_map(kernel) or _reduces(kernel)) else None


def _users(value: SSAValue) -> Iterator[Operation]:
    """Yield the operations that use a value, those of views of it in place of the views."""
    for use in value.uses:
        if isinstance(use.operation, DistOp) and _is_shape(use.operation):
            yield from _users(use.operation.result)
        else:
            yield use.operation


def _behind_views(value: SSAValue) -> Operation | Block:
    """Return the owner of a value, or of the value that it is a view of."""
    owner = value.owner
    while isinstance(owner, DistOp) and _is_shape(owner):
        owner = owner.input.owner
    return owner


def _is_shape(op: DistOp) -> bool:
    """Return whether an operation only gives its operand another shape."""
    return op.kind.is_view and op.kind.maps and not op.kind.computes


def _is_map(op: DistOp) -> bool:
    if op.kind.elementwise:
        return True
    structure = op.structure
    return structure is not None and not (structure.reduced or structure.blocked)


def _reduces(op: DistOp) -> bool:
    """Return whether an operation is a reduction of one operand."""
    structure = op.structure
    return structure is not None and len(structure.operands) == 1 and not structure.blocked


def _in_order(op: DistOp) -> bool:
    """Return whether a map reads operands of as many elements in the order of its result."""
    structure: Structure | None = op.structure
    if structure is None:
        return True
    return all(x == structure.result for x in structure.operands if len(x) == len(structure.result))


def _points(op: DistOp, mesh: Mesh) -> int:
    """Return the points that a kernel runs over on a device: those of its operand if it reduces."""
    return _elements(op.result if _is_map(op) else op.input, mesh)


def _elements(value: SSAValue, mesh: Mesh) -> int:
    return math.prod(dist_type(value).local_shape(mesh))
