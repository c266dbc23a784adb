"""The streams on which code for NCCL runs, and the events with which they wait for each other.

All work is on the caller's stream, but for ``async`` collectives: they run on the stream of the
outermost level that they go through. A stream only waits for operations of other streams on the
memory that it uses, and not where the lowering waits, as a host would.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.local import (
    AllocOp,
    FreeOp,
    LocalCallOp,
    LocalFuncOp,
    LocalRepeatOp,
    StartOp,
    WaitOp,
    place_around,
    ranks_at,
)
from collir.dialects.local_types import buffer_of
from collir.layout import Place, apart
from collir.layout.local import Ranks
from collir.localize.memory import accesses, memory_of
from collir.targets.code.rank_leaves import (
    RankOperation,
    leaves,
    loops_around,
    place_of_memory,
    used_by,
)
from collir.targets.code.ranks import outermost


class Bytes(NamedTuple):
    """A range of bytes of an argument, or of the arena, of the ranks at a place."""

    base: object
    low: int
    high: int
    place: Place

    def meets(self, other: "Bytes") -> bool:
        """Return whether some rank has a byte of both."""
        if self.base is not other.base or self.low >= other.high or other.low >= self.high:
            return False
        return not apart(self.place, other.place)


ARENA = "the arena"

CALLERS = ""
"""The key of the caller's stream among those of levels, which end in a space."""


def bytes_of(value: SSAValue, ranks: Ranks) -> Bytes:
    """Return where a buffer lies."""
    base, low, high = memory_of(value, ranks)
    size = buffer_of(base).dtype.bytes
    if not isinstance(base.owner, AllocOp):
        return Bytes(base, low * size, high * size, ())
    start = ranks.bounds(base.owner.start.data)[0] if base.owner.start else 0
    return Bytes(ARENA, start + low * size, start + high * size, place_of_memory(base))


def bytes_lent(op: LocalCallOp, ranks: Ranks) -> Bytes:
    """Return the part of the arena that a called function has for its own."""
    arena = op.function().arena
    start = ranks.bounds(op.start.data)[0] if op.start else 0
    end = start + (ranks.bounds(arena.data)[1] if arena else 0)
    return Bytes(ARENA, start, end, place_around(op))


class Uses(NamedTuple):
    """The memory that an operation reads, and the memory that it writes."""

    reads: Sequence[Bytes]
    writes: Sequence[Bytes]

    @staticmethod
    def of(op: Operation, ranks: Ranks) -> "Uses":
        """Return the memory of an operation; a loop may write all that it uses."""
        calls = [x for x in op.walk() if isinstance(x, LocalCallOp)]
        lent = [bytes_lent(call, ranks) for call in calls]
        if isinstance(op, LocalRepeatOp):
            used = {*used_by(op), *op.spares}
            return Uses([], [*lent, *(bytes_of(x, ranks) for x in used)])
        reads, writes = ([bytes_of(x, ranks) for x in side] for side in accesses(op))
        return Uses(reads, [*writes, *lent])

    def disturbs(self, other: "Uses") -> bool:
        """Return whether one writes what the other one uses."""
        return any(a.meets(b) for a in self.writes for b in (*other.reads, *other.writes)) or any(
            a.meets(b) for a in self.reads for b in other.writes
        )


