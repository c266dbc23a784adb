"""The values that cross from the first to the second of two loops: a minimum cut of their bytes.

A light step that only the second loop needs may be in either loop; light steps are local, and visit
each element once, as maps and sums do. Then either their operands or their results cross, whichever
have fewer bytes. Each step is in one loop, except free steps, which may be in both. Between equal
cuts, the second loop gets more steps.
"""

import math
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.fusion import kernel_name
from collir.ir.lazy import networkx
from collir.ir.steps import is_free

Node = TypeVar("Node", bound=Hashable)

_Node = tuple[SSAValue | None, Literal["in", "out"]]
_SOURCE: _Node = None, "in"
_SINK: _Node = None, "out"


def is_replicable(op: Operation | Block, loop: RepeatOp) -> bool:
    """Return whether an operation is free to do twice: a view, or one without operands."""
    if not isinstance(op, DistOp):
        return False
    return not op.operands or (len(op.operands) == 1 and is_free(op, mesh_of(loop)))


def is_light(op: Operation) -> bool:
    """Return whether an operation is local, and visits each element once, as maps and sums do."""
    if not isinstance(op, DistOp) or not op.kind.local or op.kind.computes:
        return False
    structure = op.structure
    if structure is None:
        return True
    points = math.prod(int(n) for i, n in structure.sizes.items() if i not in structure.selected)
    return points <= max(int(dist_type(x).elements) for x in (*op.operands, op.result))


def source_side(edges: Iterable[tuple[Node, Node, float]], source: Node, sink: Node) -> set[Node]:
    """Return the smallest set of nodes with the source that a cheapest cut separates.

    networkx cuts as near to the sink as it can, so the reversed graph is cut.

    Args:
        edges: two nodes each, and the cost of a cut between them, in this direction.
    """
    nx = networkx()
    graph = nx.DiGraph()
    graph.add_nodes_from([source, sink])
    for a, b, cost in edges:
        known = graph.get_edge_data(b, a, {"capacity": 0})["capacity"]
        graph.add_edge(b, a, capacity=known + cost)
    _, (_, side) = nx.minimum_cut(graph, sink, source)
    return side


@dataclass(frozen=True, eq=False)
class Crossing:
    """The steps and the values at the border of two loops.

    Attributes:
        loop: the loop that is cut in two.
        carries: the carries of the first of them.
        first: the operations that these need.
        second: the operations that only other results need, in order.
    """

    loop: RepeatOp
    carries: Collection[SSAValue]
    first: Collection[Operation]
    second: Collection[Operation]

    @cached_property
    def _movable(self) -> set[Operation]:
        """The operations of the second part that the first loop could do."""
        count = len(self.loop.carried)
        known = {*self.carries, *self.loop.body.block.args[count:]}
        known |= {result for op in self.first for result in op.results}
        movable: set[Operation] = set()
        for op in self.second:
            if is_light(op) and kernel_name(op) is None and known.issuperset(op.operands):
                movable.add(op)
                known |= set(op.results)
        return movable

    def _edges(self) -> Iterator[tuple[_Node, _Node, float]]:
        """Yield the edges of the graph to cut, with their costs.

        A value has two nodes. The edge between them is cut if the value is stacked. A value with
        both nodes on the side of the sink is computed in the second loop.
        """
        mesh, count = mesh_of(self.loop), len(self.loop.carried)
        stacks = set[SSAValue](self.loop.yielded[count:])

        def whole(value: SSAValue) -> tuple[_Node, _Node, float]:
            cost = 0 if value in stacks else dist_type(value).local_bytes(mesh)
            return (value, "in"), (value, "out"), cost

        for carry in self.carries:
            yield whole(carry)
            yield _SOURCE, (carry, "in"), math.inf
        for op in self.loop.body.block.ops:
            if op in self.first and not is_replicable(op, self.loop):
                for result in op.results:
                    yield whole(result)
                    yield _SOURCE, (result, "in"), math.inf
            elif op in self.first or op in self._movable:
                for result in op.results:
                    yield whole(result)
                    for operand in op.operands:
                        yield (operand, "out"), (result, "in"), math.inf
                        if operand.owner in self._movable and op in self._movable:
                            yield (result, "in"), (operand, "in"), math.inf
                    if op in self._movable and result in stacks:
                        yield (result, "out"), _SINK, math.inf
            elif op in self.second:
                for operand in op.operands:
                    yield (operand, "out"), _SINK, math.inf

    @cached_property
    def _cut(self) -> tuple[frozenset[Operation], frozenset[SSAValue]]:
        """The operations that move to the first loop, and the values that it may stack."""
        side = source_side(self._edges(), _SOURCE, _SINK)
        inside = {value for value, end in side if value is not None and end == "in"}
        stacked = {value for value in inside if (value, "out") not in side}
        moved = {op for op in self._movable if not inside.isdisjoint(op.results) and op.operands}
        return frozenset(moved), frozenset(stacked)

    @property
    def moved(self) -> frozenset[Operation]:
        """The operations of the second part that the first loop does."""
        return self._cut[0]

    @property
    def stacked(self) -> frozenset[SSAValue]:
        """The values that the second loop takes as slices, if it needs them."""
        return self._cut[1]


__all__ = ["Crossing", "is_light", "is_replicable", "source_side"]
