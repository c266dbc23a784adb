"""One piece of memory for all that a function allocates, in which places are used again."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from xdsl.ir import Block, SSAValue

from collir.dialects.local import (
    AllocOp,
    AtOp,
    FreeOp,
    LocalCallOp,
    LocalFuncOp,
    LocalRepeatOp,
    bounds,
    mesh_at,
    number,
)
from collir.dialects.local_types import buffer_of
from collir.layout import Mesh

ALIGNMENT = 64
"""The bytes that the start of a place is a multiple of: a cache line, and the widest vector."""


K = TypeVar("K", bound=Hashable)


@dataclass
class Arena(Generic[K]):
    """Places in one allocation.

    Attributes:
        size: the bytes of the allocation.
        starts: the start of each place that was taken, in bytes.
    """

    size: int = 0
    starts: dict[K, int] = field(default_factory=dict[Any, int])
    _taken: dict[K, tuple[int, int]] = field(default_factory=dict[Any, tuple[int, int]])

    def take(self, what: K, count: int) -> int:
        """Return the start of the smallest gap between the places in use that has a number of
        bytes, or of a place behind them, which is taken."""
        count = -(-count // ALIGNMENT) * ALIGNMENT
        gaps: list[tuple[int, int]] = []
        end = 0
        for start, size in sorted(self._taken.values()):
            if start - end >= count:
                gaps.append((start - end, end))
            end = start + size
        start = min(gaps)[1] if gaps else end
        self.starts[what] = start
        self._taken[what] = start, count
        self.size = max(self.size, start + count)
        return start

    def give_back(self, what: K) -> None:
        """Let others use a place from now on."""
        self._taken.pop(what, None)


def plan_arena(function: LocalFuncOp) -> int:
    """Give each allocation of a function a place in its arena, in place, and return its bytes.

    The arena of a function that it calls lies in its own one while that runs.
    """
    if function.arena is None:
        arena = Arena[SSAValue | LocalCallOp]()
        _plan(function.body.block, arena, mesh_at(function))
        function.properties["arena"] = number(arena.size)
        return arena.size
    return function.arena.value.data


def _plan(block: Block, arena: Arena[SSAValue | LocalCallOp], mesh: Mesh) -> None:
    for op in block.ops:
        if isinstance(op, AllocOp):
            _, most = bounds(buffer_of(op.result).bytes, mesh)
            op.properties["start"] = number(arena.take(op.result, most))
        elif isinstance(op, FreeOp):
            arena.give_back(op.memory)
        elif isinstance(op, LocalCallOp):
            op.properties["start"] = number(arena.take(op, plan_arena(op.function())))
            arena.give_back(op)
        elif isinstance(op, LocalRepeatOp | AtOp):
            _plan(op.body.block, arena, mesh)
