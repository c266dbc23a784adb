"""The operations of a model that run as one kernel: chains of maps, as every compiler fuses them.

A map computes each element of its result from the elements of its operands at the same indices:
nothing is reduced, and no dimension is needed whole. If all uses of its result are in one kernel
over as many points, it is a part of that kernel: it is launched with it, and its result is neither
written nor read. A kernel is a map, or a reduction of one operand, with the maps that are parts of
it. It runs where its last operation stands.

The rule is conservative. A value is written to memory if it has a role, is returned, is read
elsewhere, is repeated along other dimensions, or is used behind a collective, a loop or a barrier.
Constants and the like are made again in every kernel that reads them. Nothing is fused into
products, softmaxes and the like, except in a fused call, whose steps are one kernel. Programs
without operations of models run as they are written, like the code that targets print.
"""

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from xdsl.ir import Block, Operation, SSAValue

from collir.cost.programs.masks import Masked, masked_in
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.fusion import kernel_name
from collir.ir.roles import role_of
from collir.layout import Mesh
from collir.layout.sizes import same_size
from collir.layout.structure import REPEATED, Structure


@dataclass(frozen=True)
class FusedKernels:
    """The kernels of a block that have several operations.

    Attributes:
        last: for every operation of a kernel but the last one, the last one.
        parts: for each last operation, all operations of its kernel in order.
        written: the results of other operations than the last of a kernel that are read elsewhere.
        made: the operations that read no memory, such as constants and maps of constants; each
            kernel that needs their results computes them again.
        masked: the operations of kernels of whose elements masks leave only a part.
    """

    last: Mapping[Operation, DistOp] = field(default_factory=dict[Operation, DistOp])
    parts: Mapping[Operation, tuple[DistOp, ...]] = field(
        default_factory=dict[Operation, tuple[DistOp, ...]]
    )
    made: frozenset[Operation] = frozenset()
    written: frozenset[SSAValue] = frozenset()
    masked: Mapping[Operation, Masked] = field(default_factory=dict[Operation, Masked])

    def is_inside(self, value: SSAValue) -> bool:
        """Return whether a value is in no memory, as it is made and used within kernels."""
        inside = value.owner in self.last or value.owner in self.made
        return inside and value not in self.written

    def is_step(self, op: object) -> bool:
        """Return whether an operation runs as a step: alone, or as the last of its kernel."""
        return op not in self.last and op not in self.made

    def is_plain(self, op: DistOp) -> bool:
        """Return whether an operation runs alone, and reads all of its operands from memory."""
        return op not in self.parts and not any(self.is_inside(_viewed(x)) for x in op.operands)

    def of(self, op: DistOp) -> tuple[DistOp, ...]:
        """Return the operations of the kernel that ends with an operation."""
        return self.parts.get(op, (op,))

    def operands(self, op: DistOp) -> Iterator[SSAValue]:
        """Yield the values that the kernel of an operation reads."""
        parts = {*self.of(op), *self.made}
        for part in self.of(op):
            yield from (value for value in part.operands if _behind_views(value) not in parts)

    def overwrites(self, op: Operation, argument: SSAValue) -> bool:
        """Return whether the kernel of an operation may write its result over an argument of the
        same type: it must not read an element after it has written it."""
        parts = self.of(op) if isinstance(op, DistOp) else ()
        return bool(parts) and all(_is_map(part) and _in_order(part) for part in parts)


def runs_compiled(block: Block) -> bool:
    """Return whether a compiler runs a program: it has operations of models, perhaps in loops."""
    return any(isinstance(op, DistOp) and op.kind.structure for op in block.walk())


