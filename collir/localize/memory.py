"""The memory that operations read and write, and the collectives under way in it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from collir.dialects.local import (
    ComputeOp,
    CopyOp,
    LocalCallOp,
    StartOp,
    origin_of,
)
from collir.dialects.local_types import buffer_of
from collir.layout import Place
from collir.layout.local import Ranks


class MemoryRange(NamedTuple):
    """Elements of an allocation, or of an argument, that some rank may use."""

    base: SSAValue
    low: int
    high: int

    def meets(self, other: "MemoryRange") -> bool:
        """Return whether both have an element in common."""
        return self.base is other.base and self.low < other.high and other.low < self.high


def memory_of(value: SSAValue, ranks: Ranks) -> MemoryRange:
    """Return the memory of a buffer."""
    base, start = origin_of(value)
    end = start + buffer_of(value).span
    return MemoryRange(base, ranks.bounds(start)[0], ranks.bounds(end)[1])


def accesses(op: Operation) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
    """Return the buffers that an operation reads, and the buffers that it writes."""
    match op:
        case CopyOp() | StartOp():
            return [op.source], [op.target]
        case ComputeOp() | LocalCallOp():
            return list(op.inputs), list(op.outputs)
        case _:
            return [], []


@dataclass(frozen=True)
class UnderWay:
    """A collective that was started.

    Attributes:
        place: the place of the ranks that started it.
        reads, writes: the memory that it uses until the end of what follows.
        then: what follows when it is waited for.
    """

    place: Place
    reads: Sequence[MemoryRange]
    writes: Sequence[MemoryRange]
    then: Sequence[tuple[Place, Sequence[Operation]]] = ()


@dataclass
class Pending:
    """Collectives under way, by their tokens."""

    ranks: Ranks
    started: dict[SSAValue, UnderWay] = field(default_factory=dict[SSAValue, UnderWay])

    def disturbed_by(self, ops: Iterable[Operation]) -> Iterator[SSAValue]:
        """Yield the tokens of the collectives that have to end before some operations run: these
        read their results, or write to memory that they use."""
        pairs = [accesses(op) for op in ops]
        reads = [memory_of(x, self.ranks) for read, _ in pairs for x in read]
        writes = [memory_of(x, self.ranks) for _, written in pairs for x in written]
        for token, own in self.started.items():
            read = any(a.meets(b) for a in own.writes for b in (*reads, *writes))
            if read or any(a.meets(b) for a in own.reads for b in writes):
                yield token
