"""The writer of a rank's program: operations in order, waits where they are needed, places."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.local import AllocOp, AtOp, LocalYieldOp, StartOp, ViewOp, WaitOp
from collir.dialects.local_types import TokenType, buffer_of
from collir.layout import Mesh, Place
from collir.layout.local import Affine, LocalBuffer
from collir.localize.memory import Pending, UnderWay, accesses, memory_of

Steps = Sequence[tuple[Place, Sequence[Operation]]]
"""Operations in order, each list with the place of the ranks that run it."""


@dataclass
class Writer:
    """The operations of a block, in the order in which ranks run them.

    Attributes:
        block: the block that is written.
    """

    mesh: Mesh
    block: Block
    pending: Pending = field(init=False)

    def __post_init__(self) -> None:
        self.pending = Pending(self.mesh)
        self._views: dict[tuple[SSAValue, LocalBuffer, Affine], SSAValue] = {}

    def add(self, op: Operation) -> None:
        """Write an operation that all ranks run."""
        self.block.add_op(op)

    def alloc(self, x: LocalBuffer, place: Place = ()) -> SSAValue:
        """Return new memory of the ranks at a place."""
        op = AllocOp.of(x, place)
        self.add(op)
        return op.result

    def view(self, whole: SSAValue, x: LocalBuffer, offset: Affine | int = 0) -> SSAValue:
        """Return a part of a contiguous buffer, or all of it in another shape."""
        start = offset if isinstance(offset, Affine) else Affine(offset)
        if isinstance(whole.owner, ViewOp) and buffer_of(whole).is_contiguous:
            whole, start = whole.owner.whole, start + whole.owner.offset.data
        if buffer_of(whole) == x and start == Affine():
            return whole
        key = (whole, x, start)
        if key not in self._views:
            op = ViewOp.of(whole, x, start)
            self.add(op)
            self._views[key] = op.result
        return self._views[key]

    def run(self, steps: Steps) -> None:
        """Write operations, behind the waits for what they would disturb."""
        self.wait_for([op for _, ops in steps for op in ops])
        for place, ops in steps:
            _ = self._placed(place, ops)

    def start(self, before: Steps, place: Place, start: StartOp, then: Steps, waits: bool) -> None:
        """Write a collective, and what comes before and behind it.

        Args:
            waits: whether it is waited for at once.
        """
        self.run(before)
        self.wait_for([start, *(op for _, ops in then for op in ops)])
        [token] = self._placed(place, [start])
        pairs = [accesses(op) for op in (start, *(op for _, ops in then for op in ops))]
        reads, writes = (
            [memory_of(x, self.mesh) for pair in pairs for x in pair[n]] for n in range(2)
        )
        self.pending.started[token] = UnderWay(place, reads, writes, then)
        if waits:
            self.wait(token)

    def wait_for(self, ops: Sequence[Operation]) -> None:
        """Wait for what operations would disturb."""
        for token in list(self.pending.disturbed_by(ops)):
            self.wait(token)

    def wait(self, token: SSAValue) -> None:
        """Wait for what is under way, and do what follows."""
        own = self.pending.started.pop(token)
        _ = self._placed(own.place, [WaitOp.create(operands=[token])])
        for place, ops in own.then:
            _ = self._placed(place, ops)

    def wait_for_all(self) -> None:
        """Wait for all that is under way."""
        for token in list(self.pending.started):
            self.wait(token)

    def _placed(self, place: Place, ops: Sequence[Operation]) -> Sequence[SSAValue]:
        """Write operations of the ranks at a place, and return their tokens."""
        tokens = [x for op in ops for x in op.results if isinstance(x.type, TokenType)]
        if not place:
            for op in ops:
                self.add(op)
            return tokens
        block = Block([*ops, LocalYieldOp.create(operands=tokens)])
        op = AtOp.of(place, block, len(tokens))
        self.add(op)
        return op.tokens
