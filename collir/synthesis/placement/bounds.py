"""Lower bounds on the time of an operation when only the outermost levels are divided among axes.

A child of a level must receive the data that its devices need and do not hold. How each axis is
divided on the other levels is not known, but together the axes fill those levels.
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
"""The factors of every axis on the outermost levels, by the name of the axis."""


class AxesExtent(NamedTuple):
    """The extent of a set of axes on the levels of a partial placement.

    Attributes:
        size: product of the sizes of the axes.
        factors: their product on each level that is divided already.
        least: lower bounds on their product over the outermost 0, 1, 2, ... levels.
        most: upper bounds on the same products.
    """

    size: int
    factors: tuple[int, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]


@dataclass(frozen=True)
class PartialPlacement:
    """A machine whose outermost levels are divided among the axes of a mesh.

    Attributes:
        levels: levels of the machine, outermost first.
        sizes: sizes of the levels, or of the part of them that the mesh uses.
        rows: factors of every axis on the levels that are divided.
        left: size of every axis that is left for the other levels.
        shared: number of levels that are divided.
    """

    levels: tuple[Level, ...]
    sizes: tuple[int, ...]
    rows: Rows
    left: Mapping[str, int]
    shared: int

    @property
    def _free(self) -> list[int]:
        """Number of devices not yet divided on the outermost 0, 1, 2, ... levels."""
        sizes = [1] * self.shared + [*self.sizes[self.shared :]]
        return [*accumulate(sizes, mul, initial=1)]

    @cached_property
    def latencies(self) -> list[float]:
        """Latency of a message between children of each level, with all ports inside it."""
        backwards = accumulate((level.latency for level in reversed(self.levels)), max)
        return [*backwards][::-1]

    def extent(self, axes: Iterable[str]) -> AxesExtent:
        """Return the extent of some axes."""
        left, factors = 1, [1] * self.shared
        for axis in axes:
            left *= self.left[axis]
            factors = [*map(mul, factors, self.rows[axis])]
        ones = [1] * (len(self.sizes) - self.shared)
        known = [*accumulate([*factors, *ones], mul, initial=1)]
        free = self._free
        # The size that is left goes to these levels or to the others, as far as it divides them.
        prefixes = [*zip(known, free, strict=True)]
        least = tuple(n * (left // math.gcd(left, free[-1] // f)) for n, f in prefixes)
        most = tuple(n * math.gcd(left, f) for n, f in prefixes)
        return AxesExtent(known[-1] * left, tuple(factors), least, most)

    def latency(self, extent: AxesExtent) -> float:
        """Return a lower bound on the seconds of latency until all coordinates have communicated.

        Reaching n children of a level, one by one or by doubling, takes at least lg n messages in
        a row. The size that is left is assumed to lie on the levels of lowest latency.
        """
        left = math.log2(extent.size / math.prod(extent.factors))
        seconds = 0.0
        for level, latency in reversed([*enumerate(self.latencies)]):
            if level < self.shared:
                seconds += math.log2(extent.factors[level]) * latency
            else:
                messages = min(left, math.log2(self.sizes[level]))
                seconds, left = seconds + messages * latency, left - messages
        return seconds


class PlacementBounds:
    """Lower bounds for one operation on a mesh without a placement; can be pickled.

    Attributes:
        name: name of the operation; ``position`` is its place in the source.
        source, target: types of its operand and result.
        over: axes that it names; None if it takes no axes.
        searched: whether a cheaper program may replace the operation.
        placeholder: whether the operation is no step, so that a program must replace it.
        arguments: its arguments by name.
        changes: for every axis, its states before and after and whether its dimension changes.
        inert: axes that shard the value, or over which it is partial, both before and after. Only
            the part of each level that the other axes leave to them matters.
        ordered: whether the order of the axes matters: in the layouts of a redistribution, or in
            the groups of a collective that names its algorithm.
    """

    def __init__(self, op: DistOp, mesh: Mesh, model: CostModel):
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        self.name, self.source, self.target, self.position = op.mnemonic, x, y, Position.of(op)
        self.over = op.over if OVER in op.kind.parameters else None
        self.searched, self.placeholder = needs_search(op), op.kind.placeholder
        self.arguments = op.arguments
        self._unordered = is_unordered(x, y)
        self.ordered = not (self.searched and self._unordered)
        self.changes = {
            axis: (x.state_of(axis), y.state_of(axis), x.dim_of(axis) != y.dim_of(axis))
            for axis in mesh.by_name
        }
        unchanged = [("partial", "partial", False), ("sharded", "sharded", False)]
        self.inert = frozenset(axis for axis, change in self.changes.items() if change in unchanged)
        self._with_latency = model.on(mesh.machine).model == "alpha-beta"
        # Sets of axes, by their states before and after the operation
        self._reduced = self._having("partial", "replicated")
        self._summed = self._having("partial", "sharded", "root")
        self._gathered = self._having("sharded", "replicated")
        self._spread = self._having("root", "replicated", "sharded")
        split = ("sharded", "root", "partial")
        self._split = (*self._having("replicated", *split), *self._having("root", *split[::2]))
        idle = (*self._having("replicated", "replicated"), *self._having("root", "replicated"))
        # Axes whose coordinates may hold copies of an element, and share its reduction
        self._helping = (*idle, *self._gathered, *self._split)
        # Axes that move shards to another dimension, and axes whose devices keep different data
        kept = (*self._having("sharded", "sharded"), *self._having("partial", "partial"))
        exchanges = op.kind.exchanges
        self._moved = tuple(axis for axis in kept if exchanges and axis not in self.inert)
        self._distinct = tuple(axis for axis in kept if axis not in self._moved)
        # Axes between whose coordinates messages have to pass
        self._crossed = (*self._reduced, *self._summed, *self._spread)
        if self._unordered:  # otherwise a permute may bring blocks to their places
            self._crossed += (*self._gathered, *self._having("sharded", "root"), *self._moved)
        self._local_bytes = float(x.local_bytes(mesh))
        gathered_size = math.prod(mesh.by_name[axis].size for axis in self._gathered)
        self._gathered_bytes = self._local_bytes * gathered_size
        self._result_bytes = float(y.local_bytes(mesh))

    def _having(self, before: str, *after: str) -> tuple[str, ...]:
        """Return the axes that change from one state to another, by both states."""
        changes = self.changes.items()
        return tuple(axis for axis, (x, y, _) in changes if x == before and y in after)

    def least(self, placement: PartialPlacement) -> float:
        """Return a lower bound in seconds for any program and any completion of a placement.

        Each step takes the latencies of its messages and the time of its bytes through any one
        port.
        """
        distinct = placement.extent(self._distinct)
        per_byte = [
            distinct.size // most / level.fastest
            for most, level in zip(distinct.most[1:], placement.levels, strict=True)
        ]
        crossed = placement.extent(self._crossed)
        latency = placement.latency(crossed) if self._with_latency else 0.0
        receiving = self._receiving(placement, per_byte)
        return max(receiving, self._reducing(placement, per_byte)) + latency

    def _receiving(self, placement: PartialPlacement, per_byte: Sequence[float]) -> float:
        """Return a lower bound in seconds to receive data that a child lacks, without reducing."""
        received: list[Iterable[float]] = []  # bytes through a port of each level
        if self._spread:
            spread = placement.extent(self._spread)
            received.append(self._result_bytes * (n > 1) for n in spread.least[1:])
        if self._gathered:
            gathered = placement.extent(self._gathered)
            split = placement.extent((*self._split, *self._summed, *self._spread))
            shards = zip(gathered.least[1:], split.most[1:], strict=True)
            received.append((1 / n - 1 / m) * self._gathered_bytes for m, n in shards)
        if self._moved:
            moved = placement.extent(self._moved)
            sizes = zip(moved.least[1:], moved.most[1:], strict=True)
            received.append(
                (1 - 1 / n) * self._local_bytes * (moved.size // most) for n, most in sizes
            )
        return max((max(map(mul, sizes, per_byte)) for sizes in received), default=0.0)

    def _reducing(self, placement: PartialPlacement, per_byte: Sequence[float]) -> float:
        """Return a lower bound in seconds to reduce a value, and to send the sum where needed.

        Let n parts of a value have c copies each, of which u are not cut before. Then an element
        takes (n - 1) u messages to reduce and n c - u messages to send the sum to all children; an
        all_reduce counts as half of both. Reducing and sending are different steps, so the times
        of the slowest port for each add up.
        """
        if not self._reduced and not self._summed:
            return 0.0
        parts = placement.extent((*self._reduced, *self._summed)).least[1:]
        copies = placement.extent(self._helping).most[1:]
        levels = [
            PortReduction(self._gathered_bytes * seconds, n, c)
            for seconds, n, c in zip(per_byte, parts, copies, strict=True)
        ]
        if self._summed or self._split:  # some children do not need the sum
            return max(level.reducing for level in levels)
        if not self._unordered:  # copies may be cut later
            return max(level.reducing_and_sending for level in levels)
        return _least_to_reduce_and_send(levels, placement.shared)


class PortReduction(NamedTuple):
    """A reduction through the port of a child of a level.

    Attributes:
        seconds: time of all elements of a child through the port.
        parts: number of children that hold different parts of an element.
        copies: number of children that hold the same part.
    """

    seconds: float
    parts: int
    copies: int

    @property
    def reducing(self) -> float:
        """Seconds to reduce if all copies are cut, so that each copy reduces its share."""
        return self.seconds * (1 - 1 / self.parts) / self.copies

    @property
    def reducing_and_sending(self) -> float:
        """Seconds to reduce and to send the sums through this port alone."""
        children = self.parts * self.copies
        return self.reducing + self.seconds * (1 - 1 / children) if self.parts > 1 else 0.0


def _least_to_reduce_and_send(levels: Sequence[PortReduction], shared: int) -> float:
    """Return the least seconds to reduce and to send the sums, over all choices of cut copies.

    Copies kept on a level exist on all levels inside it too, where each takes as long to reduce as
    a single copy. So if reducing takes x seconds, u / c is at most x / kept, where kept is the time
    to reduce if all copies on the level, or on one outside it, are kept. Sending takes

        max of k (1 - min(1, x / kept) / n),

    where k is the seconds for the elements of a child. With x added this is the maximum of some
    lines. The least x bounds the rising lines; the intersection of a rising and a falling line
    bounds both.
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
    bound = max(start + slope * least for start, slope in rising)
    for (low, up), (high, down) in product(rising, falling):
        x = (high - low) / (up - down)
        if x > least:
            bound = max(bound, low + up * x)
    return bound
