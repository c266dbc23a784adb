"""The least time of all layouts of a function, by trying all: for functions of a few steps."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.layout import DistType
from collir.synthesis.propagation.graph import Layout, Relation, Tensor, TensorGraph
from collir.synthesis.propagation.moves import Moves
from collir.synthesis.propagation.rewrite import with_layout
from collir.synthesis.propagation.work import DeviceWork
from collir.synthesis.sharding.factors import Costs
from collir.synthesis.sharding.ways import StepWay, Ways

MOST = 10_000_000
"""The most combinations of ways that are tried."""


def least_of_all(function: FuncOp) -> float:
    """Return the least time of all combinations of ways and layouts, added up step by step."""
    return _All(function).least()


class _Edge(NamedTuple):
    """A tensor that is brought to another one as it is, or is its stack or its slice."""

    first: Tensor
    last: Tensor
    relation: Relation

    def need(self, layout: Layout) -> Layout:
        """Return the layout of the first tensor where the last one has this layout."""
        more = len(self.last.shape) - len(self.first.shape)
        return layout[1:] if more > 0 else ((), *layout) if more < 0 else layout

    @property
    def times(self) -> float:
        slices = len(self.last.shape) < len(self.first.shape)
        return self.relation.times / (self.first.shape[0] if slices else 1)


_Need = tuple[Tensor, Layout, float]
"""A tensor, a layout in which a step takes it, and the times that it is brought there."""


class _Asked(NamedTuple):
    """What a step asks of tensors.

    Attributes:
        needs: the operands.
        left: the result as the step leaves it, and how often it is brought to its layout.
        before: the result of the next addend, and the result as this one is left.
    """

    needs: frozenset[_Need]
    left: tuple[tuple[Tensor, DistType, float], ...]
    before: tuple[tuple[Tensor, DistType], ...]


class _All:
    def __init__(self, function: FuncOp):
        self.graph = TensorGraph.build(function)
        mesh = self.graph.mesh
        self.work = DeviceWork(function, mesh)
        self.moves = Moves(mesh, CostModel())
        self.ways = Ways(mesh, self.work, self.moves.seconds)
        self.steps = [relation for relation in self.graph.relations if relation.op is not None]
        self.edges = [
            _Edge(relation.members[0], relation.members[-1], relation)
            for relation in self.graph.relations
            if relation.op is None
        ]
        self.parts = list(self._parts())
        self.next = {after.before: after for after in self.steps if after.before is not None}

    def _parts(self) -> Iterator[list[Tensor]]:
        """Yield the tensors whose best layouts depend on each other where all ways are known."""
        group = {tensor: {tensor} for tensor in self.graph.tensors}
        for edge in self.edges:
            together = group[edge.first] | group[edge.last]
            group.update((tensor, together) for tensor in together)
        while group:
            _, together = group.popitem()
            yield sorted(together, key=lambda tensor: tensor.number)
            for tensor in together:
                _ = group.pop(tensor, None)

    def least(self) -> float:
        """Return the least time: an array has that of each combination of ways, with the layouts
        that are best for it."""
        listed = [self.ways.of(relation) for relation in self.steps]
        count = math.prod(map(len, listed))
        assert count <= MOST, f"{count} combinations"
        total = np.zeros([len(ways) for ways in listed])
        for number, (relation, ways) in enumerate(zip(self.steps, listed, strict=True)):
            seconds = np.array([way.seconds for way in ways]) * relation.times
            total += seconds.reshape([-1 if n == number else 1 for n in range(total.ndim)])
        for part in self.parts:
            total += self._table(part, listed)
        return float(total.min())

    def _table(self, part: Sequence[Tensor], listed: Sequence[Sequence[StepWay]]) -> Costs:
        """Return the least times in which some tensors are brought where steps need them, for each
        combination of ways; ways of a step that ask the same of the tensors are one."""
        kinds: list[dict[_Asked, int]] = []
        for relation, ways in zip(self.steps, listed, strict=True):
            asked = dict.fromkeys(self._asked(part, relation, way) for way in ways)
            kinds.append({each: number for number, each in enumerate(asked)})
        each = [self._least_of_part(part, asked) for asked in itertools.product(*kinds)]
        table = np.array(each).reshape([len(kind) for kind in kinds])
        for number, (relation, ways) in enumerate(zip(self.steps, listed, strict=True)):
            if len(kinds[number]) > 1:
                chosen = [kinds[number][self._asked(part, relation, way)] for way in ways]
                table = table.take(chosen, axis=number)
        return table

    def _asked(self, part: Sequence[Tensor], relation: Relation, way: StepWay) -> "_Asked":
        """Return what a step asks of some tensors if it runs in a way."""
        needs = frozenset(
            (tensor, there, float(relation.times))
            for tensor, there in zip(relation.members[:-1], way.needs, strict=True)
            if tensor in part and not tensor.made
        )
        result = relation.members[-1]
        left = ((result, way.left, float(relation.times)),) if result in part else ()
        after = self.next.get(relation)
        own = after.members[-1] if after else None
        takes = own is not None and own in part and way.left.partial
        before = ((own, way.left),) if own is not None and takes else ()
        return _Asked(needs, left, before)

    def _least_of_part(self, part: Sequence[Tensor], asked: Sequence["_Asked"]) -> float:
        """Return the least time of all layouts of some tensors for what steps ask of them."""
        best = float("inf")
        needs = frozenset[_Need]().union(*(each.needs for each in asked))
        left = [one for each in asked for one in each.left]
        before = dict(one for each in asked for one in each.before)
        left = [one for one in left if before.get(one[0]) != one[1]]  # reduced with the one before
        edges = [edge for edge in self.edges if edge.first in part]
        stacks = {edge.last for edge in edges if len(edge.last.shape) > len(edge.first.shape)}
        for layouts in itertools.product(*map(self.ways.layouts, part)):
            own = dict(zip(part, layouts, strict=True))
            if any(own[x][0] for x in stacks if x.layout is None):
                continue
            wanted = needs.union(
                (edge.first, edge.need(own[edge.last]), edge.times)
                for edge in edges
                if not edge.first.made
            )
            total = sum(n * self._seconds(x, before, own[x]) for x, before, n in left)
            for x, there, times in wanted:
                total += times * self._seconds(x, with_layout(x.type, own[x]), there)
            best = min(best, total)
        return best

    def _seconds(self, tensor: Tensor, x: DistType, to: Layout) -> float:
        price = self.moves.split if self.work.is_inside(tensor.value) else self.moves.seconds
        return price(x, with_layout(tensor.type, to))
