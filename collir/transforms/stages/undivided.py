"""Stacks whose dimension of layers is divided for a while, as when a sum is sent in parts.

A sum over two levels of a machine sends the fewest bytes if it is scattered inside of a node, sent
between nodes, and gathered again. Any dimension will do for that, but a dimension of layers must
not be cut by two axes at once. So such a value is reduced as a whole, and its layers stay together.
"""

from collections.abc import Iterator

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.ir.steps import step_op
from collir.layout.coll import step_between
from collir.transforms.stages.stacks import remade


def keep_layers_together(function: FuncOp, stacks: set[SSAValue]) -> bool:
    """Let no steps divide the layers of stacks if others gather them again; return whether any
    did."""
    chains = [
        chain
        for op in function.body.ops
        if isinstance(op, DistOp) and op.operands and op.operands[0] in stacks
        if (chain := _divided(op))
    ]
    for chain in chains:
        _undivide(chain)
    return bool(chains)


def _divided(op: DistOp) -> list[DistOp]:
    """Return the chain of steps from one that divides layers to one that gathers them.

    Each step is the only user of the step before. Without such a chain, none are returned.
    """
    if not op.kind.shards or op.kind.before == "root" or op.integer("dim") != 0:
        return []
    chain = [op]
    for user in _only_users(op):
        chain.append(user)
        if user.kind.gathers and user.kind.after == "replicated" and user.integer("dim") == 0:
            return chain if user.over == op.over else []
        if not (user.kind.layout_only or user.kind.maps) or len(user.operands) > 1:
            break
    return []


def _only_users(op: DistOp) -> Iterator[DistOp]:
    while len(uses := [*op.result.uses]) == 1:
        user = uses[0].operation
        if not isinstance(user, DistOp) or user.parent is not op.parent:
            return
        yield user
        op = user


def _undivide(chain: list[DistOp]) -> None:
    """Write the steps of a chain without its division, in place."""
    first, *between, last = chain
    mesh, value = mesh_of(first), first.operands[0]
    block = first.parent
    assert block is not None
    made: list[tuple[DistOp, DistOp]] = []
    if first.kind.reduces:
        whole = step_between("partial", "replicated")
        assert whole is not None
        made.append((first, step_op(mesh, whole, [value], axes=first.over)))
        value = made[-1][1].result
    for op in between:
        made.append((op, remade(op, mesh, [value])))
        value = made[-1][1].result
    for old, new in made:
        new.location = old.location
        block.insert_op_before(new, old)
    last.result.replace_all_uses_with(value)
    for op in reversed(chain):
        op.detach()
        op.erase()
