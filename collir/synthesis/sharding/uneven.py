"""The weights of a mesh axis along which devices differ, chosen together with the layouts.

Weights and layouts are found in turns: a search finds the best layouts for some weights, and a
linear program the best shares for these layouts, where each step takes as long as its slowest
device. Shares become weights inside of the objective: the sum of the weights has to divide the
sharded dimensions. So each sum that divides a dimension of the program is tried. Its weights are
given out one by one, each to the coordinate that would end first with one more. The turns end where
no weights are better.

The gain of better weights is estimated by the least time with the best shares for each step alone,
and collectives on equal blocks: ``n`` devices that take ``t_c`` for equal shares take ``n / sum(1 /
t_c)`` for the best ones. This bounds all weights if times are in proportion to shares, and for
dimensions that divide evenly.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from xdsl.dialects.func import FuncOp

from collir.cost.model import CostModel
from collir.layout import Axis, Mesh
from collir.layout.cuts import units
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.propagation.moves import Moves
from collir.synthesis.propagation.work import DeviceWork, SharedWork
from collir.synthesis.searching import Limit
from collir.synthesis.sharding.linear import Vector, minimum
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.solver import VariableValues, least_sum
from collir.synthesis.sharding.ways import Ways

_SUMS, _LARGEST = 8, 16
"""The most sums of weights for some shares, and the largest sum for each coordinate."""

_DIMENSIONS = 4
"""The number of sizes of dimensions that sums of weights divide."""

_TURNS = 6
"""The most turns of layouts and shares."""

_CLOSE = 0.002
"""The part of the time by which other weights have to be better."""


@dataclass(frozen=True)
class Recut:
    """A mesh with weights, and the best layouts on it.

    Attributes:
        axis: the axis with the weights.
        bound: an estimate of the least time with any weights, at most the time with these.
    """

    mesh: Mesh
    axis: Axis
    solution: VariableValues
    bound: float


def unlike_axes(mesh: Mesh) -> list[Axis]:
    """Return the axes along which devices are of different kinds; none if an axis has weights."""
    if mesh.machine.kinds_level is None or not mesh.placed or mesh.uneven:
        return []
    level = mesh.machine.levels[mesh.machine.kinds_level].name
    on_level = [axis for axis in mesh.axes if any(f.level == level for f in axis.factors or ())]
    return [axis for axis in on_level if axis.size > 1]


def with_weights(mesh: Mesh, name: str, weights: Sequence[int]) -> Mesh:
    """Return a mesh whose axis has weights."""
    axes = [axis.weighted(weights) if axis.name == name else axis for axis in mesh.axes]
    return replace(mesh, axes=tuple(axes))


def recut(
    function: FuncOp, graph: TensorGraph, axis: Axis, model: CostModel, limit: Limit
) -> Recut | None:
    """Return the best known weights of an axis, with the layouts that go with them; None if no
    weights are better than equal shares."""
    return _Recutting(function, graph, axis, model, limit).run()


class _Recutting:
    def __init__(
        self, function: FuncOp, graph: TensorGraph, axis: Axis, model: CostModel, limit: Limit
    ):
        self.function, self.graph, self.axis = function, graph, axis
        self.model, self.limit = model, limit
        self.even = graph.mesh
        self.work = DeviceWork(function, self.even)
        self.tried: dict[tuple[int, ...], tuple[Mesh, Sharding, VariableValues]] = {}
        self.equal = self._sharding(self.even, self.work)
        ways = [self.equal.ways[self.equal.variable_of[x]][0] for x in graph.relations if x.op]
        seconds = [sum(way.times.places[n] for way in ways) for n in range(len(self.work.places))]
        self.kind_of = _places_of_coordinates(self.even, axis, self.work, seconds)

    def run(self) -> Recut | None:
        """Take turns, and return the best."""
        best = least_sum(self.equal.sum, self.limit.left, branch=False)
        first, improved = best.sum, None
        bound = self._bound()
        shares = self._shares(self.equal, best)
        for _ in range(_TURNS):
            before = best.sum
            for weights in self._weights(shares):
                mesh, sharding, solution = self._with(weights)
                if solution.sum < best.sum * (1 - _CLOSE):
                    best, improved = solution, (mesh, sharding)
            if best.sum > before * (1 - _CLOSE) or best.sum <= bound * (1 + _CLOSE):
                break
            assert improved is not None
            shares = self._shares(improved[1], best)
        if improved is None or best.sum >= first * (1 - _CLOSE):
            return None
        mesh, _ = improved
        axis = next(axis for axis in mesh.axes if axis.name == self.axis.name)
        return Recut(mesh, axis, best, min(bound, best.sum))

    def _sharding(self, mesh: Mesh, work: DeviceWork) -> Sharding:
        moves = Moves(mesh, self.model)
        ways = Ways(mesh, work, moves.seconds)
        return Sharding(self.graph, ways, moves.seconds, moves.split).tie()

    def _with(self, weights: tuple[int, ...]) -> tuple[Mesh, Sharding, VariableValues]:
        if weights not in self.tried:
            mesh = with_weights(self.even, self.axis.name, weights)
            sharding = self._sharding(mesh, DeviceWork(self.function, mesh))
            solution = least_sum(sharding.sum, self.limit.left, branch=False)
            self.tried[weights] = mesh, sharding, solution
        return self.tried[weights]

    def _bound(self) -> float:
        """Return the least time if every step had the best shares for it alone."""
        axes = frozenset(self.even.of_axis[self.axis.name])
        self.work.shared = SharedWork(axes, self.kind_of)
        sharding = self._sharding(self.even, self.work)
        self.work.shared = None
        return least_sum(sharding.sum, self.limit.left, branch=False).bound

    def _shares(self, sharding: Sharding, solution: VariableValues) -> Vector:
        """Return the best shares of the coordinates for some layouts: they minimise the sum over
        steps of the time of the slowest device."""
        own = set(self.even.of_axis[self.axis.name])
        times: Counter[tuple[float, ...]] = Counter()
        for relation in self.graph.relations:
            way = sharding.way(solution.values, relation) if relation.op else None
            if way is None or own.isdisjoint(a for axes in way.axes.values() for a in axes):
                continue
            ways = self.equal.ways[self.equal.variable_of[relation]]
            listed = next((w.times.places for w in ways if w.axes == way.axes), None)
            if listed is not None:
                times[tuple(listed[place] for place in self.kind_of)] += relation.times
        return _best_shares(times, len(self.kind_of))

    def _weights(self, shares: Vector) -> Iterator[tuple[int, ...]]:
        """Yield weights near some shares, nearest first, with sums that divide dimensions."""
        listed: dict[tuple[int, ...], float] = {}
        for total in self._sums():
            weights = _rounded(shares, total)
            worst = max(w / (total * share) for w, share in zip(weights, shares, strict=True))
            divided = tuple(w // int(np.gcd.reduce(weights)) for w in weights)
            if len(set(divided)) > 1 and self._divides(divided):
                listed[divided] = min(worst, listed.get(divided, worst))
        yield from islice(sorted(listed, key=lambda w: (listed[w], sum(w))), _SUMS)

    def _sums(self) -> list[int]:
        """Return sums of weights that divide the dimensions along which most is computed."""
        work: Counter[int] = Counter()
        for relation in self.graph.relations:
            if relation.op is not None and relation.op.structure is not None:
                points = float(np.prod([float(n) for n in relation.sizes.values()]))
                for index, size in relation.sizes.items():
                    if index not in relation.blocked:
                        work[size] += int(points * relation.times)
        n = self.axis.size
        sizes = [size for size, _ in work.most_common() if size >= 2 * n][:_DIMENSIONS]
        return sorted(
            {d for size in sizes for d in range(n + 1, _LARGEST * n + 1) if size % d == 0}
        )

    def _divides(self, weights: tuple[int, ...]) -> bool:
        """Return whether these weights can cut the layouts that types give."""
        mesh = with_weights(self.even, self.axis.name, weights)
        return all(
            size % units(mesh, axes) == 0
            for tensor in self.graph.tensors
            for size, axes in zip(tensor.shape, tensor.layout or (), strict=False)
            if axes
        )


def _best_shares(times: Counter[tuple[float, ...]], n: int) -> Vector:
    """Return the shares that minimise the sum over steps of the longest of ``n`` times, each a
    share times the time of an equal share."""
    steps = list(times)
    if not steps:
        return np.full(n, 1 / n)
    rows = np.zeros((len(steps) * n, n + len(steps)))
    for number, step in enumerate(steps):
        for place, time in enumerate(step):
            rows[number * n + place, place] = n * time
            rows[number * n + place, n + number] = -1.0
    scale = max(max(step) for step in steps) or 1.0
    rows[:, :n] /= scale
    optimum = minimum(
        np.array([0.0] * n + [float(times[step]) for step in steps]),
        rows,
        np.zeros(len(rows)),
        np.array([[1.0] * n + [0.0] * len(steps)]),
        np.ones(1),
    )
    return np.maximum(optimum.x[:n], 1e-6)


def _rounded(shares: Vector, total: int) -> tuple[int, ...]:
    """Return integer weights with a given sum, each at least 1, whose largest ratio to its share is
    least. Units are given one by one to the coordinate whose ratio stays smallest."""
    weights = [1] * len(shares)
    queue = [(2 / share, place) for place, share in enumerate(shares)]
    heapq.heapify(queue)
    for _ in range(total - len(shares)):
        _, place = heapq.heappop(queue)
        weights[place] += 1
        heapq.heappush(queue, ((weights[place] + 1) / shares[place], place))
    return tuple(weights)


def _places_of_coordinates(
    mesh: Mesh, axis: Axis, work: DeviceWork, seconds: Sequence[float]
) -> list[int]:
    """Return for each coordinate of an axis the number of its slowest place.

    Args:
        seconds: the time of the steps of the function at each place.
    """
    names, slowest = mesh.of_axis[axis.name], [-1] * axis.size
    machine, level = mesh.machine, mesh.machine.kinds_level
    assert level is not None
    kinds = [name for name, count in machine.levels[level].kinds for _ in range(count)]
    inside = mesh.devices // len(kinds)
    number = {p.device: n for n, p in enumerate(work.places)}
    for rank in range(mesh.devices):
        at = 0
        for name in names:
            sub = mesh.by_name[name]
            at = at * sub.size + rank // sub.stride % sub.size
        own = number[machine.kind_of[kinds[rank // inside]]]
        if slowest[at] < 0 or seconds[own] > seconds[slowest[at]]:
            slowest[at] = own
    return slowest
