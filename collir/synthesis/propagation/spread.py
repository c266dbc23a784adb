"""The spreading of layouts: from tensors with written types, along relations, to the other tensors.

If all members of a relation with a layout agree on an index, the others follow. The types of inputs
spread first, then the types of weights, then the types of states, so that computations stay where
their inputs are; over some sub-axes, weights may go first. Layouts spread along maps first. An
index that members want over different sub-axes, or two indices over the same one, are a conflict.
Time settles a conflict when nothing else spreads, and only for a member without a layout.
"""

from collections.abc import Collection, Iterator

from collir.ir.roles import Role
from collir.layout.structure import REPEATED
from collir.synthesis.propagation.choice import LayoutChoice, Moved, layout_with
from collir.synthesis.propagation.estimate import Estimates
from collir.synthesis.propagation.graph import Layout, Relation, Tensor, TensorGraph

STAGES = 3
"""Inputs, weights, states."""


def stage_of(tensor: Tensor, axis: str, first: Collection[str]) -> int:
    """Return the number of the stage in which a type's use of a sub-axis spreads.

    Args:
        first: the sub-axes over which weights come before inputs.
    """
    match tensor.role:
        case Role.PARAMETER:
            return 0 if axis in first else 1
        case Role.STATE:
            return 2
        case _:
            return 1 if axis in first else 0


