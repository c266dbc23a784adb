"""Blocks that differ in size: shares of the ranks of a group in the dimensions that a step cuts."""

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import Mesh
from collir.layout.cuts import GroupShares, group_shares


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
