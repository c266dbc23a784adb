"""How long a step takes in a layout, roughly: what a layout of its operands and its result would
send, and what a device computes.

One number decides between layouts, so it is simple: a collective over a sub-axis takes the bytes
that a device receives at the bandwidth of its level, and a computation the longer of its operations
at the peak rate and its bytes at the bandwidth of memory. Latencies are not counted, so that the
layouts of a program do not change where it is small. What it costs in the end is for the cost
models.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product

from collir.layout import Mesh
from collir.layout.cuts import units
from collir.layout.structure import REPEATED, Structure
from collir.synthesis.propagation.graph import Layout, Relation

_PORT, _RATE, _MEMORY = 100e9, 100e12, 1e12
"""The rates of a machine that does not say them: bytes/s, operations/s, bytes/s."""

Assignment = Mapping[str, tuple[str, ...]]
"""The sub-axes of every index of a relation."""


@dataclass(frozen=True)
class Choice:
    """The layouts in which a step may run.

    Attributes:
        axes: the sub-axes of the indices that are sharded.
        seconds: the time of the step, and of bringing operands and result there and back.
        moves: the part of it in which operands are brought.
    """

    axes: Assignment
    seconds: float
    moves: float

    def summed(self, relation: Relation) -> frozenset[str]:
        """Return the sub-axes of the indices that the result lacks."""
        return summed(relation, self.axes)


class Estimates:
    """Times on a mesh."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self._moves: dict[tuple[object, ...], float] = {}
        self._choices: dict[tuple[object, ...], list[Choice]] = {}

    @cached_property
    def _links(self) -> dict[str, tuple[int, float]]:
        """For every sub-axis, its size, and the bandwidth of its level for each device."""
        levels = {level.name: level for level in self.mesh.machine.levels}
        links: dict[str, tuple[int, float]] = {}
        for name, sub in self.mesh.by_name.items():
            level = levels.get(sub.level or "")
            links[name] = (sub.size, (level.port if level else _PORT) / self._sharing(name))
        return links

    def _sharing(self, name: str) -> int:
        """Return the number of devices behind a port of the level of a sub-axis."""
        sub, levels = self.mesh.by_name[name], self.mesh.machine.levels
        names = [level.name for level in levels]
        if sub.level not in names:
            return 1
        return math.prod(level.size for level in levels[names.index(sub.level) + 1 :])

    def divides(self, size: int, axes: tuple[str, ...]) -> bool:
        """Return whether a dimension can be sharded over sub-axes."""
        return not axes or size % units(self.mesh, axes) == 0

    def blocks(self, axes: Collection[str]) -> int:
        """Return the number of blocks of a dimension that is sharded over sub-axes."""
        return math.prod(self._links[axis][0] for axis in axes)

    # --- collectives --------------------------------------------------------------------------

    def move(
        self, size: int, before: Layout, after: Layout, partial: frozenset[str] = frozenset()
    ) -> float:
        """Return the time to bring a tensor from a layout to another, in seconds.

        Args:
            size: the bytes of the whole tensor.
            partial: the sub-axes over which it is to be reduced.
        """
        if before == after and not partial:
            return 0.0
        key = (size, before, after, partial)
        if key not in self._moves:
            self._moves[key] = sum(self._collectives(size, before, after, partial))
        return self._moves[key]

    def _collectives(
        self, size: int, before: Layout, after: Layout, partial: frozenset[str]
    ) -> Iterator[float]:
        """Yield the times of the collectives: those that make a tensor smaller come first.

        They take the fast sub-axes first where a tensor gets smaller, and last where it gets larger
        again, as programs of steps over single levels do. An ``all_reduce`` is both.
        """
        old = {axis: dim for dim, axes in enumerate(before) for axis in axes}
        new = {axis: dim for dim, axes in enumerate(after) for axis in axes}
        local = part = size / self.blocks(old)
        for axis in self._fast_first:
            if axis in partial:  # reduce_scatter, or that and an all_gather: all_reduce
                yield self._time(axis, part, 1 if axis in new else 2)
            if axis in partial or (axis in new and axis not in old):
                part /= self._links[axis][0]
            if axis in new and axis not in old:
                local /= self._links[axis][0]
        for axis, dim in old.items():
            if new.get(axis, dim) != dim:  # all_to_all
                yield self._time(axis, local, 1)
        if any(sorted(x) == sorted(y) and x != y for x, y in zip(before, after, strict=True)):
            yield self._time(next(iter(old)), local, 1)  # permute
        for axis in reversed(self._fast_first):
            if axis in old and axis not in new:  # all_gather
                local *= self._links[axis][0]
                yield self._time(axis, local, 1)

    @cached_property
    def _fast_first(self) -> list[str]:
        """The sub-axes, those of the largest bandwidth first; of equal ones, the innermost."""
        innermost_first = [*self.mesh.by_name][::-1]
        return sorted(innermost_first, key=lambda axis: -self._links[axis][1])

    def _time(self, axis: str, size: float, rounds: int) -> float:
        """Return the time of a ring over a sub-axis: ``rounds (n - 1) / n`` of some bytes."""
        n, port = self._links[axis]
        return rounds * (n - 1) / n * size / port

    # --- steps --------------------------------------------------------------------------------

    def choices(self, relation: Relation, layouts: tuple[Layout | None, ...]) -> list[Choice]:
        """Return the layouts in which a step may run, the fastest first.

        Args:
            layouts: those of its members; None for one that is free.
        """
        key = (*self._signature(relation), layouts)
        if key not in self._choices:
            listed = [
                self._choice(relation, layouts, axes)
                for axes in self._assignments(relation, layouts)
            ]
            self._choices[key] = sorted(listed, key=lambda choice: float(f"{choice.seconds:.6g}"))
        return self._choices[key]

    def _signature(self, relation: Relation) -> tuple[object, ...]:
        op = relation.op
        members = tuple((x.shape, x.type.dtype, x.made, x.uses) for x in relation.members)
        return (op and op.name, relation.indices, relation.blocked, relation.addends, members)

    def _assignments(
        self, relation: Relation, layouts: tuple[Layout | None, ...]
    ) -> Iterator[Assignment]:
        """Yield the sub-axes that the indices of a relation may have, of those in its layouts: an
        index on which all agree, and over sub-axes that no other index wants, is sharded."""
        options: dict[str, dict[tuple[str, ...], None]] = {i: {} for i in relation.sizes}
        for over, layout in zip(relation.indices, layouts, strict=True):
            for index, axes in zip(over, layout or (), strict=False):
                if axes and index in options and index not in relation.blocked:
                    options[index][axes] = None
        sharded = {index: list(wishes) for index, wishes in options.items() if wishes}
        wanted = [(axis, index) for index, wishes in sharded.items() for x in wishes for axis in x]
        users = Counter(axis for axis, _ in set(wanted))
        for wishes in sharded.values():
            if len(wishes) > 1 or any(users[axis] > 1 for axis in wishes[0]):
                wishes.append(())
        for combination in product(*sharded.values()):
            used = [axis for axes in combination for axis in axes]
            if len(set(used)) == len(used):
                axes = dict(zip(sharded, combination, strict=True))
                yield {index: own for index, own in self._fitting(relation, axes).items() if own}

    def _fitting(self, relation: Relation, axes: Assignment) -> Assignment:
        """Return the part of an assignment by which the dimensions of all members divide."""
        wrong = {
            index
            for member, over in zip(relation.members, relation.indices, strict=True)
            for index, size in zip(over, member.shape, strict=True)
            if not self.divides(size, axes.get(index, ()))
        }
        return {index: own for index, own in axes.items() if index not in wrong}

    def _choice(
        self, relation: Relation, layouts: tuple[Layout | None, ...], axes: Assignment
    ) -> Choice:
        """Return the choice of a step whose indices are sharded so."""
        needed = [layout_with(over, axes) for over in relation.indices]
        seconds, moves = self._computes(relation, needed, axes), 0.0
        for member, own, there in zip(relation.members[:-1], layouts[:-1], needed, strict=False):
            if own is not None and not member.made:
                # It is brought there once for all that need it so.
                moves += self.move(relation.bytes_of(member), own, there) / max(1, member.uses)
        result, own, there = relation.members[-1], layouts[-1], needed[-1]
        partial = summed(relation, axes)
        if own is None and partial:  # someone has to reduce it
            own = there
        if own is not None:
            shared = relation.addends if partial else 1
            seconds += self.move(relation.bytes_of(result), there, own, partial) / shared
        return Choice(axes, seconds + moves, moves)

    def _computes(self, relation: Relation, needed: list[Layout], axes: Assignment) -> float:
        """Return the time of the computation alone."""
        op = relation.op
        if op is None or op.kind.is_view or not relation.members[:-1]:
            return 0.0
        device = self.mesh.machine.slowest
        rates = dict(device.compute) if device else {}
        dtype = relation.members[0].type.dtype
        rate = rates.get(dtype.value, next(iter(rates.values()), _RATE))
        memory = (device and device.memory_bandwidth) or _MEMORY
        moved = sum(
            member.bytes / self.blocks([axis for dim in layout for axis in dim])
            for member, layout in zip(relation.members, needed, strict=True)
        )
        return max(self._operations(relation, axes) / rate, moved / memory)

    def _operations(self, relation: Relation, axes: Assignment) -> float:
        assert relation.op is not None
        structure = relation.op.structure
        if not isinstance(structure, Structure):
            return 0.0
        points = math.prod(
            size / self.blocks(axes.get(index, ()))
            for index, size in relation.sizes.items()
            if index not in structure.selected
        )
        return structure.flops * points


def layout_with(over: tuple[str, ...], axes: Assignment) -> Layout:
    """Return the layout of a member whose dimensions run over some indices."""
    return tuple(() if index == REPEATED else axes.get(index, ()) for index in over)


def summed(relation: Relation, axes: Assignment) -> frozenset[str]:
    """Return the sub-axes of the indices that the result of a relation lacks."""
    lacking = (own for index, own in axes.items() if index not in relation.indices[-1])
    return frozenset(chain.from_iterable(lacking))
