"""Blocks that differ in size: how the ranks of a group share the dimensions that a step cuts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp

from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.layout import Mesh
from collir.layout.cuts import Extent, GroupShares, group_shares
from collir.layout.weights import SubAxes


def shares_by_dim(op: DistOp, mesh: Mesh) -> dict[int, GroupShares] | None:
    """Return the shares in each dimension that a step over sub-axes cuts or joins; None if all of
    its blocks are equal.

    Where only one of two dimensions is uneven, the shares in the other are 1.
    """
    if not mesh.uneven or not op.over or not op.kind.ordered:
        return None
    x, y = dist_type(op.operands[0]), dist_type(op.result)
    changed = [
        (dim, min((a.axes, b.axes), key=len))
        for dim, (a, b) in enumerate(zip(x.dims, y.dims, strict=True))
        if a.axes != b.axes
    ]
    shares = {dim: group_shares(mesh, held, op.over) for dim, held in changed}
    if not any(shares.values()):
        return None
    equal = GroupShares((), ((1,) * mesh.group_size(op.over),), ())
    return {dim: known or equal for dim, known in shares.items()}


@dataclass(frozen=True)
class Part:
    """A dimension that a collective cuts or joins unevenly.

    Attributes:
        dim: the dimension.
        comes: whether the blocks come, and lie side by side in the result; otherwise they leave,
            from the operand.
        shares: the units of the ranks of the groups.
        unit: the size of a unit in the dimension.
        inner: the elements behind the dimension, of one of its elements.
        rows: the elements before the dimension.
    """

    dim: int
    comes: bool
    shares: GroupShares
    unit: int
    inner: int
    rows: int

    @property
    def row(self) -> int:
        """The elements of a unit in a row."""
        return self.unit * self.inner

    @property
    def most(self) -> int:
        """The most units of a rank of any group."""
        return max(map(max, self.shares.rows))


def parts_of(op: DistOp, mesh: Mesh) -> list[Part]:
    """Return the dimensions that a collective cuts or joins, those that blocks leave first; none
    if its blocks are equal."""
    known = shares_by_dim(op, mesh)
    if known is None:
        return []
    before, after = (dist_type(z).local_shape(mesh) for z in (op.operands[0], op.result))
    parts: list[Part] = []
    for name in ("target", "source") if op.kind.exchanges else ("dim",):
        dim = op.integer(name)
        comes = name == "source" or op.kind.gathers
        block, whole = (before, after) if comes else (after, before)
        unit = known[dim].unit(block[dim])
        inner, rows = math.prod(whole[dim + 1 :]), math.prod(whole[:dim])
        parts.append(Part(dim, comes, known[dim], unit, inner, rows))
    return parts


def cuts_in(function: FuncOp, mesh: Mesh) -> list[SubAxes]:
    """Return the cuts by weights on which sizes of buffers in a function depend."""
    found: dict[SubAxes, None] = {}
    results = (result for op in function.body.walk() for result in op.results)
    for value in (*function.args, *results) if mesh.uneven else ():
        if isinstance(value.type, DistTensorType):
            for size in value.type.data.local_shape(mesh):
                found |= dict.fromkeys(size.cuts if isinstance(size, Extent) else ())
    return list(found)


def shares_in(function: FuncOp, mesh: Mesh) -> Iterator[tuple[SubAxes, GroupShares]]:
    """Yield the sub-axes of every step whose blocks differ, with its shares in each dimension."""
    for op in function.body.walk() if mesh.uneven else ():
        if isinstance(op, DistOp):
            for shares in (shares_by_dim(op, mesh) or {}).values():
                yield op.over, shares
