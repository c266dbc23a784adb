"""Operations that send nothing as local steps, alone or with others in a kernel."""

import math
from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from collir.cost.programs.compute import step_seconds
from collir.cost.programs.kernels import FusedKernels
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.masks import ALL, Seen, part_of
from collir.cost.programs.products import MatrixProducts, disordered, product_of
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.buffers import BufferPlan
from collir.ir.fusion import is_of_gradient
from collir.ir.steps import is_free
from collir.layout import Mesh
from collir.layout.sizes import OpenSize, as_number, quotient, sum_of
from collir.layout.structure import Structure

_NAMED = 6
"""The most operations that the name of a kernel lists."""


def local_step(
    op: DistOp,
    mesh: Mesh,
    where: BufferPlan | None = None,
    kinds: Sequence[str] = (),
    bytes_of: Callable[[SSAValue], int] | None = None,
    kernels: FusedKernels | None = None,
) -> LocalStep:
    """Return an operation that sends nothing as a local step, with the operations in its kernel.

    Args:
        where: the buffers of its function; None: it stands alone, where only a view is in place.
        kinds: the kinds of the devices that run it, if the machine has several.
        bytes_of: a function that returns the bytes of a value on these devices; by default, of its
            largest block.

    Raises:
        DiagnosticError: it computes, and the device has no rate.
    """

    def largest(value: SSAValue) -> int:
        return dist_type(value).local_bytes(mesh)

    bytes_of = bytes_of or largest
    if kernels is not None and where is not None and not kernels.is_plain(op):
        return _fused(op, kernels, where, bytes_of, largest, kinds)
    if not (op.kind.computes or op.kind.structure):
        moved = _moved(op, mesh, where, bytes_of)
        elements = _elements(op, 1.0, mesh) if moved and op.operands else ()
        return LocalStep(op.mnemonic, moved, elements=elements)
    if structure := op.structure:
        moved = _moved(op, mesh, where, bytes_of)
        # Where blocks differ, the work is in proportion to the smallest; others may be whole.
        share = min(bytes_of(value) / largest(value) for value in (*op.operands, op.result))
        return computed(op, structure, moved, share, mesh, kinds)
    share = bytes_of(op.result) / largest(op.result)
    work = ((dist_type(op.result).dtype.value, _part(op.flops, share)),)
    step_seconds(op, mesh, kinds)
    return LocalStep(op.mnemonic, 0.0, work, launched=False)


def computed(
    op: DistOp,
    structure: Structure,
    moved: float,
    share: float,
    mesh: Mesh,
    kinds: Sequence[str] = (),
) -> LocalStep:
    """Return an operation of a model as a step of its own.

    Args:
        moved: the bytes that it reads and writes.
        share: the part of the largest block's work that these devices do.
        kinds: the kinds of the devices that run it, if the machine has several.

    Raises:
        DiagnosticError: it multiplies matrices, and a device has no rate.
    """
    types = [dist_type(operand) for operand in op.operands]
    flops = as_number(structure.local_flops(mesh, types, dist_type(op.result)))
    if structure.contracts:
        step_seconds(op, mesh, kinds, flops)
    dtype = dist_type(next(iter(op.operands), op.result)).dtype.value
    product = product_of(op, structure, mesh)
    if product is None:
        elements = _elements(op, share, mesh)
    else:
        count = as_number(sum(disordered(op, structure, mesh)))
        elements = (("transpose", dtype, _part(count, share)),) if count else ()
    work = ((dtype, _part(flops, share)),)
    maps = not structure.contracts
    return LocalStep(op.mnemonic, moved, work, maps=maps, product=product, elements=elements)


