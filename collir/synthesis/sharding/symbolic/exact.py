"""The choice of layouts by amounts of data alone: the exact search that plans of ``halving.py`` are
compared with.

Every step is divided over as many axes as it can be, so all devices compute as much, and what is
left is what they send: the bytes that a device receives. A machine may say how many times as much a
byte costs on one axis as on another, the cheapest that can be measured of it.
"""

from collections.abc import Mapping, Sequence

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block

from collir.cost.model import CostModel
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.layout import DistType, Mesh
from collir.synthesis.propagation.estimate import Assignment
from collir.synthesis.propagation.graph import Graph, Relation, Tensor
from collir.synthesis.sharding.factors import Values
from collir.synthesis.sharding.moves import Moves, Step, bytes_of
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.symbolic.halving import Halving
from collir.synthesis.sharding.ways import Way, Ways
from collir.synthesis.sharding.work import Times, Work


class _NoWork(Work):
    """Steps that take no time."""

    def times(
        self, op: DistOp, types: Sequence[DistType], properties: dict[str, Attribute]
    ) -> Times:
        """Return 0, and the type of the result."""
        block = Block(arg_types=[DistTensorType(x) for x in types])
        made = type(op).make(self.mesh, *block.args, **properties)
        return Times((0.0,), frozenset(), dist_type(made.result))


class _Divided(Ways):
    """The ways that divide a step over most axes."""

    def of(self, relation: Relation) -> list[Way]:
        """Return the ways of a step."""
        ways = super().of(relation)
        most = max(map(_divided, ways))
        return [way for way in ways if _divided(way) == most]


def _divided(way: Way) -> int:
    return sum(map(len, way.axes.values()))


class Sent(Moves):
    """The bytes that a device receives."""

    def __init__(self, mesh: Mesh, ratios: Mapping[str, float] | None = None):
        """Set up the amounts of a mesh.

        Args:
            ratios: what a byte costs on each sub-axis; None: the same on all.
        """
        super().__init__(mesh, CostModel())
        self.ratios = ratios or {}

    def step(self, value: DistType, step: Step) -> float:
        """Return the bytes of a step; a collective over several axes costs the dearest of them."""
        if step.kind.local:
            return 0.0
        size = bytes_of(value)
        before, after = size / step.blocks_before, size / step.blocks_after
        devices = self.mesh.group_size(step.axes)
        ratio = max(self.ratios.get(axis, 1.0) for axis in step.axes)
        twice = 2 if (step.kind.before, step.kind.after) == ("partial", "replicated") else 1
        return twice * max(before, after) * (devices - 1) / devices * ratio

    def split(self, x: DistType, to: DistType) -> float:
        """Return what brings a value to another layout: kernels take no time."""
        return self.seconds(x, to)


def sent_bytes(
    function: FuncOp, graph: Graph, ratios: Mapping[str, float] | None = None
) -> Sharding:
    """Return the choices of layouts in a function, with the bytes that they send for their time."""
    moves = Sent(graph.mesh, ratios)
    ways = _Divided(graph.mesh, _NoWork(function, graph.mesh))
    return Sharding(graph, ways, moves.seconds, moves.split)


def values_of(sharding: Sharding, graph: Graph, plan: Halving) -> Values:
    """Return a plan as values of the choices of layouts."""
    values: dict[int, int] = {}
    for what, number in sharding.variable_of.items():
        if isinstance(what, Tensor):
            values[number] = sharding.layouts[number].index(plan.layout(what))
        else:
            values[number] = _nearest(sharding.ways[number], plan.axes(what))
    return values


def _nearest(ways: Sequence[Way], axes: Assignment) -> int:
    """Return the number of the way with most of some sub-axes."""
    wanted = {(index, axis) for index, own in axes.items() for axis in own}
    same = [sum((i, a) in wanted for i, own in way.axes.items() for a in own) for way in ways]
    return max(range(len(ways)), key=lambda n: (same[n], -_divided(ways[n])))
