"""Sums over the iterations of a loop, each in one buffer.

A sum of what an inner loop stacks, as that of the gradients of layers over microbatches, is added
to in the iterations of the inner loop: the stack of one microbatch is never there. Sums that begin
with the same zeros begin with zeros of their own, which they are written over.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.in_place import is_updated
from collir.ir.names import set_name
from collir.ir.roles import pass_role
from collir.layout.coll import ADD, CAST, MASK, SCALE


def sum_in_place(module: ModuleOp) -> None:
    """Let loops add to their sums in place, in a module."""
    loops = [op for op in module.walk() if isinstance(op, RepeatOp) and op.schedule is None]
    for loop in reversed(loops):  # those inside of others first, which are replaced
        for number in range(len(loop.carried)):
            if (sunk := _Sum.of(loop, number)) is not None:
                sunk.sink()
    for loop in (op for op in module.walk() if isinstance(op, RepeatOp)):
        _begin_apart(loop)


@dataclass(frozen=True)
class _Sum:
    """A carry to which each iteration adds what a loop in it stacks.

    Attributes:
        carry: the sum so far.
        maps: the steps between the stack and the sum, in order, the addition last.
        inner: the loop in it.
        stack: what is added, a result of that loop.
    """

    carry: SSAValue
    maps: tuple[DistOp, ...]
    inner: RepeatOp
    stack: OpResult

    @staticmethod
    def of(loop: RepeatOp, number: int) -> "_Sum | None":
        """Return a carry as such a sum; None if it is none."""
        carry, added = loop.carries[number], loop.yielded[number]
        op = added.owner
        if not isinstance(op, DistOp) or op.kind is not ADD or not is_updated(loop, number):
            return None
        [term] = [x for x in op.operands if x is not carry]
        maps = [op]
        while isinstance(op := term.owner, DistOp) and op.kind in (CAST, SCALE):
            if not term.has_one_use():
                return None
            maps.append(op)
            [term] = op.operands
        inner = term.owner
        if not isinstance(inner, RepeatOp) or inner.schedule is not None or not term.has_one_use():
            return None
        assert isinstance(term, OpResult)
        is_stack = term.index >= len(inner.carried)
        return _Sum(carry, tuple(maps[::-1]), inner, term) if is_stack else None

    def sink(self) -> None:
        """Add in the iterations of the inner loop."""
        inner, x = self.inner, dist_type(self.carry)
        body = inner.body.detach_block(0)
        place = len(inner.carried) + len(inner.sliced)
        row = body.insert_arg(DistTensorType(replace(x, dims=x.dims[1:])), place)
        set_name(row, self.carry.name_hint)
        last = body.last_op
        assert isinstance(last, YieldOp)
        value: SSAValue = last.operands[self.stack.index]
        for op in self.maps:
            operands = [row, value] if op is self.maps[-1] else [value]
            made = op.make(mesh_of(inner), *operands, **op.properties)
            made.location = op.location
            body.insert_op_before(made, last)
            set_name(made.results[0], op.results[0].name_hint)
            value = made.results[0]
        last.operands[self.stack.index] = value
        operands = [[*inner.carried], [*inner.sliced, self.carry], [*inner.invariant]]
        self._replace(inner.rebuilt(operands, body))

    def _replace(self, made: RepeatOp) -> None:
        """Put a loop in the place of the inner one, with the sum among its stacks."""
        inner, added = self.inner, self.maps[-1].results[0]
        block = inner.parent
        assert block is not None
        made.attributes |= inner.attributes
        block.insert_op_before(made, inner)
        for old, new in zip(inner.results, made.results, strict=True):
            old = added if old is self.stack else old
            set_name(new, old.name_hint)
            pass_role(old, new)
            old.replace_all_uses_with(new)
        for op in (*reversed(self.maps), inner):
            op.detach()
            op.erase()


def _begin_apart(loop: RepeatOp) -> None:
    """Let sums begin with steps of their own, where these make them of nothing."""
    for number, start in enumerate(loop.carried):
        if start.has_one_use() or not is_updated(loop, number) or not _is_made([start]):
            continue
        assert isinstance(start, OpResult) and loop.parent is not None
        made = start.op.clone()
        loop.parent.insert_op_before(made, loop)
        loop.operands[number] = made.results[start.index]


def _is_made(values: Iterable[SSAValue]) -> bool:
    """Return whether values are constants, or parts of them."""
    owners = [value.owner for value in values]
    return all(
        isinstance(op, DistOp) and (not op.operands or (op.kind is MASK and _is_made(op.operands)))
        for op in owners
    )
