"""Let loops add to their sums in place.

What: where each iteration of a ``repeat`` adds a stack that an inner loop made to a sum, the inner
loop takes the sum in slices and adds to them. Sums that begin with the same zeros get zeros of
their own.

Why: the gradients of a model are summed over microbatches. Without the pass, each microbatch stacks
the gradients of all layers only to add the stack, and sums that share their zeros need a second
buffer. With it, each sum is one buffer, like ``.grad`` in PyTorch and ``main_grad`` in Megatron-LM.

    %sums = repeat 8 carry(%sum = %zeros) slice(%x = %xs) with(%ws = %ws) {
      %y, %ds = repeat 24 carry(%h = %x) slice(%w = %ws) {
        ...
        yield %h_1, %d
      }
      %wide = cast %ds to f32
      %sum_1 = add %sum, %wide
      yield %sum_1
    }
becomes
    %sums = repeat 8 carry(%sum = %zeros) slice(%x = %xs) with(%ws = %ws) {
      %y, %sum_1 = repeat 24 carry(%h = %x) slice(%w = %ws, %sum_2 = %sum) {
        ...
        %wide = cast %d to f32
        %sum_3 = add %sum_2, %wide
        yield %h_1, %sum_3
      }
      yield %sum_1
    }

When not: a stack that is reduced over devices behind the inner loop is added there. Loops with a
schedule stay as they are: the tasks of ``pipeline`` have their sums in one buffer.

Cost: less memory, by the stack and by the second buffer of a sum. Fewer bytes are read and written,
by one kernel for each layer.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult, SSAValue
from xdsl.passes import ModulePass

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.in_place import is_updated
from collir.ir.names import set_name
from collir.ir.roles import pass_role
from collir.layout.coll import ADD, CAST, MASK, SCALE


@dataclass(frozen=True)
class _Sum:
    """A carry to which each iteration adds what a loop in it stacks.

    Attributes:
        carry: the sum so far.
        maps: the steps between the stack and the sum, in order, the addition last.
        inner: the inner loop.
        stack: the result of the inner loop that is added.
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


class SumInPlacePass(ModulePass):
    """Let loops add to their sums in place."""

    name = "sum-in-place"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        loops = [x for x in op.walk() if isinstance(x, RepeatOp) and x.schedule is None]
        for loop in reversed(loops):  # those inside of others first, which are replaced
            for number in range(len(loop.carried)):
                if (sunk := _Sum.of(loop, number)) is not None:
                    sunk.sink()
        for loop in (x for x in op.walk() if isinstance(x, RepeatOp)):
            _begin_apart(loop)
