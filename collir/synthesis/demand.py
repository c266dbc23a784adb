"""What an operation needs at least, where only some of the axes have levels yet.

A child of a level must get what its devices want and do not hold. How far the axes without levels
reach is not known, but what of the machine is left for them is: together they fill it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from collir.cost.model import CostModel
from collir.dialects import coll
from collir.dialects.coll import CollOp, dist_type
from collir.layout import Mesh
from collir.layout.types import State
from collir.machine import Level

Rows = dict[str, tuple[int, ...]]
"""The rows of a matrix that are known, by the names of axes."""


@dataclass(frozen=True)
class Room:
    """The levels that an axis without a row may still take, and what such axes there are."""

    levels: tuple[Level, ...]
    left: tuple[int, ...]
    rows: Rows
    sizes: dict[str, int]
    """Of the axes without a row."""

    @cached_property
    def total(self) -> int:
        """The product of the sizes of the axes without a row."""
        return math.prod(self.sizes.values())

    def least(self, axes: Iterable[str], first: int, last: int) -> float:
        """Over how many coordinates axes extend on some levels, at least."""
        known, own = 1.0, 1
        for axis in axes:
            known *= math.prod(self.rows[axis][first:last]) if axis in self.rows else 1
            own *= self.sizes.get(axis, 1)
        return known * max(1.0, math.prod(self.left[first:last]) * own / self.total)

    def most(self, axes: Iterable[str], first: int, last: int) -> float:
        """Over how many coordinates axes extend on some levels, at most."""
        known, own = 1.0, 1
        for axis in axes:
            known *= math.prod(self.rows[axis][first:last]) if axis in self.rows else 1
            own *= self.sizes.get(axis, 1)
        return known * min(own, math.prod(self.left[first:last]))


class Demand:
    """An operation on a mesh without a placement.

    Attributes:
        axes: those that its value is not simply replicated or sharded over.
    """

    def __init__(self, op: CollOp, mesh: Mesh, model: CostModel):
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        self.op, self.source, self.target = op, x, y
        self._no_latency = model.model != "alpha-beta"
        each = {axis: (x.state_of(axis), y.state_of(axis)) for axis in mesh.by_name}
        self.states = each

        def having(before: State, *after: State) -> tuple[str, ...]:
            return tuple(a for a, (one, other) in each.items() if one == before and other in after)

        self._reduced = having("partial", "replicated")
        self._summed = having("partial", "sharded", "root")
        self._gathered = having("sharded", "replicated")
        self._spread = having("root", "replicated", "sharded")
        self._idle = having("replicated", "replicated")
        moved = having("sharded", "sharded") if isinstance(op, coll.AllToAllOp) else ()
        self._moved = tuple(axis for axis in moved if x.dim_of(axis) != y.dim_of(axis))
        kept = having("sharded", "sharded") + having("partial", "partial")
        self._distinct = tuple(axis for axis in kept if axis not in self._moved)
        self._local = float(x.local_bytes(mesh))
        self._gathering = math.prod(mesh.by_name[axis].size for axis in self._gathered)
        self._wanted = float(y.local_bytes(mesh))
        self.axes = (
            *self._reduced,
            *self._summed,
            *self._gathered,
            *self._spread,
            *self._moved,
        )

    def least(self, room: Room) -> float:
        """Seconds that any program for the operation takes at least, wherever the rest lives."""
        most = 0.0
        count = len(room.levels)
        for index, level in enumerate(room.levels):
            share = self._bytes(room, index + 1)
            if share > 0:
                distinct = room.least(self._distinct, index + 1, count)
                latency = 0.0 if self._no_latency else level.latency
                most = max(most, latency + share * distinct / level.port)
        return most

    def _bytes(self, room: Room, end: int) -> float:
        """Into a child of the level before ``end``, on average; of one that is all a value has."""
        reduced = room.least(self._reduced, 0, end)
        parts = reduced * room.least(self._summed, 0, end)
        if parts > 1:
            # Per element parts - 1 messages until one child has the sum, and one for each other
            # that wants it; the more have copies, the fewer each needs to send.
            children = parts * room.most((*self._idle, *self._gathered), 0, end)
            spread = 0.0 if self._summed else children - 1
            return (parts - 1 + spread) / children * self._local * self._gathering
        if self._spread and room.least(self._spread, 0, end) > 1:
            return self._wanted
        gathered = room.least(self._gathered, 0, end)
        moved = room.least(self._moved, 0, end)
        return max(
            (1 - 1 / gathered) * self._local * self._gathering, (1 - 1 / moved) * self._local
        )


def order(demands: Sequence[tuple[float, Demand]], mesh: Mesh) -> list[str]:
    """The axes with the most to send first, so that bounds soon say much."""
    weight = dict.fromkeys((axis.name for axis in mesh.axes), 0.0)
    for factor, demand in demands:
        for axis in demand.axes:
            weight[axis] += factor * demand.source.local_bytes(mesh)
    return sorted(weight, key=lambda name: -weight[name])