class Spreading:
    """The layouts of the tensors of a graph, as far as they are known.

    Attributes:
        layouts: the layout of each tensor, by its number.
        around: the numbers of the relations of each tensor.
        taken: the choices of steps that share moves of operands.
    """

    def __init__(self, graph: TensorGraph, estimates: Estimates, first: Collection[str] = ()):
        self.graph, self.estimates, self.first = graph, estimates, first
        self.layouts: list[Layout] = [
            tensor.layout or ((),) * len(tensor.shape) for tensor in graph.tensors
        ]
        self._stage = 0
        self.around: list[list[int]] = [[] for _ in graph.tensors]
        for number, relation in enumerate(graph.relations):
            for tensor in relation.members:
                self.around[tensor.number].append(number)
        self.taken: dict[Relation, LayoutChoice] = {}
        self._waiting: tuple[dict[int, None], ...] = ({}, {}, {})

    def run(self) -> None:
        """Spread the layouts of all types."""
        for self._stage in range(STAGES):
            self._wake(range(len(self.graph.relations)))
            self._settle()
            while (conflict := self._conflict()) is not None:
                relation, choice = conflict
                for tensor, over in zip(relation.members, relation.indices, strict=True):
                    self._follow(tensor, layout_with(over, choice.axes))
                self._settle()

    def _wake(self, numbers: Collection[int]) -> None:
        """Look at relations again: first at maps, then at indices that operands share with the
        result, and last at indices that only operands share."""
        for number in numbers:
            levels = (0,) if self.graph.relations[number].passes_all else (1, 2)
            for level in levels:
                self._waiting[level][number] = None

    def _settle(self) -> None:
        """Spread until nothing changes."""
        while (level := next((n for n, x in enumerate(self._waiting) if x), None)) is not None:
            number = next(iter(self._waiting[level]))
            del self._waiting[level][number]
            relation = self.graph.relations[number]
            agreed = self._agreed(relation)
            if level == 1:
                agreed = {x: axes for x, axes in agreed.items() if x in relation.indices[-1]}
            for tensor, over in zip(relation.members, relation.indices, strict=True):
                self._follow(tensor, layout_with(over, agreed))

    def _follow(self, tensor: Tensor, wanted: Layout) -> None:
        """Shard the dimensions of a tensor as wanted, where that is possible.

        Weights do not follow their states: computations would have to gather them.
        """
        if tensor.layout is not None or (self._stage == 2 and tensor.role is Role.PARAMETER):
            return
        layout = list(self.layouts[tensor.number])
        for dim, axes in enumerate(wanted):
            if self._may(tensor, layout, dim, axes):
                layout[dim] = axes
        if tuple(layout) != self.layouts[tensor.number]:
            self.layouts[tensor.number] = tuple(layout)
            self._wake(self.around[tensor.number])

    def _may(
        self, tensor: Tensor, layout: list[tuple[str, ...]], dim: int, axes: tuple[str, ...]
    ) -> bool:
        """Return whether a dimension of a tensor can also be sharded over some sub-axes."""
        own = layout[dim]
        used = {axis for other, over in enumerate(layout) if other != dim for axis in over}
        more = len(axes) > len(own) and axes[: len(own)] == own
        return more and used.isdisjoint(axes) and self.estimates.divides(tensor.shape[dim], axes)

    def _wishes(self, relation: Relation) -> dict[str, list[tuple[str, ...]]]:
        """Return the different sub-axes over which the members of a relation have each index."""
        wishes: dict[str, list[tuple[str, ...]]] = {}
        for tensor, over in zip(relation.members, relation.indices, strict=True):
            for index, axes in zip(over, self.layouts[tensor.number], strict=True):
                if not axes or index == REPEATED or index in relation.blocked:
                    continue
                if tensor.layout is not None:
                    stages = [stage_of(tensor, axis, self.first) for axis in axes]
                    if max(stages) > self._stage:
                        continue
                known = wishes.setdefault(index, [])
                if axes not in known:
                    known.append(axes)
        return wishes

    def _agreed(self, relation: Relation) -> dict[str, tuple[str, ...]]:
        """Return the sub-axes of the indices on which the members of a relation agree."""
        longest: dict[str, tuple[str, ...]] = {}
        for index, wishes in self._wishes(relation).items():
            most = max(wishes, key=len)
            if all(most[: len(axes)] == axes for axes in wishes):
                longest[index] = most
        indices_of: dict[str, int] = {}
        for axes in longest.values():
            for axis in axes:
                indices_of[axis] = indices_of.get(axis, 0) + 1
        return {
            index: axes
            for index, axes in longest.items()
            if all(indices_of[axis] == 1 for axis in axes)
        }

    def _conflict(self) -> tuple[Relation, LayoutChoice] | None:
        """Return the first relation with a conflict that a member without a layout waits for, with
        the choice that settles it."""
        for relation in self.graph.relations:
            wishes = self._wishes(relation)
            if not wishes or len(wishes) == len(self._agreed(relation)):
                continue
            layouts = tuple(
                None if self._waits(tensor, over, wishes) else self.layouts[tensor.number]
                for tensor, over in zip(relation.members, relation.indices, strict=True)
            )
            if None not in layouts:
                continue
            for choice in self.estimates.choices(relation, layouts):
                if self._changes(relation, choice):
                    return relation, choice
                break
        return None

    def _waits(
        self, tensor: Tensor, over: tuple[str, ...], wishes: dict[str, list[tuple[str, ...]]]
    ) -> bool:
        """Return whether a dimension of a tensor could be sharded as some member wishes."""
        layout = list(self.layouts[tensor.number])
        return tensor.layout is None and any(
            self._may(tensor, layout, dim, axes)
            for dim, index in enumerate(over)
            for axes in wishes.get(index, ())
        )

    def _changes(self, relation: Relation, choice: LayoutChoice) -> bool:
        """Return whether a choice shards a dimension of a member more."""
        return any(
            tensor.layout is None
            and any(
                self._may(tensor, list(self.layouts[tensor.number]), dim, axes)
                for dim, axes in enumerate(layout_with(over, choice.axes))
            )
            for tensor, over in zip(relation.members, relation.indices, strict=True)
        )

    # --- what it costs ------------------------------------------------------------------------

    def choices(self, relation: Relation) -> list[LayoutChoice]:
        """Return the choices of a step in the layouts of its members, the one to take first."""
        layouts = tuple(self.layouts[tensor.number] for tensor in relation.members)
        choices = self.estimates.choices(relation, layouts)
        if (taken := self.taken.get(relation)) is None:
            return choices
        return [taken, *(choice for choice in choices if choice is not taken)]

    def best(self, relation: Relation) -> LayoutChoice:
        """Return the choice of a step in the layouts of its members."""
        return self.choices(relation)[0]

    def seconds(self) -> float:
        """Return the time of the whole program, each move counted once."""
        total = 0.0
        moved: dict[Moved, float] = {}
        for relation in self.graph.relations:
            choice = self.best(relation)
            total += relation.times * (choice.seconds - choice.moves)
            moved |= choice.moves_of(relation)
        return total + sum(moved.values())

    def divided(self) -> Iterator[Relation]:
        """Yield the steps that need an index whole along which their largest tensor is sharded."""
        for relation in self.graph.relations:
            if relation.op is None or not relation.blocked:
                continue
            largest = max(tensor.bytes for tensor in relation.members)
            for tensor, over in zip(relation.members, relation.indices, strict=True):
                pairs = zip(over, self.layouts[tensor.number], strict=True)
                sharded = any(axes and index in relation.blocked for index, axes in pairs)
                if sharded and tensor.bytes == largest:
                    yield relation
                    break
