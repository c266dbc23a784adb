"""The places of steps: the ranks that carry them out, and the roots of collectives."""

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import Place, at_root


def taking_part(op: DistOp) -> Place:
    """Return the place of the ranks that carry out a step."""
    if op.kind.sends:
        return dist_type(op.operands[0]).without_place(op.over).place
    return dist_type(op.result).place


def root_place(op: DistOp) -> Place:
    """Return the place of the root of a collective in each group over its sub-axes."""
    if op.kind.before != "root":
        return at_root(op.over)
    return tuple(item for item in dist_type(op.operands[0]).place if item[0] in op.over)
