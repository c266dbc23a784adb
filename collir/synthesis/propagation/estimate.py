"""The time of a step in a layout: sends, copies and computation, as a simulation counts them.

Missing rates of a machine are filled in, so that layouts can be compared on any machine.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain, product

from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.layout import Dim, DistType, DType, Mesh, Reduction
from collir.layout.cuts import is_even, units
from collir.layout.mesh import Factor
from collir.machine import Device, Level
from collir.synthesis.propagation.choice import (
    Assignment,
    LayoutChoice,
    layout_with,
    properties_in,
    summed,
    with_layout,
)
from collir.synthesis.propagation.graph import Layout, Relation, Tensor
from collir.synthesis.propagation.moves import IMPOSSIBLE, Moves
from collir.synthesis.propagation.work import DeviceWork

_UNSAID = Device(tuple((x.value, 100e12) for x in DType), memory_bandwidth=1e12)
"""Rates of a device where a machine does not name them."""

_NOTHING: frozenset[str] = frozenset()


class Estimates:
    """Times of the steps of a function on its mesh."""

    def __init__(self, function: FuncOp, mesh: Mesh):
        self.mesh = _with_rates(mesh)
        self._moves = _moves_on(_with_levels(self.mesh))
        self._work = DeviceWork(function, self.mesh)
        self._known: dict[tuple[object, ...], float] = {}
        self._number: dict[Relation, int] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._choices: dict[tuple[int, tuple[Layout | None, ...]], list[LayoutChoice]] = {}

    def divides(self, size: int, axes: tuple[str, ...]) -> bool:
        """Return whether a dimension can be sharded over sub-axes."""
        return not axes or size % units(self.mesh, axes) == 0

    def blocks(self, axes: Collection[str]) -> int:
        """Return the number of blocks of a dimension that is sharded over sub-axes."""
        return self.mesh.group_size(axes)

    def move(
        self,
        x: DistType,
        before: Layout,
        after: Layout,
        partial: frozenset[str] = _NOTHING,
        reduction: Reduction | None = None,
    ) -> float:
        """Return the time to bring a value from a layout to another, in seconds.

        Args:
            partial: the sub-axes over which it is to be reduced.
        """
        if before == after and not partial:
            return 0.0
        key = (x, before, after, partial, reduction)
        if key not in self._known:
            there = with_layout(x, after)
            own = replace(with_layout(x, before), partial=partial, reduction=reduction)
            self._known[key] = self._moves.seconds(self._on_levels(own), self._on_levels(there))
        return self._known[key]

    def _on_levels(self, x: DistType) -> DistType:
        """Return a type on the mesh whose axes are on levels."""
        if self.mesh.placed:
            return x
        dims = tuple(Dim(dim.size, tuple(map(_level_of, dim.axes))) for dim in x.dims)
        return replace(x, dims=dims, partial=frozenset(map(_level_of, x.partial)))

    def moved(self, relation: Relation, member: Tensor, before: Layout, after: Layout) -> float:
        """Return the seconds to bring an operand of a step to another layout; for a slice, its
        share of the time of the stack. To gather over kept axes is ``IMPOSSIBLE``."""
        if not member.kept.intersection(chain.from_iterable(before)) <= {*chain(*after)}:
            return IMPOSSIBLE
        return self.move(member.type, before, after) / relation.slices_of(member)

    def choices(self, relation: Relation, layouts: tuple[Layout | None, ...]) -> list[LayoutChoice]:
        """Return the layouts in which a step may run, the fastest first.

        Args:
            layouts: the layouts of its members; None for a free one.
        """
        if relation not in self._number:
            signature = self._signature(relation)
            self._number[relation] = self._numbers.setdefault(signature, len(self._numbers))
        key = (self._number[relation], layouts)
        if key not in self._choices:
            listed = [
                self._choice(relation, layouts, axes)
                for axes in self._assignments(relation, layouts)
            ]
            self._choices[key] = sorted(listed, key=lambda choice: float(f"{choice.seconds:.6g}"))
        return self._choices[key]

    def _signature(self, relation: Relation) -> tuple[object, ...]:
        """Return everything that the choices of a step depend on."""
        members = tuple((x.type, x.made, x.uses, x.kept) for x in relation.members)
        op = relation.op
        own = op and (op.name, tuple(op.properties.items()), self._work.key(op))
        return (own, relation.indices, relation.blocked, relation.addends, members)

    def _assignments(
        self, relation: Relation, layouts: tuple[Layout | None, ...]
    ) -> Iterator[Assignment]:
        """Yield the sub-axes that the indices of a relation may have, from those in its layouts. An
        index on which all members agree is sharded, if no other index wants its sub-axes."""
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
        """Return the part of an assignment that divides the dimensions of all members; averages
        need equal blocks."""
        wrong = {
            index
            for member, over in zip(relation.members, relation.indices, strict=True)
            for index, size in zip(over, member.shape, strict=True)
            if not self.divides(size, axes.get(index, ()))
        }
        if relation.reduction is Reduction.AVG:
            averaged = {*relation.sizes}.difference(relation.indices[-1])
            wrong |= {x for x in averaged if not is_even(self.mesh, axes.get(x, ()))}
        return {index: own for index, own in axes.items() if index not in wrong}

    def _choice(
        self, relation: Relation, layouts: tuple[Layout | None, ...], axes: Assignment
    ) -> LayoutChoice:
        """Return the choice of a step with an assignment of sub-axes to its indices."""
        needed = [layout_with(over, axes) for over in relation.indices]
        partial = summed(relation, axes)
        seconds, moves = self._computes(relation, needed, partial), 0.0
        brought: dict[tuple[int, Layout], float] = {}
        listed = zip(relation.members[:-1], layouts[:-1], needed, strict=False)
        for place, (member, own, there) in enumerate(listed):
            if own is not None and own != there and not member.made:
                move = self.moved(relation, member, own, there)
                brought[place, there] = move
                # One move serves all steps that need this layout.
                moves += move / max(1, member.uses)
        result, own, there = relation.members[-1], layouts[-1], needed[-1]
        if own is None and partial:  # someone has to reduce it
            own = there
        if own is not None and partial:
            reduction = relation.reduction
            reduces = self.move(result.type, there, own, partial, reduction)
            seconds += reduces / relation.addends
        elif own is not None:
            seconds += self.moved(relation, result, there, own)
        return LayoutChoice(axes, seconds + moves, moves, brought)

    def _computes(self, relation: Relation, needed: list[Layout], partial: frozenset[str]) -> float:
        """Return the time of the computation alone."""
        op = relation.op
        if op is None or op.kind.is_view or not relation.members[:-1]:
            return 0.0
        pairs = zip(relation.members, needed, strict=True)
        *types, _ = [with_layout(member.type, own) for member, own in pairs]
        properties = properties_in(op, needed[-1], types, partial)
        return self._work.seconds(self._work.times(op, types, properties))


@lru_cache(maxsize=8)
def _moves_on(mesh: Mesh) -> Moves:
    """Return the times of moves on a mesh, which functions share."""
    return Moves(mesh, CostModel())


def _with_rates(mesh: Mesh) -> Mesh:
    """Return a mesh whose devices have a rate for everything."""
    machine = mesh.machine
    if machine.device is None and not machine.kinds:
        return replace(mesh, machine=replace(machine, device=_UNSAID))
    return replace(mesh, machine=machine.with_devices(lambda device: device.or_like(_UNSAID)))


def _with_levels(mesh: Mesh) -> Mesh:
    """Return a mesh whose axes are on levels. Each unplaced axis gets a level of its own, as fast
    as the fastest of the machine."""
    if mesh.placed:
        return mesh
    port = max(level.port for level in mesh.machine.levels)
    levels = tuple(Level(axis.name, axis.size, port, 0.0) for axis in mesh.axes)
    machine = replace(mesh.machine.of_kinds(()), levels=levels)
    axes = (replace(axis, factors=(Factor(axis.name, axis.size),)) for axis in mesh.axes)
    return replace(mesh, machine=machine, axes=tuple(axes))


def _level_of(axis: str) -> str:
    """Return the sub-axis of an axis on a level of its own."""
    return f"{axis}.{axis}"
