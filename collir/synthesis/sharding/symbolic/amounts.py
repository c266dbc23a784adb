"""Choices of layouts that cost the bytes that a device receives, and nothing else.

Only the order of strategies matters, so no rate of a machine is needed (Wang et al., "SMSG", IJPP
2023). Every step is divided over as many axes as possible, so all devices compute equally much, and
strategies differ only in what they send.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block

from collir.cost.model import CostModel
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.layout import DistType, Mesh
from collir.layout.cuts import units
from collir.synthesis.propagation.graph import Layout, Relation, Tensor, TensorGraph
from collir.synthesis.propagation.moves import Moves, MoveStep, bytes_of
from collir.synthesis.propagation.work import DeviceWork, StepTimes
from collir.synthesis.sharding.factors import Costs, FactorTable, Values
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.ways import Decided, StepWay, Ways

_HELD = 1e-6
"""The received bytes that count like a byte held on a device: of equal amounts, those with the
least memory are best."""

Places = Mapping[Relation | Tensor, Mapping[str, str]]
"""For steps the index, and for tensors the dimension, that each of some axes divides."""


class NoWork(DeviceWork):
    """Steps that take no time."""

    def times(
        self, op: DistOp, types: Sequence[DistType], properties: dict[str, Attribute]
    ) -> StepTimes:
        """Return 0, and the type of the result."""
        block = Block(arg_types=[DistTensorType(x) for x in types])
        made = type(op).make(self.mesh, *block.args, **properties)
        return StepTimes((0.0,), frozenset(), dist_type(made.result))


class Received(Moves):
    """The bytes that a device receives: in an all_gather or reduce_scatter the other parts of the
    tensor, in an all_to_all the other parts of its block, in an all_reduce both."""

    def __init__(self, mesh: Mesh):
        super().__init__(mesh, CostModel())

    def step(self, value: DistType, step: MoveStep) -> float:
        """Return the bytes of a step of a path."""
        if step.kind.local:
            return 0.0
        size = bytes_of(value) / min(step.blocks_before, step.blocks_after)
        devices = self.mesh.group_size(step.axes)
        twice = 2 if (step.kind.before, step.kind.after) == ("partial", "replicated") else 1
        return twice * size * (devices - 1) / devices

    def split(self, x: DistType, to: DistType) -> float:
        """Return the bytes to bring a value to another layout: kernels take no time."""
        return self.seconds(x, to)


class Divided(Ways):
    """The ways that divide a step over as many of some axes as possible."""

    def __init__(self, work: DeviceWork, moves: Moves, axes: Collection[str], places: Places):
        """Set up the ways on a mesh.

        Args:
            axes: the sub-axes that are free.
            places: the dimensions that other axes divide; these divide nothing else.
        """
        super().__init__(work.mesh, work, moves.seconds)
        self._others = [axis for axis in work.mesh.by_name if axis not in axes]
        self._places = places

    def _decided(self, what: Relation | Tensor) -> Decided:
        places = self._places.get(what, {})
        return tuple((axis, places.get(axis)) for axis in self._others)

    def _ways(self, relation: Relation) -> Iterator[StepWay]:
        ways = list(super()._ways(relation))
        most = max(map(self._divides, ways))
        yield from (way for way in ways if self._divides(way) == most)

    def _divides(self, way: StepWay) -> int:
        return sum(map(len, way.axes.values()))


def by_amounts(
    function: FuncOp,
    graph: TensorGraph,
    axes: Collection[str] | None = None,
    places: Places | None = None,
) -> Sharding:
    """Return the choices of layouts in a function, with the bytes that a device receives for their
    time.

    Args:
        axes: the sub-axes that are free; None: all.
        places: the dimensions that other axes divide.
    """
    moves, free = Received(graph.mesh), graph.mesh.by_name if axes is None else axes
    ways = Divided(NoWork(function, graph.mesh), moves, free, places or {})
    sharding = Sharding(graph, ways, moves.seconds, moves.split)
    prefer_small(graph, sharding)
    return sharding.tie()


def prefer_small(graph: TensorGraph, sharding: Sharding) -> None:
    """Prefer, among equal solutions, those that need least memory."""
    known: dict[tuple[int, int], Costs] = {}
    for what, number in sharding.variable_of.items():
        if isinstance(what, Tensor):
            layouts = sharding.layouts[number]
            key = (what.bytes, id(layouts))  # tensors of one shape have one list
            if key not in known:
                known[key] = np.array([_HELD * _held(graph.mesh, what, x) for x in layouts])
            sharding.sum.tables.append(FactorTable((number,), known[key]))


def sent_bytes(graph: TensorGraph, sharding: Sharding, values: Values) -> int:
    """Return the bytes that a device receives in a solution."""
    tensors = [what for what in sharding.variable_of if isinstance(what, Tensor)]
    held = sum(_held(graph.mesh, x, sharding.layout(values, x)) for x in tensors)
    return round(sharding.sum.value(values) - _HELD * held)


def _held(mesh: Mesh, tensor: Tensor, layout: Layout) -> float:
    """Return the bytes of a tensor on a device."""
    return tensor.bytes / math.prod(units(mesh, axes) for axes in layout)


def places_in(sharding: Sharding, values: Values) -> Places:
    """Return the dimensions that axes divide in a solution."""
    places: dict[Relation | Tensor, dict[str, str]] = {}
    for what in sharding.variable_of:
        if isinstance(what, Relation):
            own: Iterable[tuple[str, Sequence[str]]] = sharding.way(values, what).axes.items()
        else:
            own = ((str(d), axes) for d, axes in enumerate(sharding.layout(values, what)))
        places[what] = {axis: index for index, axes in own for axis in axes}
    return places
