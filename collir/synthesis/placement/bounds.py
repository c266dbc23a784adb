"""What an operation takes at least, where only the outermost levels are shared out among the axes.

A child of a level must get what its devices want and do not hold. How far each axis reaches on the
levels that are not shared out is not known, but together the axes fill them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from operator import mul
from typing import NamedTuple

from collir.cost.model import CostModel
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Position
from collir.layout import Mesh
from collir.layout.steps import OVER
from collir.machine import Level
from collir.synthesis.programs.choices import needs_search
from collir.synthesis.programs.states import is_unordered

Rows = Mapping[str, Sequence[int]]
"""The factors of axes on the first levels, by their names."""


class Span(NamedTuple):
    """How far some axes extend.

    Attributes:
        size: on all levels.
        factors: on the levels that are shared out.
        least: on the first levels (none, one, two and so on) at least.
        most: on these at most.
    """

    size: int
    factors: tuple[int, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]


@dataclass(frozen=True)
class Room:
    """A machine whose first levels are shared out among the axes of a mesh.

    Attributes:
        sizes: of the levels; those of a part, if the mesh has only that.
        rows: the factors of every axis on the levels that are shared out.
        left: of every axis, what is left for the other levels.
        shared: how many levels are shared out.
    """

    levels: tuple[Level, ...]
    sizes: tuple[int, ...]
    rows: Rows
    left: Mapping[str, int]
    shared: int

    @cached_property
    def _free(self) -> list[int]:
        """On the first levels (none, one, two and so on), what is not shared out."""
        sizes = [1] * self.shared + [*self.sizes[self.shared :]]
        return [*accumulate(sizes, mul, initial=1)]

    @cached_property
    def latencies(self) -> list[float]:
        """Of a message between children of each level: it goes through all ports inside, too."""
        backwards = accumulate((level.latency for level in reversed(self.levels)), max)
        return [*backwards][::-1]

    def span(self, axes: Iterable[str]) -> Span:
        """How far some axes extend."""
        left, factors = 1, [1] * self.shared
        for axis in axes:
            left *= self.left[axis]
            factors = [*map(mul, factors, self.rows[axis])]
        ones = [1] * (len(self.sizes) - self.shared)
        known = [*accumulate([*factors, *ones], mul, initial=1)]
        free = self._free
        # What is left goes to these levels or to the others, as far as it divides them
        both = [*zip(known, free, strict=True)]
        least = tuple(n * (left // math.gcd(left, free[-1] // f)) for n, f in both)
        most = tuple(n * math.gcd(left, f) for n, f in both)
        return Span(known[-1] * left, tuple(factors), least, most)

    def latency(self, span: Span) -> float:
        """Seconds that messages take at least until one has crossed between all coordinates.

        Whatever reaches n children of a level, one by one or by doubling, does so in lg n messages
        or more. What is left of the axes takes the fastest levels that are.
        """
        left = math.log2(span.size / math.prod(span.factors))
        seconds = 0.0
        for level, latency in reversed([*enumerate(self.latencies)]):
            if level < self.shared:
                seconds += math.log2(span.factors[level]) * latency
            else:
                messages = min(left, math.log2(self.sizes[level]))
                seconds, left = seconds + messages * latency, left - messages
        return seconds


class PlacementBounds:
    """An operation on a mesh without a placement; it can be sent to another process.

    Attributes:
        name: of the operation, and ``position`` where it stands.
        over: the axes that it names; None if it names none.
        searched, placeholder: whether other programs may take its place, or have to.
        algorithm: the one that it names, or "".
        changes: the states of every axis at both ends, and whether it goes to another dimension.
        inert: the axes over which the value stays split as it is, so that all that counts is how
            much of each level the others leave to them.
        ordered: whether it counts which axis comes first: in the layouts of a redistribution, or
            in the groups of a collective that says its algorithm.
    """

    def __init__(self, op: DistOp, mesh: Mesh, model: CostModel):
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        self.name, self.source, self.target, self.position = op.mnemonic, x, y, Position.of(op)
        self.over = op.over if OVER in op.kind.parameters else None
        self.searched, self.placeholder = needs_search(op), op.kind.placeholder
        self.algorithm = op.word("algorithm") if "algorithm" in op.properties else ""
        self._fits = is_unordered(x, y)
        self.ordered = not (self.searched and self._fits)
        self.changes = {
            axis: (x.state_of(axis), y.state_of(axis), x.dim_of(axis) != y.dim_of(axis))
            for axis in mesh.by_name
        }
        stays = [("partial", "partial", False), ("sharded", "sharded", False)]
        self.inert = frozenset(axis for axis, change in self.changes.items() if change in stays)
        self._with_latency = model.on(mesh.machine).model == "alpha-beta"
        self._reduced = self._having("partial", "replicated")
        self._summed = self._having("partial", "sharded", "root")
        self._gathered = self._having("sharded", "replicated")
        self._spread = self._having("root", "replicated", "sharded")
        less = ("sharded", "root", "partial")
        self._split = (*self._having("replicated", *less), *self._having("root", *less[::2]))
        idle = (*self._having("replicated", "replicated"), *self._having("root", "replicated"))
        self._helping = (*idle, *self._gathered, *self._split)
        kept = (*self._having("sharded", "sharded"), *self._having("partial", "partial"))
        moves = op.kind.exchanges
        self._moved = tuple(axis for axis in kept if moves and axis not in self.inert)
        self._distinct = tuple(axis for axis in kept if axis not in self._moved)
        self._crossed = (*self._reduced, *self._summed, *self._spread)
        if self._fits:  # else a permute may bring blocks where they belong
            self._crossed += (*self._gathered, *self._having("sharded", "root"), *self._moved)
        self._local = float(x.local_bytes(mesh))
        self._whole = self._local * math.prod(mesh.by_name[axis].size for axis in self._gathered)
        self._wanted = float(y.local_bytes(mesh))

    def _having(self, before: str, *after: str) -> tuple[str, ...]:
        each = self.changes.items()
        return tuple(a for a, (one, other, _) in each if one == before and other in after)

    def least(self, room: Room) -> float:
        """Seconds that any program for the operation takes at least, wherever the rest lives.

        Each step takes its messages' latencies and the time of its bytes through any one port.
        """
        distinct = room.span(self._distinct)
        per_byte = [
            distinct.size // most / level.fastest
            for most, level in zip(distinct.most[1:], room.levels, strict=True)
        ]
        latency = room.latency(room.span(self._crossed)) if self._with_latency else 0.0
        return max(self._fetched(room, per_byte), self._reduction(room, per_byte)) + latency

    def _fetched(self, room: Room, per_byte: Sequence[float]) -> float:
        """Seconds for what the children of a level want and do not hold, nothing reduced."""
        into: list[Iterable[float]] = []
        if self._spread:
            into.append(self._wanted * (n > 1) for n in room.span(self._spread).least[1:])
        if self._gathered:
            gathered = room.span(self._gathered)
            split = room.span((*self._split, *self._summed, *self._spread))
            both = zip(split.most[1:], gathered.least[1:], strict=True)
            into.append((1 / wanted - 1 / held) * self._whole for wanted, held in both)
        if self._moved:
            moved = room.span(self._moved)
            both = zip(moved.least[1:], moved.most[1:], strict=True)
            into.append((1 - 1 / n) * self._local * (moved.size // most) for n, most in both)
        return max((max(map(mul, sizes, per_byte)) for sizes in into), default=0.0)

    def _reduction(self, room: Room, per_byte: Sequence[float]) -> float:
        """Seconds in which the children of a level reduce what they have, and send it those that
        want it.

        Where n parts of a value have c copies each, and u of these are not cut before, an element
        takes (n - 1) u messages that reduce it and n c - u that bring the sum to all; an all_reduce
        counts as half of both. These are different steps, so the slowest ports for each add up.
        """
        if not self._reduced and not self._summed:
            return 0.0
        parts = room.span((*self._reduced, *self._summed)).least[1:]
        copies = room.span(self._helping).most[1:]
        levels = [
            Reducing(self._whole * seconds, n, c)
            for seconds, n, c in zip(per_byte, parts, copies, strict=True)
        ]
        if self._summed or self._split:  # not all want the sum
            return max(level.reducing for level in levels)
        if not self._fits:  # copies may be cut later
            return max(level.both for level in levels)
        return _reduced_and_sent(levels, room.shared)


class Reducing(NamedTuple):
    """What reduces through the port of a child of a level.

    Attributes:
        seconds: for all elements of a child, once.
        parts: how many children have different parts of an element.
        copies: how many have the same.
    """

    seconds: float
    parts: int
    copies: int

    @property
    def reducing(self) -> float:
        """Seconds to reduce what is left if all copies are cut: each takes its share."""
        return self.seconds * (1 - 1 / self.parts) / self.copies

    @property
    def both(self) -> float:
        """Seconds to reduce and to send the sums through this port alone."""
        children = self.parts * self.copies
        return self.reducing + self.seconds * (1 - 1 / children) if self.parts > 1 else 0.0


def _reduced_and_sent(levels: Sequence[Reducing], shared: int) -> float:
    """Seconds to reduce and to send the sums, with the best choice of what is cut before.

    Copies that are kept on a level are there on all levels inside it too, where each takes as long
    to reduce as one. So where reducing takes x seconds, u / c is at most x / (what it takes if all
    copies on the level, or on one outside, are kept), and sending takes

        max of k (1 - min(1, x / kept) / n),

    k the seconds for the elements of a child. With x this is the largest of some lines: the least
    x bounds those that rise, and the point where one that rises meets one that falls bounds both.
    """
    inside = [*accumulate((level.reducing for level in reversed(levels)), max)][::-1]
    least, kept = inside[0], 0.0
    rising: list[tuple[float, float]] = []
    falling: list[tuple[float, float]] = []
    for at, level in enumerate(levels):
        kept = max(kept, level.copies * (inside[at] if at < shared else level.reducing))
        rising.append((level.seconds * (1 - 1 / level.parts), 1.0))
        if kept:
            slope = 1 - level.seconds / (kept * level.parts)
            (falling if slope < 0 else rising).append((level.seconds, slope))
    found = max(start + slope * least for start, slope in rising)
    for (low, up), (high, down) in product(rising, falling):
        x = (high - low) / (up - down)
        if x > least:
            found = max(found, low + up * x)
    return found
