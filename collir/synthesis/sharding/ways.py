"""The ways in which a step may run, and their costs.

A way gives the sub-axes over which each index of a step is sharded; it follows from the index
structure alone. It determines the layouts of the step's operands and of its result. A composite
step may also be divided along dimensions that it needs whole. It then runs as the steps of its
expansion, with the collectives between them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, LayoutError, Mesh, Reduction
from collir.layout.cuts import undefined_cut, units
from collir.layout.structure import REPEATED
from collir.synthesis.propagation.choice import (
    Assignment,
    layout_with,
    properties_in,
    summed,
    with_layout,
)
from collir.synthesis.propagation.graph import Layout, Relation, Tensor
from collir.synthesis.propagation.work import DeviceWork, StepTimes
from collir.transforms.expansion import expansion_on

Move = Callable[[DistType, DistType], float]
"""A function from two types of a value to the seconds that bring it from one to the other."""


Decided = tuple[tuple[str, str | None], ...]
"""Sub-axes, each with the index or the dimension that it shards; None: it shards none."""


@dataclass(frozen=True)
class StepWay:
    """A way to run a step.

    Attributes:
        axes: the sub-axes of its indices.
        needs: the layouts in which it takes its operands.
        left: the type of its result, before it is brought to its layout.
        times: the time of the step alone, once, at each place.
        seconds: the longest of these; for an expanded composite, with its collectives.
    """

    axes: Assignment
    needs: tuple[Layout, ...]
    left: DistType
    times: StepTimes
    seconds: float


class Ways:
    """The layouts of tensors and the ways of steps on a mesh.

    An index or a dimension that is sharded over several sub-axes has them in the order of the mesh.
    """

    def __init__(self, mesh: Mesh, work: DeviceWork, move: Move | None = None):
        """Set up the ways on a mesh.

        Args:
            move: the time of the collectives of expansions; None: no composite is expanded.
        """
        self.mesh, self.work, self.move = mesh, work, move
        self._known: dict[object, list[StepWay]] = {}
        self._layouts: dict[object, list[Layout]] = {}

    def layouts(self, tensor: Tensor) -> list[Layout]:
        """Return the layouts that a tensor may have: the one that its type gives, or all."""
        if tensor.layout is not None:
            return [tensor.layout]
        decided = self._decided(tensor)
        key = (tensor.shape, decided)
        if key not in self._layouts:
            sizes = {str(d): size for d, size in enumerate(tensor.shape)}
            self._layouts[key] = [
                tuple(axes.get(d, ()) for d in sizes)
                for axes in self._assignments(sizes, decided)
                if self._divide(sizes, axes)
            ]
        return self._layouts[key]

    def of(self, relation: Relation) -> list[StepWay]:
        """Return the ways of a step: sub-axes for its indices by which all members divide.

        Raises:
            DiagnosticError: it computes, and a device has no rate.
        """
        op = relation.op
        assert op is not None
        types = tuple(member.type for member in relation.members)
        key = (types, relation.indices, op.name, tuple(op.properties.items()), self.work.key(op))
        key += (self._decided(relation),)
        if key not in self._known:
            self._known[key] = list(self._ways(relation))
        return self._known[key]

    def _ways(self, relation: Relation) -> Iterator[StepWay]:
        sizes = {i: n for i, n in relation.sizes.items() if self._may_divide(relation, i)}
        for axes in self._assignments(sizes, self._decided(relation)):
            if all(
                self._divide(dict(zip(over, member.shape, strict=True)), axes)
                for member, over in zip(relation.members, relation.indices, strict=True)
            ):
                try:
                    yield self._way(relation, axes)
                except LayoutError:
                    continue

    def _may_divide(self, relation: Relation, index: str) -> bool:
        """Return whether an index of a step may be sharded: one that the step needs whole only if
        it is expanded."""
        op = relation.op
        expands = self.move is not None and op is not None and op.kind.expansion is not None
        return expands or index not in relation.blocked

    def _way(self, relation: Relation, axes: Assignment) -> StepWay:
        needs = tuple(layout_with(over, axes) for over in relation.indices[:-1])
        layout = layout_with(relation.indices[-1], axes)
        op, result = relation.op, with_layout(relation.members[-1].type, layout)
        assert op is not None
        over = summed(relation, axes)
        types = [
            with_layout(member.type, own)
            for member, own in zip(relation.members[:-1], needs, strict=True)
        ]
        properties = properties_in(op, layout, types, over)
        try:
            times = self.work.times(op, types, properties)
        except LayoutError:
            if self.move is None or op.kind.expansion is None:
                raise
            times, sent = self._expanded(op, types, result)
            return StepWay(axes, needs, result, times, self.work.seconds(times) + sent)
        structure = op.structure
        reduction = structure.reduction if structure else None
        left = _summed(result, self.mesh.ordered(over), reduction)
        if times.result != left:  # an index that only the result has is not cut
            raise LayoutError(f"the result is {times.result}, not {left}")
        return StepWay(axes, needs, left, times, self.work.seconds(times))

    def _expanded(
        self, op: DistOp, types: Sequence[DistType], to: DistType
    ) -> tuple[StepTimes, float]:
        """Return the times of the steps of a composite operation on operands of some types, and
        that of the collectives between them.

        Raises:
            LayoutError: the steps are not well typed, or their result is of another type.
        """
        assert self.move is not None
        block, result = expansion_on(op, self.mesh, types)
        if not result.agrees(to):
            raise LayoutError(f"the result is {result}, not {to}")
        self.work.add(block)
        places, sent = np.zeros(len(self.work.places)), 0.0
        for step in block.ops:
            assert isinstance(step, DistOp)
            before = [dist_type(x) for x in step.operands]
            if step.kind.layout_only:
                sent += self.move(before[0], dist_type(step.result))
            else:
                places += self.work.times(step, before, dict(step.properties)).places
        axes = frozenset(axis for x in (*types, to) for axis in x.axes)
        return StepTimes(tuple(places.tolist()), axes, to), sent

    def _decided(self, what: Relation | Tensor) -> Decided:
        """Return the decided sub-axes, each with the index that it shards, or None."""
        return ()

    def _assignments(
        self, sizes: dict[str, int], decided: Decided
    ) -> Iterator[dict[str, tuple[str, ...]]]:
        names = [index for index, size in sizes.items() if size > 1 and index != REPEATED]
        known = {axis: (index,) for axis, index in decided}
        for chosen in product(*(known.get(axis, (None, *names)) for axis in self.mesh.by_name)):
            axes: dict[str, tuple[str, ...]] = {}
            for axis, index in zip(self.mesh.by_name, chosen, strict=True):
                if index is not None:
                    axes[index] = (*axes.get(index, ()), axis)
            yield axes

    def _divide(self, sizes: dict[str, int], axes: Assignment) -> bool:
        return all(
            undefined_cut(self.mesh, own) is None and sizes.get(i, 0) % units(self.mesh, own) == 0
            for i, own in axes.items()
            if own
        )


def _summed(x: DistType, axes: Sequence[str], reduction: Reduction | None) -> DistType:
    """Return a type that is partial over sub-axes."""
    if not axes:
        return x
    return replace(x, partial=frozenset(axes), reduction=reduction or Reduction.SUM)
