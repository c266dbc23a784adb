"""Exhaustive search for redistributions: all steps that the typing rules allow, without bounds."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from support.programs.collectives import ordered_lists
from support.synthesis.plain_strategies import LOCAL, dijkstra

from collir.cost.collectives.collective import Collective, LayoutChange
from collir.cost.collectives.uneven import uneven_sizes
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.layout import Dim, DistType, LayoutError, Mesh, rules

FREE = ("slice", "keep_root", "mask")
"""Names of the steps that send nothing."""

OVER = {
    "all_reduce": rules.all_reduce,
    "reduce": rules.reduce,
    "broadcast": rules.broadcast,
    "keep_root": rules.keep_root,
}
OVER_DIM = {
    "reduce_scatter": rules.reduce_scatter,
    "all_gather": rules.all_gather,
    "scatter": rules.scatter,
    "gather": rules.gather,
    "slice": rules.slice,
}


@dataclass(frozen=True)
class Move:
    """A step from one layout to another."""

    kind: str
    axes: tuple[str, ...]
    before: DistType
    after: DistType


@dataclass
class Ordered:
    """The graph of all steps between layouts on a mesh, to a target.

    Attributes:
        memory: maximum bytes of operand and result of a step together.
    """

    mesh: Mesh
    target: DistType
    model: CostModel
    memory: float = math.inf
    _moves: dict[DistType, list[tuple[float, Move]]] = field(
        default_factory=dict[DistType, list[tuple[float, Move]]]
    )

    def moves(self, x: DistType) -> list[tuple[float, Move]]:
        """Return the steps from a layout, with their seconds."""
        if x not in self._moves:
            timed = [(self.seconds(move), move) for move in self._typed(x)]
            self._moves[x] = [(time, move) for time, move in timed if time < math.inf]
        return self._moves[x]

    def _typed(self, x: DistType) -> Iterator[Move]:
        mesh, rank = self.mesh, len(x.dims)
        candidates: list[tuple[str, tuple[str, ...], Callable[[], DistType]]] = []
        for axes in ordered_lists(list(mesh.by_name)):
            for kind, rule in OVER.items():
                candidates.append((kind, axes, lambda r=rule, a=axes: r(mesh, x, a)))
            if (op := self.target.reduction) is not None:
                candidates.append(("mask", axes, lambda a=axes, o=op: rules.mask(mesh, x, a, o)))
            for dim in range(rank):
                for kind, rule in OVER_DIM.items():
                    candidates.append((kind, axes, lambda r=rule, a=axes, d=dim: r(mesh, x, a, d)))
                for to in range(rank):
                    candidates.append(
                        (
                            "all_to_all",
                            axes,
                            lambda a=axes, d=dim, t=to: rules.all_to_all(mesh, x, a, d, t),
                        )
                    )
        for y in self._rearranged(x):
            sharded = {axis for z in (x, y) for dim in z.dims for axis in dim.axes}
            over = mesh.ordered(sharded)
            candidates.append(("permute", over, lambda to=y: rules.permute(mesh, x, to)))
        for kind, axes, rule in candidates:
            try:
                yield Move(kind, axes, x, rule())
            except LayoutError:
                continue

    def _rearranged(self, x: DistType) -> Iterator[DistType]:
        """Yield all layouts that a permute may lead to: those with other shards."""
        free = [axis for axis in self.mesh.by_name if axis not in x.partial | x.placed]
        rank = len(x.dims)
        for places in itertools.product(range(rank + 1), repeat=len(free)):
            lists = [
                [axis for axis, place in zip(free, places, strict=True) if place == dim]
                for dim in range(rank)
            ]
            for orders in itertools.product(*map(itertools.permutations, lists)):
                dims = [Dim(d.size, tuple(o)) for d, o in zip(x.dims, orders, strict=True)]
                y = replace(x, dims=tuple(dims))
                if y != x:
                    yield y

    def seconds(self, move: Move) -> float:
        """Return the seconds of a step; infinite if it has no cost or needs too much memory."""
        x, y, mesh = move.before, move.after, self.mesh
        before, after = x.local_bytes(mesh), y.local_bytes(mesh)
        if before + after > self.memory:
            return math.inf
        if move.kind in FREE:
            return 0.0
        size = float(before if move.kind == "all_to_all" else max(before, after))
        root = x.placed - frozenset(move.axes)
        layouts = LayoutChange(x, y) if move.kind == "permute" else None
        uneven = uneven_sizes(mesh, x, y, None if layouts else move.axes)
        size = uneven.size if uneven else size
        try:
            return step_cost(
                Collective(move.kind, mesh, move.axes, size, root, sent_by=layouts, uneven=uneven),
                self.model,
            ).time
        except CostError:
            return math.inf

    def best(self, source: DistType) -> float:
        """Return the seconds of the cheapest program; infinite if there is none."""
        times = dijkstra(
            {source: 0.0}, lambda x: ((time, move.after) for time, move in self.moves(x))
        )
        return times.get(self.target, math.inf)

    def best_by_few(self, source: DistType) -> float:
        """Return the seconds of the cheapest program in which

        - no sub-axis becomes partial, a sub-axis stays partial or at root once it is so and the
          target has it so, and a gather to a root is only over sub-axes at root in the target;
        - slice and keep_root are only over sub-axes that are sharded or at root in the target, or,
          as first steps, over sub-axes without weights that are replicated at both ends; permutes
          shard only over sub-axes that are sharded in the target.
        """
        sharded = {axis for dim in self.target.dims for axis in dim.axes}
        idle = set(self.mesh.by_name) - {*source.axes, *self.target.axes, *self.mesh.uneven}

        def edges(node: tuple[DistType, bool]) -> Iterator[tuple[float, tuple[DistType, bool]]]:
            x, begun = node
            for time, move in self.moves(x):
                axes = set(move.axes)
                new = {axis for dim in move.after.dims for axis in dim.axes} - {
                    axis for dim in x.dims for axis in dim.axes
                }
                first = move.kind in LOCAL and axes <= idle and not begun
                cuttable = sharded | self.target.placed | (set[str]() if begun else idle)
                allowed = {
                    "mask": False,
                    "slice": axes <= cuttable,
                    "permute": new <= sharded,
                    "keep_root": axes <= cuttable,
                    "gather": axes <= self.target.placed,
                    "broadcast": not axes & self.target.placed,
                    "scatter": not axes & self.target.placed,
                }.get(move.kind, not axes & self.target.partial)
                if allowed:
                    yield time, (move.after, begun or not first)

        times = dijkstra({(source, False): 0.0}, edges)
        return min((time for (x, _), time in times.items() if x == self.target), default=math.inf)