def kernels_of(block: Block, apart: bool = False, mesh: Mesh | None = None) -> FusedKernels:
    """Return the kernels of several operations in a program that a compiler runs.

    Args:
        apart: whether each operation outside of fused calls is a kernel of its own.
        mesh: the mesh of the block; None: that of its function.
    """
    if mesh is None and block.first_op is not None:
        mesh = mesh_of(block.first_op)
    if mesh is None:
        return FusedKernels()
    ops = list(block.ops)
    between = [not isinstance(op, DistOp) or not op.kind.local or op.kind.fixed for op in ops]
    run = dict(zip(ops, accumulate(map(int, between)), strict=True))
    last: dict[Operation, DistOp] = {}
    named = _named_kernels(ops)
    inside = {op for kernel in named for op in kernel}
    maps = {op for op in ops if isinstance(op, DistOp) and _is_map(op) and not apart} - inside
    for op in reversed(ops):
        if not isinstance(op, DistOp) or op not in maps or role_of(op.result) is not None:
            continue
        kernel = _only_kernel(op, last)
        if kernel is None or kernel in inside or run[kernel] != run[op]:
            continue
        if kernel not in maps and not _reduces(kernel):
            continue
        points = kernel.result if kernel in maps else kernel.input
        if same_size(_elements(points, mesh), _elements(op.result, mesh)):
            last[op] = kernel
    reading = maps.union(op for op in ops if isinstance(op, DistOp) and _reduces(op)) - inside
    made = _made_again([op for op in ops if op in maps], reading)
    last = {op: kernel for op, kernel in last.items() if op not in made}
    parts: dict[DistOp, list[DistOp]] = {kernel: [] for kernel in last.values()}
    for op in ops:
        if isinstance(op, DistOp) and (kernel := last.get(op, op)) in parts:
            parts[kernel].append(op)
    together = dict[Operation, tuple[DistOp, ...]](
        (kernel, tuple(of)) for kernel, of in parts.items()
    )
    written: set[SSAValue] = set()
    masked: dict[Operation, Masked] = {}
    for *before, end in named:
        masked |= masked_in([*before, end])
        together[end] = (*before, end)
        last |= dict.fromkeys(before, end)
        own = {*before, end}
        written.update(op.result for op in before if any(u not in own for u in _users(op.result)))
    return FusedKernels(last, together, made, frozenset(written), masked)


def _named_kernels(ops: Iterable[Operation]) -> list[list[DistOp]]:
    """Return the steps, without views, of each kernel that a program names."""
    kernels: list[list[DistOp]] = []
    name: str | None = None
    for op in ops:
        if isinstance(op, DistOp) and _is_shape(op):
            continue
        own = kernel_name(op)
        if own is not None and isinstance(op, DistOp) and op.kind.is_view:
            continue  # a view in a kernel, such as a barrier, neither begins nor ends one
        before, name = name, own
        if name is not None and isinstance(op, DistOp):
            if name != before:
                kernels.append([])
            kernels[-1].append(op)
    return [kernel for kernel in kernels if len(kernel) > 1]


def _made_again(maps: Iterable[Operation], reading: Container[Operation]) -> frozenset[Operation]:
    """Return the maps that read no memory and belong to every kernel that uses them.

    Args:
        maps: the maps of a program, in order.
        reading: the operations that may be in kernels with others.
    """
    made: set[Operation] = set()
    for op in maps:
        result = op.results[0]
        alone = role_of(result) is None and all(user in reading for user in _users(result))
        if alone and all(_behind_views(value) in made for value in op.operands):
            made.add(op)
    return frozenset(made)


def _only_kernel(op: DistOp, last: Mapping[Operation, DistOp]) -> DistOp | None:
    """Return the last operation of the one kernel that uses a result; None if several do."""
    kernel: DistOp | None = None
    for user in _users(op.result):
        if not isinstance(user, DistOp):
            return None
        ending = last.get(user, user)
        if kernel not in (None, ending):
            return None
        kernel = ending
    return kernel


def _users(value: SSAValue) -> Iterator[Operation]:
    """Yield the operations that use a value, directly or through views."""
    for use in value.uses:
        if isinstance(use.operation, DistOp) and _is_shape(use.operation):
            yield from _users(use.operation.result)
        else:
            yield use.operation


def _behind_views(value: SSAValue) -> Operation | Block:
    """Return the owner of a value, or of the value that it is a view of."""
    return _viewed(value).owner


def _viewed(value: SSAValue) -> SSAValue:
    """Return the value behind a view, or the value itself if it is no view."""
    while isinstance(owner := value.owner, DistOp) and _is_shape(owner):
        value = owner.input
    return value


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
    whole = (x for x in structure.operands if len(x) == len(structure.result) and REPEATED not in x)
    return all(x == structure.result for x in whole)


def _elements(value: SSAValue, mesh: Mesh) -> int:
    return math.prod(dist_type(value).local_shape(mesh))
