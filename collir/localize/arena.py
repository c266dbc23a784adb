"""One piece of memory for all allocations of a function, in which places are used again."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from xdsl.ir import Block, SSAValue

from collir.dialects.local import (
    AllocOp,
    AtOp,
    FreeOp,
    LocalCallOp,
    LocalFuncOp,
    LocalRepeatOp,
    place_around,
    ranks_at,
)
from collir.dialects.local_types import RankNumberAttr, buffer_of
from collir.layout import Place, apart
from collir.layout.local import Ranks

ALIGNMENT = 64
"""The bytes that the start of a place is a multiple of: a cache line, and the widest vector."""


K = TypeVar("K", bound=Hashable)


@dataclass
class Arena(Generic[K]):
    """Places in one allocation.

    Attributes:
        size: the bytes of the allocation.
    """

    size: int = 0
    _taken: dict[K, tuple[int, int, Place]] = field(default_factory=dict[Any, Any])

    def take(self, what: K, count: int, place: Place = ()) -> int:
        """Take the smallest gap of enough bytes between the places in use, or a place behind them,
        and return its start.

        Args:
            place: the place of the ranks that use it; memory of other ranks may overlap it.
        """
        count = -(-count // ALIGNMENT) * ALIGNMENT
        gaps: list[tuple[int, int]] = []
        end = 0
        for start, size, others in sorted(self._taken.values()):
            if apart(place, others):
                continue
            if start - end >= count:
                gaps.append((start - end, end))
            end = max(end, start + size)
        start = min(gaps)[1] if gaps else end
        self._taken[what] = start, count, place
        self.size = max(self.size, start + count)
        return start

    def give_back(self, what: K) -> None:
        """Let others use a place from now on."""
        self._taken.pop(what, None)


@dataclass
class OpenArena(Generic[K]):
    """Places in one allocation, for any values of size parameters: only memory of the same size
    shares a place.

    Attributes:
        size: the bytes of the allocation.
    """

    size: int = 0
    _taken: dict[K, tuple[int, int]] = field(default_factory=dict[Any, tuple[int, int]])
    _free: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def take(self, what: K, count: int, place: Place = ()) -> int:
        """Return the start of a free place of a number of bytes, or of a new one."""
        free = next((x for x in self._free if x[1] == count), None)
        if free is None:
            free = self.size, count
            self.size = self.size + count
        else:
            self._free.remove(free)
        self._taken[what] = free
        return free[0]

    def give_back(self, what: K) -> None:
        """Let others use a place from now on."""
        if place := self._taken.pop(what, None):
            self._free.append(place)


def plan_arena(function: LocalFuncOp) -> int:
    """Give each allocation of a function a place in its arena, and return the bytes of that.

    While a callee runs, its arena lies in that of the caller. In an arena of open sizes each
    element has as many bytes as the largest, so that all are aligned.
    """
    if function.arena is None:
        ranks = ranks_at(function)
        widest = max((buffer_of(op.result).dtype.bytes for op in _allocations(function)), default=1)
        place = _Places(ranks, widest, OpenArena() if ranks.values else Arena())
        place.plan(function.body.block)
        function.properties["arena"] = RankNumberAttr(place.arena.size)
        return place.arena.size
    return function.arena.data


def _allocations(function: LocalFuncOp) -> Iterator[AllocOp]:
    """Yield the allocations of a function and of its callees."""
    for op in function.walk():
        if isinstance(op, AllocOp):
            yield op
        elif isinstance(op, LocalCallOp):
            yield from _allocations(op.function())


class _Places(NamedTuple):
    """The arena of a function while places in it are given.

    Attributes:
        widest: the bytes of the largest element in it.
    """

    ranks: Ranks
    widest: int
    arena: Arena[SSAValue | LocalCallOp] | OpenArena[SSAValue | LocalCallOp]

    def plan(self, block: Block) -> None:
        """Give the allocations of a block their places."""
        arena = self.arena
        for op in block.ops:
            if isinstance(op, AllocOp):
                x = buffer_of(op.result)
                is_open, bound = self.ranks.values, self.ranks.bounds(x.bytes)[1]
                place = op.place.data if op.place else ()
                size = x.elements * self.widest if is_open else bound
                start = arena.take(op.result, size, place)
                op.properties["start"] = RankNumberAttr(start)
            elif isinstance(op, FreeOp):
                arena.give_back(op.memory)
            elif isinstance(op, LocalCallOp):
                size = plan_arena(op.function())
                start = arena.take(op, size, place_around(op))
                op.properties["start"] = RankNumberAttr(start)
                arena.give_back(op)
            elif isinstance(op, LocalRepeatOp | AtOp):
                self.plan(op.body.block)
