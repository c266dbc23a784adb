"""D-Rec's numbers: the production search by SMSG's authors, as another price of the same choices.

An axis halves after the other, the inner one first. What a step needs whole or leaves partial costs
the bytes that a device lacks, those of the second operand of a product a quarter; what lies
otherwise than it is needed costs 16 times its bytes. Inputs lie as their steps need them, and maps
may be done by all devices alike.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument

from collir.cost.model import CostModel
from collir.layout import DistType, Mesh
from collir.layout.cuts import units
from collir.synthesis.propagation.graph import Relation, TensorGraph
from collir.synthesis.propagation.moves import Moves, bytes_of
from collir.synthesis.sharding.descent.descent import Descent
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.symbolic.amounts import (
    Divided,
    NoWork,
    Places,
    places_in,
    prefer_small,
)
from collir.synthesis.sharding.ways import StepWay, Ways

_LIES_OTHERWISE, _SECOND = 16, 0.25


class _Moves(Moves):
    """Prices of tensors that lie otherwise along an axis than they are needed."""

    def __init__(self, mesh: Mesh, axis: str):
        super().__init__(mesh, CostModel())
        self.axis = axis

    def seconds(self, x: DistType, to: DistType) -> float:
        """Return 16 times the bytes of a tensor, as other axes divide it; 0 if it lies so."""
        if x.dim_of(self.axis) == to.dim_of(self.axis):
            return 0.0
        return _LIES_OTHERWISE * bytes_of(x) / max(self._others(x), self._others(to))

    def _others(self, x: DistType) -> int:
        return units(self.mesh, [axis for dim in x.dims for axis in dim.axes if axis != self.axis])


class _Ways(Divided):
    """The ways to divide a step along an axis."""

    def __init__(self, work: NoWork, moves: _Moves, places: Places):
        super().__init__(work, moves, [moves.axis], places)
        self.axis = moves.axis

    def _ways(self, relation: Relation) -> Iterator[StepWay]:
        ways = Ways._ways(self, relation) if relation.passes_all else super()._ways(relation)
        yield from (replace(way, seconds=self._lacking(relation, way)) for way in ways)

    def _lacking(self, relation: Relation, way: StepWay) -> float:
        """Return what the bytes cost that a device lacks of operands, or that are reduced."""
        index = next((i for i, axes in way.axes.items() if self.axis in axes), None)
        if index is None:
            return 0.0
        assert relation.op is not None
        devices, total = self.mesh.by_name[self.axis].size, 0.0
        members = zip(relation.members, relation.indices, strict=True)
        for place, (tensor, over) in enumerate(members):
            is_constant = tensor.made and not isinstance(tensor.value, BlockArgument)
            if index not in over and not is_constant:
                blocks = units(self.mesh, [a for i in over for a in way.axes.get(i, ())])
                is_second = relation.op.mnemonic == "einsum" and place == 1
                weight = _SECOND if is_second else 1.0
                total += weight * tensor.bytes / blocks * (devices - 1) / devices
        return total


class DRec(NamedTuple):
    """The choices along an axis, and the best ones."""

    sharding: Sharding
    places: Places


def d_rec(function: FuncOp) -> tuple[TensorGraph, list[DRec]]:
    """Return the graph of a function, and how each axis divides it, one after the other."""
    graph = TensorGraph.build(function)
    for tensor in graph.tensors:
        tensor.made |= tensor.layout is None and isinstance(tensor.value, BlockArgument)
    found: list[DRec] = []
    places: Places = {}
    for axis in reversed(graph.mesh.by_name):
        moves = _Moves(graph.mesh, axis)
        ways = _Ways(NoWork(function, graph.mesh), moves, places)
        sharding = Sharding(graph, ways, moves.seconds, moves.seconds)
        prefer_small(graph, sharding)
        places = places_in(sharding, Descent(graph, sharding, [axis]).run())
        found.append(DRec(sharding, places))
    return graph, found
