"""Redistributions found the plain way: every step that the typing rules allow, and no bounds."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from plain_strategies import LOCAL, dijkstra
from programs import ordered_lists

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.layout import Dim, DistType, LayoutError, Mesh, rules

FREE = ("slice", "keep_root", "mask")
"""The steps that send nothing."""

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
    """All steps between layouts on a mesh, on the way to one of them."""

    mesh: Mesh
    target: DistType
    model: CostModel
    memory: float = math.inf
    _moves: dict[DistType, list[tuple[float, Move]]] = field(
        default_factory=dict[DistType, list[tuple[float, Move]]]
    )

    def moves(self, x: DistType) -> list[tuple[float, Move]]:
        """The steps from a layout, with their seconds."""
        if x not in self._moves:
            timed = [(self.seconds(move), move) for move in self._typed(x)]
            self._moves[x] = [(time, move) for time, move in timed if time < math.inf]
        return self._moves[x]

    def _typed(self, x: DistType) -> Iterator[Move]:
        mesh, rank = self.mesh, len(x.dims)
        tried: list[tuple[str, tuple[str, ...], Callable[[], DistType]]] = []
        for axes in ordered_lists(list(mesh.by_name)):
            for kind, rule in OVER.items():
                tried.append((kind, axes, lambda r=rule, a=axes: r(mesh, x, a)))
            if (made := self.target.reduction) is not None:
                tried.append(("mask", axes, lambda a=axes, m=made: rules.mask(mesh, x, a, m)))
            for dim in range(rank):
                for kind, rule in OVER_DIM.items():
                    tried.append((kind, axes, lambda r=rule, a=axes, d=dim: r(mesh, x, a, d)))
                for to in range(rank):
                    tried.append(
                        (
                            "all_to_all",
                            axes,
                            lambda a=axes, d=dim, t=to: rules.all_to_all(mesh, x, a, d, t),
                        )
                    )
        for y in self._rearranged(x):
            sharded = {axis for z in (x, y) for dim in z.dims for axis in dim.axes}
            over = mesh.ordered(sharded)
            tried.append(("permute", over, lambda to=y: rules.permute(mesh, x, to)))
        for kind, axes, rule in tried:
            try:
                yield Move(kind, axes, x, rule())
            except LayoutError:
                continue

    def _rearranged(self, x: DistType) -> Iterator[DistType]:
        """All layouts that differ in what is sharded and replicated."""
        free = [axis for axis in self.mesh.by_name if axis not in x.partial | x.root]
        rank = len(x.dims)
        for chosen in itertools.product(range(rank + 1), repeat=len(free)):
            lists = [
                [axis for axis, at in zip(free, chosen, strict=True) if at == dim]
                for dim in range(rank)
            ]
            for orders in itertools.product(*map(itertools.permutations, lists)):
                dims = [Dim(d.size, tuple(o)) for d, o in zip(x.dims, orders, strict=True)]
                y = replace(x, dims=tuple(dims))
                if y != x:
                    yield y

    def seconds(self, move: Move) -> float:
        """What a step takes; inf if the model has no cost for it, or it needs too much memory."""
        x, y, mesh = move.before, move.after, self.mesh
        before, after = x.local_bytes(mesh), y.local_bytes(mesh)
        if before + after > self.memory:
            return math.inf
        if move.kind in FREE:
            return 0.0
        size = float(before if move.kind == "all_to_all" else max(before, after))
        root = x.root - frozenset(move.axes)
        layouts = (x, y) if move.kind == "permute" else None
        try:
            return step_cost(
                Collective(move.kind, mesh, move.axes, size, root, moves=layouts), self.model
            ).time
        except CostError:
            return math.inf

    def best(self, source: DistType) -> float:
        """Seconds of the cheapest program; inf if there is none."""
        found = dijkstra(
            {source: 0.0}, lambda x: ((time, move.after) for time, move in self.moves(x))
        )
        return found.get(self.target, math.inf)

    def best_by_few(self, source: DistType) -> float:
        """That of programs in which

        - nothing becomes partial, what is to be partial or at root stays so once it is, and what is
          sharded is gathered to a root only if it is to be there;
        - what is replicated is cut or dropped only where it is to be sharded or at root, but for
          what is replicated at both ends, before anything else; permutes reach only sub-axes that
          are to be sharded.
        """
        wanted = {axis for dim in self.target.dims for axis in dim.axes}
        idle = set(self.mesh.by_name) - {*source.axes, *self.target.axes}

        def edges(at: tuple[DistType, bool]) -> Iterator[tuple[float, tuple[DistType, bool]]]:
            x, begun = at
            for time, move in self.moves(x):
                axes = set(move.axes)
                new = {axis for dim in move.after.dims for axis in dim.axes} - {
                    axis for dim in x.dims for axis in dim.axes
                }
                first = move.kind in LOCAL and axes <= idle and not begun
                able = wanted | self.target.root | (set[str]() if begun else idle)
                fits = {
                    "mask": False,
                    "slice": axes <= able,
                    "permute": new <= wanted,
                    "keep_root": axes <= able,
                    "gather": axes <= self.target.root,
                    "broadcast": not axes & self.target.root,
                    "scatter": not axes & self.target.root,
                }.get(move.kind, not axes & self.target.partial)
                if fits:
                    yield time, (move.after, begun or not first)

        found = dijkstra({(source, False): 0.0}, edges)
        ends = [time for (x, _), time in found.items() if x == self.target]
        return min(ends, default=math.inf)