@dataclass(eq=False)
class StreamPlan:
    """The waits of streams in a function.

    Attributes:
        stream: the level of the stream of each ``async`` collective.
        waits: what the stream of an operation waits for in front of it: collectives on other
            streams, an operation of the caller's stream, all that is there now, or the beginning.
        ends: the waits of a send, for the sending and for the receiving rank.
        joined: the collectives that the caller's stream waits for at the end of a block.
        recorded: the operations of the caller's stream behind which an event is recorded.
        begun: collectives whose streams wait for the beginning of the function.
        numbers: the numbers of events, of collectives, of operations and of the beginning.
    """

    function: LocalFuncOp
    stream: dict[StartOp, str] = field(default_factory=dict[StartOp, str])
    waits: dict[Operation, list[object]] = field(default_factory=dict[Operation, list[object]])
    ends: dict[StartOp, list[list[object]]] = field(
        default_factory=dict[StartOp, list[list[object]]]
    )
    joined: dict[Block, list[StartOp]] = field(default_factory=dict[Block, list[StartOp]])

    BEGIN = "the beginning"
    NOW = "now"

    def __post_init__(self) -> None:
        self.ranks = ranks_at(self.function)
        self._plan(self.function.body.block)
        lists = [*self.waits.values(), *(side for pair in self.ends.values() for side in pair)]
        waited = [what for side in lists for what in side]
        self.recorded = {x for x in waited if isinstance(x, Operation) and x not in self.stream}
        self.begun = [
            op
            for op in self.stream
            if any(self.BEGIN in side for side in self.ends.get(op, [self.waits.get(op, [])]))
        ]
        begin = [self.BEGIN] if self.begun else []
        named = [*begin, *self.stream, *dict.fromkeys(x for x in waited if x in self.recorded)]
        self.numbers: dict[object, int] = {x: number for number, x in enumerate(named)}

    def _plan(self, block: Block) -> None:
        running: dict[StartOp, Uses] = {}
        known: dict[str, set[StartOp]] = {}  # by each stream; the caller's has no level
        ops = list(leaves(block))
        uses = [Uses.of(op, self.ranks) for _, op in ops]
        for number, (_, op) in enumerate(ops):
            if isinstance(op, LocalRepeatOp):
                self._plan(op.body.block)
            if isinstance(op, AllocOp | FreeOp | WaitOp):
                continue
            free = op if isinstance(op, StartOp) and op.is_async is not None else None
            own = f"{outermost(self.ranks.mesh, free.axes.data)} " if free else CALLERS
            if free and free.called == "send" and free.peers is None:
                read, written = uses[number]
                self.ends[free] = [
                    [*self._others(side, own, running, known), self._own(ops, uses, number, side)]
                    for side in (Uses(read, []), Uses([], written))
                ]
            else:
                others = self._others(uses[number], own, running, known)
                self.waits[op] = list(others)
                if free:
                    self.waits[op].append(self._own(ops, uses, number, uses[number]))
                known.setdefault(own, set()).update(x for last in others for x in self._up_to(last))
            if free:
                self.stream[free] = own.removesuffix(" ")
                running[free] = uses[number]
        left = [op for op in running if op not in known.get(CALLERS, set())]
        self.joined[block] = self._last_of_each(left)

    def _others(
        self,
        uses: Uses,
        own: str,
        running: dict[StartOp, Uses],
        known: dict[str, set[StartOp]],
    ) -> list[StartOp]:
        """Return the last collective of each other stream in conflict with a stream's operation."""
        return self._last_of_each(
            op
            for op, used in running.items()
            if f"{self.stream[op]} " != own
            and op not in known.get(own, set())
            and uses.disturbs(used)
        )

    def _last_of_each(self, ops: Iterable[StartOp]) -> list[StartOp]:
        """Return the last of some collectives on each stream, behind which the others are done."""
        return list({self.stream[op]: op for op in ops}.values())

    def _up_to(self, last: StartOp) -> Iterator[StartOp]:
        """Yield the collectives of a stream up to one of them."""
        for op, level in self.stream.items():
            if level == self.stream[last]:
                yield op
            if op is last:
                return

    def _own(
        self, ops: Sequence[RankOperation], uses: Sequence[Uses], number: int, side: Uses
    ) -> object:
        """Return what the stream of a collective waits for on the caller's stream: the last
        operation there that disturbs it."""
        if loops_around(ops[number].op):
            return self.NOW  # iterations disturb each other
        working = [n for n in range(number) if self._is_callers(ops, n)]
        last = next((n for n in reversed(working) if side.disturbs(uses[n])), None)
        if last is None:
            return self.BEGIN
        return self.NOW if last == working[-1] else ops[last].op

    def _is_callers(self, ops: Sequence[RankOperation], number: int) -> bool:
        op = ops[number].op
        return not isinstance(op, AllocOp | FreeOp | WaitOp) and op not in self.stream