def _fused(
    op: DistOp,
    kernels: FusedKernels,
    where: BufferPlan,
    bytes_of: Callable[[SSAValue], int],
    largest: Callable[[SSAValue], int],
    kinds: Sequence[str],
) -> LocalStep:
    """Return the kernel of an operation, which reads each value once and writes shared results."""
    read: dict[tuple[SSAValue, int], int] = {}
    for value in kernels.operands(op):
        place = where.owner[value], where.offset[value]
        read[place] = max(read.get(place, 0), bytes_of(value))
    work: dict[str, list[float]] = {}
    inner: list[tuple[str, float, MatrixProducts]] = []
    counted: dict[str, list[float]] = {}
    elements: list[tuple[str, str, float]] = []
    for part in kernels.of(op):
        seen = part_of(part, kernels.masked.get(part), mesh_of(part))
        product = None
        if part.kind.structure is not None:
            value = next(iter(part.operands), part.result)
            dtype = dist_type(value).dtype.value
            share = bytes_of(value) / largest(value)
            count = _part(_part(part.flops, seen), share)
            work.setdefault(dtype, []).append(count)
            if part.structure and part.structure.contracts:
                product = product_of(part, part.structure, mesh_of(part))
                if product is not None:
                    inner.append((dtype, count, product))
                if not is_of_gradient(part):
                    counted.setdefault(dtype, []).append(_part(part.flops, share))
                step_seconds(part, mesh_of(part), kinds)  # the device needs a rate for it
        if product is None:
            elements += _elements(part, seen, mesh_of(part))
    parts = kernels.of(op)
    results = [part.result for part in parts if not kernels.is_inside(part.result)]
    *inside, _ = (where.names[part.result] for part in parts)
    return LocalStep(
        _kernel_name([part.mnemonic for part in kernels.of(op)]),
        as_number(sum(read.values()) + sum(map(bytes_of, results))),
        tuple((dtype, sum_of(counts)) for dtype, counts in work.items()),
        maps=True,
        inside=tuple(inside),
        elements=tuple(elements),
        inner=tuple(inner),
        counted=tuple((dtype, sum_of(counts)) for dtype, counts in counted.items()),
    )


def _elements(op: DistOp, share: float | Seen, mesh: Mesh) -> tuple[tuple[str, str, float], ...]:
    """Return an operation with its dtype and the elements that it maps or reduces; a product of
    vectors counts as a sum."""
    value = next(iter(op.operands), op.result)
    count = max(math.prod(dist_type(x).local_shape(mesh)) for x in (value, op.result))
    name = "sum" if op.structure and op.structure.contracts else op.mnemonic
    return ((name, dist_type(value).dtype.value, _part(count, share)),)


def _part(number: float, share: float | Seen) -> float:
    """Return a share of a number; an open size, of which the share is all, is returned as it is."""
    if share in (1, ALL):
        return number
    if not isinstance(share, Seen):
        return number * float(share)
    if isinstance(number, OpenSize):
        return quotient(number * share.numerator, share.denominator)
    return number * share.share


def _kernel_name(names: Sequence[str]) -> str:
    """Return the name of a kernel: its operations, the first and last of them if they are many."""
    if len(names) > _NAMED:
        names = [*names[:2], f"{len(names) - 3} more", names[-1]]
    return "+".join(names)


def _moved(
    op: DistOp, mesh: Mesh, where: BufferPlan | None, bytes_of: Callable[[SSAValue], int]
) -> float:
    """Return the bytes that a local step reads and writes, without operands already in place."""
    if where is None:
        sizes = list(map(bytes_of, op.operands))
        return 0 if is_free(op, mesh) else op.kind.moved(sizes, bytes_of(op.result))
    if where.is_view(op):
        return 0
    if op.kind.assembles and all(
        where.part_of.get(where.owner[operand], (None, 0))[0] is op.result
        for operand in op.operands
    ):
        return 0
    moved = list(op.operands)
    if op.kind.packs:  # a value that is an operand twice is in place only once
        in_place = {v for v, (buffer, _) in where.part_of.items() if buffer is op.result}
        for operand in op.operands:
            if where.owner[operand] in in_place:
                in_place.remove(where.owner[operand])
                moved.remove(operand)
    return op.kind.moved(list(map(bytes_of, moved)), bytes_of(op.result))
