"""The writer of a rank's program: operations in order, the necessary waits, and places."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.local import STEP, AllocOp, AtOp, LocalYieldOp, StartOp, ViewOp, WaitOp
from collir.dialects.local_types import TokenType, buffer_of
from collir.dialects.operation import DistOp
from collir.ir.names import set_name
from collir.layout import Mesh, Place
from collir.layout.local import LocalBuffer, Ranks
from collir.localize.memory import Pending, UnderWay, accesses, memory_of

Steps = Sequence[tuple[Place, Sequence[Operation]]]
"""Operations in order, each list with the place of the ranks that run it."""


class GroupRules(NamedTuple):
    """The demands of a library of collectives.

    Attributes:
        ascending: whether the ranks of its groups ascend, whatever the order of sub-axes.
        padded: whether blocks that differ in size are padded to the largest, or a function that
            says so of a collective; those of an all_to_all never are.
        algorithms: the reasons to leave algorithms to the library, by collective and algorithm.
    """

    ascending: bool = False
    padded: bool | Callable[[DistOp, Mesh], bool] = False
    algorithms: Mapping[tuple[str, str], str] = MappingProxyType({})

    def pads(self, op: DistOp, mesh: Mesh) -> bool:
        """Return whether the blocks of a collective are padded, if they differ in size."""
        if op.kind.exchanges:
            return False
        return self.padded if isinstance(self.padded, bool) else self.padded(op, mesh)


ANY_GROUPS = GroupRules()
"""The rules of a library whose groups count ranks in any order, and whose blocks may differ."""


@dataclass
class LocalWriter:
    """The operations of a block, in the order in which ranks run them.

    Attributes:
        block: the block that is written.
    """

    ranks: Ranks
    block: Block
    rules: GroupRules
    pending: Pending = field(init=False)

    def __post_init__(self) -> None:
        self.pending = Pending(self.ranks)
        self._views: dict[tuple[SSAValue, LocalBuffer, int, Place], SSAValue] = {}

    @property
    def mesh(self) -> Mesh:
        """The mesh of the ranks."""
        return self.ranks.mesh

    def add(self, op: Operation) -> None:
        """Write an operation that all ranks run."""
        self.block.add_op(op)

    def alloc(self, x: LocalBuffer, place: Place = (), name: str | None = None) -> SSAValue:
        """Return new memory of the ranks at a place."""
        op = AllocOp.of(x, place)
        set_name(op.result, name)
        self.add(op)
        return op.result

    def view(self, whole: SSAValue, x: LocalBuffer, start: int = 0, place: Place = ()) -> SSAValue:
        """Return a part of a contiguous buffer, or all of it in another shape.

        Args:
            place: the place of the ranks that use it.
        """
        if isinstance(whole.owner, ViewOp) and buffer_of(whole).is_contiguous:
            whole, start = whole.owner.whole, start + whole.owner.offset.data
        if buffer_of(whole) == x and start == 0:
            return whole
        place = () if buffer_of(whole).is_fixed else place
        key = (whole, x, start, place)
        if key not in self._views:
            op = ViewOp.of(whole, x, start, place)
            self.add(op)
            self._views[key] = op.result
        return self._views[key]

    def run(self, steps: Steps, text: str = "") -> None:
        """Write operations, after waits for the collectives that they would disturb.

        Args:
            text: the step that they belong to, as it is written.
        """
        ops = [op for _, ops in steps for op in ops]
        if text and ops:
            ops[0].attributes[STEP] = StringAttr(text)
        self.wait_for(ops)
        for place, ops in steps:
            _ = self._placed(place, ops)

    def start(
        self,
        before: Steps,
        place: Place,
        start: StartOp,
        then: Steps,
        waits: bool,
        text: str = "",
    ) -> None:
        """Write a collective, with the operations before and after it.

        Args:
            waits: whether it is waited for at once.
            text: the step that it is, as it is written.
        """
        if text and not before:
            start.attributes[STEP] = StringAttr(text)
        self.run(before, text)
        self.wait_for([start, *(op for _, ops in then for op in ops)])
        [token] = self._placed(place, [start])
        pairs = [accesses(op) for op in (start, *(op for _, ops in then for op in ops))]
        reads, writes = (
            [memory_of(x, self.ranks) for pair in pairs for x in pair[n]] for n in range(2)
        )
        self.pending.started[token] = UnderWay(place, reads, writes, then)
        if waits:
            self.wait(token)

    def start_together(self, place: Place, starts: Sequence[StartOp], text: str = "") -> None:
        """Write collectives that are under way at the same time, and then their waits."""
        if text:
            starts[0].attributes[STEP] = StringAttr(text)
        self.wait_for(starts)
        tokens = [token for start in starts for token in self._placed(place, [start])]
        for token in tokens:
            _ = self._placed(place, [WaitOp.create(operands=[token])])

    def wait_for(self, ops: Sequence[Operation]) -> None:
        """Wait for the collectives that operations would disturb."""
        for token in list(self.pending.disturbed_by(ops)):
            self.wait(token)

    def wait(self, token: SSAValue) -> None:
        """Wait for a collective under way, and write the operations that follow it."""
        own = self.pending.started.pop(token)
        _ = self._placed(own.place, [WaitOp.create(operands=[token])])
        for place, ops in own.then:
            _ = self._placed(place, ops)

    def wait_for_all(self) -> None:
        """Wait for all collectives under way."""
        for token in list(self.pending.started):
            self.wait(token)

    def _placed(self, place: Place, ops: Sequence[Operation]) -> Sequence[SSAValue]:
        """Write operations of the ranks at a place, and return their tokens."""
        tokens = [x for op in ops for x in op.results if isinstance(x.type, TokenType)]
        if not place or not ops:
            for op in ops:
                self.add(op)
            return tokens
        block = Block([*ops, LocalYieldOp.create(operands=tokens)])
        op = AtOp.of(place, block, len(tokens))
        self.add(op)
        return op.tokens
