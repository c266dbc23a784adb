"""Classes of dimensions that are divided together: an index of a step stands for a dimension of
each operand and of the result."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from networkx.utils import UnionFind
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import dist_type
from collir.ir.calls import calls_in, given
from collir.layout import Axis, Mesh
from collir.layout.mesh import Factor
from collir.layout.structure import REPEATED
from collir.machine import Level, Machine
from collir.synthesis.propagation.graph import STACK, Relation, Tensor, TensorGraph
from collir.synthesis.sweeping.programs import named, set_mesh
from collir.synthesis.sweeping.steps import TrainingStep
from collir.transforms.inlining import inline_call
from collir.transforms.microbatches.splitting import batch_of

Place = tuple[Tensor, int]
"""A dimension of a value."""

SIZE = 2
"""The size of the axis that divides dimensions, to see what a step allows."""


@dataclass(frozen=True)
class DimensionClasses:
    """The dimensions of the function that a training step takes the gradient of.

    Attributes:
        callee: the function with its calls inlined, on whole values.
        graph: its values, and the steps between them.
        arguments: for each of its arguments, the argument of the step that it is made from.
        rows: the size of its batch.
        layers: the values that go from layer to layer. stacked: the number of leading dimensions of
            a value that count layers, or groups of layers.
        of: the class of each dimension.
        related: the class of each dimension if steps also relate dimensions that they need whole.
        sums, gathers: the bytes that are sent if a class is divided: to sum parts, and to gather
            for steps that need it whole.
    """

    callee: FuncOp
    graph: TensorGraph
    arguments: Sequence[SSAValue]
    rows: int
    layers: Sequence[Tensor]
    stacked: Counter[Tensor]
    of: "UnionFind[Place]"
    related: "UnionFind[Place]"
    sums: Counter[Place]
    gathers: Counter[Place]

    @staticmethod
    def build(step: TrainingStep) -> "DimensionClasses":
        """Return the classes of a training step.

        Raises:
            DiagnosticError: a step cannot be where layouts are chosen.
        """
        module = step.module.clone()
        level = Level("device", SIZE, port=1e9, latency=0.0)
        axis = Axis.placed("axis", [Factor(level.name, SIZE)])
        set_mesh(module, step.function, Mesh("m", Machine("divided", (level,)), (axis,)))
        callee = named(module, step.callee.sym_name.data)
        while calls := list(calls_in(callee)):
            for call in calls:
                _ = inline_call(call, callee)
        graph = TensorGraph.build(callee)
        call = step.gradient
        loops = [op for op in callee.walk() if isinstance(op, RepeatOp) and op.sliced]
        stacked = Counter[Tensor]()
        for relation in reversed(graph.relations):
            if relation.indices[0][:1] == (STACK,):
                stack, member = relation.members
                stacked[stack] = 1 + stacked[member]
        of, sums, gathers = _classes(graph, through=False), Counter[Place](), Counter[Place]()
        for relation in graph.relations:
            for place, amount, is_sum in _sent(relation):
                (sums if is_sum else gathers)[of[place]] += amount
        return DimensionClasses(
            callee,
            graph,
            [given(call, number) for number in range(len(callee.args))],
            int(dist_type(callee.args[batch_of(call).first]).dims[0].size),
            [graph.of[x] for loop in loops for x in loop.carried],
            stacked,
            of,
            _classes(graph, through=True),
            sums,
            gathers,
        )

    @property
    def weights(self) -> dict[int, Tensor]:
        """The values of the arguments of the function, by number."""
        return {number: self.graph.of[x] for number, x in enumerate(self.callee.args)}

    def own(self, tensor: Tensor) -> list[Place]:
        """Return the dimensions of a value, without those of stacks."""
        return places_of(tensor)[self.stacked[tensor] :]


def places_of(tensor: Tensor) -> list[Place]:
    """Return the dimensions of a value."""
    return [(tensor, dim) for dim in range(len(tensor.shape))]


def _classes(graph: TensorGraph, *, through: bool) -> "UnionFind[Place]":
    """Return the classes of dimensions with an index in common, in any step.

    Args:
        through: whether a step also relates dimensions that it needs whole.
    """
    classes: UnionFind[Place] = UnionFind()
    for relation in graph.relations:
        together: dict[str, list[Place]] = {}
        for tensor, indices in zip(relation.members, relation.indices, strict=True):
            for dim, index in enumerate(indices):
                if index != REPEATED and (through or index not in relation.blocked):
                    together.setdefault(index, []).append((tensor, dim))
        for places in together.values():
            classes.union(*places)
    return classes


def _sent(relation: Relation) -> Iterator[tuple[Place, int, bool]]:
    """Yield the dimensions whose division makes a step send, with the bytes, and whether it sends
    to sum parts (else to gather)."""
    [*operands, (result, over)] = zip(relation.members, relation.indices, strict=True)
    kept = {*over, REPEATED}
    for tensor, indices in operands:
        for dim, index in enumerate(indices):
            if index in relation.blocked:
                yield (tensor, dim), tensor.bytes * relation.times, False
            elif index not in kept:
                kept.add(index)  # once for a step
                yield (tensor, dim), 2 * result.bytes * relation.times, True
