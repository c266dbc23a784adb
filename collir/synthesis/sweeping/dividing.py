"""Types of tensor parallelism, for a training step whose weights no axis divides.

Dimensions that are divided together are one class: an index of a step stands for one of each
operand and of the result. Those of the values between layers are left alone. A class inside of a
layer begins with the columns of a weight and ends with the rows of another, as in Megatron-LM
(Shoeybi 2019): heads, the inner width of an MLP, experts; and words, behind the layers. Each weight
is divided along one class; those are taken first which send least for the weights that they divide.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from networkx.utils import UnionFind
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue

from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.calls import calls_in
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.inlining import inline_call
from collir.ir.microbatches.splitting import batch_of
from collir.ir.roles import Role, argument_roles, result_roles
from collir.ir.variants import set_layouts
from collir.layout import Axis, DistType, Mesh
from collir.layout.mesh import Factor
from collir.layout.structure import REPEATED
from collir.machine import Level, Machine
from collir.synthesis.propagation.graph import STACK, Graph, Relation, Tensor
from collir.synthesis.sweeping.programs import named, set_mesh
from collir.synthesis.sweeping.steps import TrainingStep, given

_WORTH = 3
"""How many times as large as the sums of a row a weight outside of layers is, if it is divided."""

Place = tuple[Tensor, int]
"""A dimension of a value."""

NAME = "model"
"""The name of an axis that is added."""

SIZE = 2
"""The size of the axis while types are sought."""


@dataclass(frozen=True)
class Division:
    """What an axis divides that no type names.

    Attributes:
        axis: its name.
        pairs: the number of each argument of the step that it divides, and the dimension.
        reason: why nothing is known, if the step has no layouts that are searched.
    """

    axis: str
    pairs: tuple[tuple[int, int], ...]
    reason: str = ""

    def text(self, step: TrainingStep) -> str:
        """Return what it divides as a sentence."""
        if self.reason:
            return f"no axis divides weights: {self.reason}"
        roles = argument_roles(named(step.module, step.function))
        divided = {number for number, _ in self.pairs if roles[number] is Role.PARAMETER}
        whole = roles.count(Role.PARAMETER) - len(divided)
        return (
            f"`{self.axis}`, which no type names, divides {len(divided)} weights and leaves "
            f"{whole} whole, so that little is sent; --degree {self.axis}=1 is without it"
        )


def unused_axis(step: TrainingStep) -> str:
    """Return the axis that may divide weights: one of the mesh that no type names yet, or a new
    one; empty if types say what an axis divides, besides those of the batch."""
    others = [axis for axis in step.axes if axis not in (*step.data, step.pipeline)]
    used = {axis for function in functions_of(step.module) for axis in _named_axes(function)}
    if used & {*others}:
        return ""
    return others[0] if others else NAME


def _named_axes(function: FuncOp) -> Iterator[str]:
    """Yield the axes that types in a function name."""
    if MESH_ATTRIBUTE not in function.attributes:
        return
    mesh = mesh_of(function)
    values = (result for op in function.walk() for result in op.results)
    for value in (*function.args, *values):
        if isinstance(value.type, DistTensorType):
            yield from (mesh.by_name[sub].axis for sub in dist_type(value).axes)


def division_of(step: TrainingStep, axis: str) -> Division:
    """Return which dimensions of weights and states an axis divides."""
    try:
        return Division(axis, tuple(_pairs(step, axis)))
    except DiagnosticError as error:
        return Division(axis, (), error.diagnostics[0].message)


def _pairs(step: TrainingStep, axis: str) -> Iterator[tuple[int, int]]:
    """Yield the number of each weight and state that is divided, and the dimension.

    Raises:
        DiagnosticError: a step cannot be where layouts are chosen.
    """
    function = named(step.module, step.function)
    found = {
        [*function.args].index(argument): dim
        for argument, dim in _dims_of_weights(step, axis)
        if isinstance(argument, BlockArgument)
    }
    roles = argument_roles(function)
    weights = [number for number in found if roles[number] is Role.PARAMETER]
    for number, argument in enumerate(function.args):
        if number in weights:
            yield number, found[number]
        elif roles[number] is Role.STATE:
            weight = _weight_of(argument, function)
            if weight in weights:
                yield number, found[weight]


def _dims_of_weights(step: TrainingStep, axis: str) -> Iterator[tuple[SSAValue, int]]:
    """Yield the arguments of the step that are divided, each with the dimension.

    Raises:
        DiagnosticError: a step cannot be where layouts are chosen.
    """
    module = step.module.clone()
    level = Level("device", SIZE, port=1e9, latency=0.0)
    placed = Axis.placed(axis, [Factor(level.name, SIZE)])
    set_mesh(module, step.function, Mesh("m", Machine("divided", (level,)), (placed,)))
    callee = named(module, step.callee.sym_name.data)
    while calls := list(calls_in(callee)):
        for call in calls:
            _ = inline_call(call, callee)
    graph = Graph.build(callee)
    [call] = [call for call in calls_in(named(step.module, step.function)) if call.sought]
    rows = dist_type(callee.args[batch_of(call).first]).dims[0].size
    arguments = [given(call, number) for number in range(len(callee.args))]
    others = {
        (graph.of[x], dim)
        for x, argument in zip(callee.args, arguments, strict=True)
        for dim, of_type in enumerate(dist_type(argument).dims)
        if of_type.axes
    }
    for number, dim in _chosen(callee, graph, int(rows), others).items():
        yield arguments[number], dim


def _chosen(callee: FuncOp, graph: Graph, rows: int, others: Collection[Place]) -> dict[int, int]:
    """Return the arguments that are divided, by number, each with its dimension.

    Args:
        rows: the size of the batch. Weights outside of layers, such as tables, are divided if they
            are much larger than the sums that this costs for one row.
        others: the dimensions that other axes divide.
    """
    loops = [op for op in callee.walk() if isinstance(op, RepeatOp) and op.sliced]
    stacked = Counter[Tensor]()
    for relation in reversed(graph.relations):
        if relation.indices[0][:1] == (STACK,):
            stack, one = relation.members
            stacked[stack] = 1 + stacked[one]
    related, divided = _classes(graph, through=True), _classes(graph, through=False)
    layers = {
        related[place] for loop in loops for x in loop.carried for place in _dims(graph.of[x])
    }
    sums, gathers = Counter[Place](), Counter[Place]()
    for relation in graph.relations:
        for place, amount, is_sum in _sent(relation):
            (sums if is_sum else gathers)[divided[place]] += amount

    def dims(tensor: Tensor) -> list[Place]:
        """Return the dimensions that may be divided, without those of stacks."""
        return [
            place
            for place in _dims(tensor)[stacked[tensor] :]
            if place not in others
            and related[place] not in layers
            and tensor.shape[place[1]] % SIZE == 0
        ]

    weights = {number: graph.of[x] for number, x in enumerate(callee.args)}
    inside: dict[Place, set[int]] = {}
    for number, x in weights.items():
        for place in dims(x) if len(x.shape) - stacked[x] > 1 else ():
            if stacked[x] or _WORTH * sums[divided[place]] < rows * x.bytes:
                inside.setdefault(divided[place], set()).add(number)
    chosen: dict[int, int] = {}
    while inside := {place: left for place, own in inside.items() if (left := own - {*chosen})}:
        best = min(
            inside,
            key=lambda place: (
                (sums[place] + gathers[place]) / sum(weights[n].bytes for n in inside[place])
            ),
        )
        of_best = (
            (n, dim) for n, x in weights.items() for _, dim in dims(x) if divided[x, dim] is best
        )
        chosen |= {number: dim for number, dim in of_best if number not in chosen}
    return dict(sorted(chosen.items()))


def _dims(tensor: Tensor) -> list[Place]:
    return [(tensor, dim) for dim in range(len(tensor.shape))]


def _classes(graph: Graph, *, through: bool) -> "UnionFind[Place]":
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
    """Yield the dimensions whose division sends something at a step, with the bytes, and whether
    that is for a sum of parts; else a step needs the dimension whole."""
    [*operands, (result, over)] = zip(relation.members, relation.indices, strict=True)
    kept = {*over, REPEATED}
    for tensor, indices in operands:
        for dim, index in enumerate(indices):
            if index in relation.blocked:
                yield (tensor, dim), tensor.bytes * relation.times, False
            elif index not in kept:
                kept.add(index)  # once for a step
                yield (tensor, dim), 2 * result.bytes * relation.times, True


def _weight_of(state: BlockArgument, function: FuncOp) -> int | None:
    """Return the number of the weight that a state belongs to, as sizes and names say; None if
    there is no such one."""
    roles = argument_roles(function)
    weights = [number for number, role in enumerate(roles) if role is Role.PARAMETER]

    def shared(number: int) -> int:
        names = [value.name_hint or "" for value in (state, function.args[number])]
        ends = zip(*(name[::-1] for name in names), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))

    sizes = [dim.size for dim in dist_type(state).dims]
    alike = [n for n in weights if [d.size for d in dist_type(function.args[n]).dims] == sizes]
    return max(alike, key=shared, default=None)


def divide(step: TrainingStep, division: Division) -> None:
    """Let an axis divide the weights and states of a step, in place; a mesh without the axis gets
    it."""
    axis = division.axis
    function = named(step.module, step.function)
    mesh = mesh_of(function)
    if axis not in mesh.of_axis:
        sizes = [(other.name, other.size) for other in mesh.axes] + [(axis, SIZE)]
        levels = tuple(Level(name, size, port=1e9, latency=0.0) for name, size in sizes)
        machine = Machine(mesh.machine.name, levels, mesh.machine.device)
        axes = tuple(Axis.placed(name, [Factor(name, size)]) for name, size in sizes)
        set_mesh(step.module, step.function, Mesh(mesh.name, machine, axes))
        mesh = mesh_of(function)
    names = mesh.of_axis[axis]
    types: dict[int, DistType] = {}
    for number, dim in division.pairs:
        types[number] = _divided(types.get(number, dist_type(function.args[number])), dim, names)
    roles, of_results = argument_roles(function), result_roles(function)
    results: dict[int, DistType] = {}
    for role in (Role.PARAMETER, Role.STATE):  # a result is what replaces the argument of its place
        given = [number for number, own in enumerate(roles) if own is role]
        made = [number for number, own in enumerate(of_results) if own is role]
        results |= {to: types[n] for n, to in zip(given, made, strict=False) if n in types}
    set_layouts(function, types, results)


def _divided(x: DistType, number: int, names: tuple[str, ...]) -> DistType:
    """Return a type whose dimension is sharded over more sub-axes."""
    dims = [*x.dims]
    dims[number] = replace(dims[number], axes=(*dims[number].axes, *names))
    return replace(x, dims=tuple(dims))
