"""Types of tensor parallelism, for a training step whose weights no axis divides.

Classes of dimensions are divided together. Those of the values between layers are left alone. A
class inside of a layer begins with the columns of a weight and ends with the rows of another, as in
Megatron-LM (Shoeybi 2019): heads, the inner width of an MLP, experts; and words, behind the layers.
Each weight is divided along one class. Classes that send least for the weights that they divide are
taken first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument

from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.roles import Role, argument_roles
from collir.synthesis.propagation.graph import Tensor
from collir.synthesis.sweeping.classes import SIZE, DimensionClasses, Place, places_of
from collir.synthesis.sweeping.programs import named
from collir.synthesis.sweeping.steps import TrainingStep

_WORTH = 3
"""The least size of a divided weight outside of layers, in multiples of the sums of a row."""

_LEAST = 0.01
"""The least part of the weights of all layers that is divided though its results are gathered."""

NAME = "model"
"""The name of an axis that is added."""


@dataclass(frozen=True)
class Division:
    """The weights and states that an axis divides, where no type says so.

    Attributes:
        axis: its name.
        pairs: the number of each argument of the step that it divides, and the dimension.
        reason: why nothing is divided; empty if something is.
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
    """Return the axis that may divide weights: an axis of the mesh that no type names, or a new
    one. Empty if types already divide something besides the batch."""
    known = (*step.data, *step.context, step.pipeline)
    others = [axis for axis in step.axes if axis not in known]
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
    """Return the dimensions of weights and states that an axis divides."""
    try:
        pairs = tuple(_pairs(step))
    except DiagnosticError as error:
        return Division(axis, (), error.diagnostics[0].message)
    return Division(axis, pairs, "" if pairs else "they have no dimension inside of a layer alone")


def _pairs(step: TrainingStep) -> Iterator[tuple[int, int]]:
    """Yield the number of each divided weight and state, and the divided dimension.

    Raises:
        DiagnosticError: a step cannot be where layouts are chosen.
    """
    function, classes = named(step.module, step.function), DimensionClasses.build(step)
    dims = {
        [*function.args].index(argument): dim
        for number, dim in _chosen(classes).items()
        if isinstance(argument := classes.arguments[number], BlockArgument)
    }
    roles = argument_roles(function)
    weights = [number for number in dims if roles[number] is Role.PARAMETER]
    for number, argument in enumerate(function.args):
        if number in weights:
            yield number, dims[number]
        elif roles[number] is Role.STATE:
            weight = _weight_of(argument, function)
            if weight in weights:
                yield number, dims[weight]


def _chosen(classes: DimensionClasses) -> dict[int, int]:
    """Return the divided arguments of the function of the layers, with their dimensions."""
    of, sums, gathers = classes.of, classes.sums, classes.gathers
    between = {classes.related[place] for x in classes.layers for place in places_of(x)}
    others = {  # that other axes divide
        (classes.graph.of[x], dim)
        for x, argument in zip(classes.callee.args, classes.arguments, strict=True)
        for dim, of_type in enumerate(dist_type(argument).dims)
        if of_type.axes
    }

    def dims(tensor: Tensor) -> list[Place]:
        """Return the dimensions that may be divided."""
        return [
            place
            for place in classes.own(tensor)
            if place not in others
            and classes.related[place] not in between
            and tensor.shape[place[1]] % SIZE == 0
        ]

    weights = classes.weights
    layers = sum(x.bytes for x in weights.values() if classes.stacked[x])

    def is_worth(x: Tensor, place: Place) -> bool:
        """Return whether a weight is worth dividing: no router, whose results are gathered, and no
        small table outside of layers."""
        if classes.stacked[x]:
            return not gathers[of[place]] or x.bytes > _LEAST * layers
        return _WORTH * sums[of[place]] < classes.rows * x.bytes

    inside: dict[Place, set[int]] = {}
    for number, x in weights.items():
        for place in dims(x) if len(classes.own(x)) > 1 else ():
            if is_worth(x, place):
                inside.setdefault(of[place], set()).add(number)
    chosen: dict[int, int] = {}
    while inside := {place: left for place, own in inside.items() if (left := own - {*chosen})}:
        best = min(
            inside,
            key=lambda place: (
                (sums[place] + gathers[place]) / sum(weights[n].bytes for n in inside[place])
            ),
        )
        of_best = ((n, dim) for n, x in weights.items() for _, dim in dims(x) if of[x, dim] == best)
        chosen |= {number: dim for number, dim in of_best if number not in chosen}
    return dict(sorted(chosen.items()))


def _weight_of(state: BlockArgument, function: FuncOp) -> int | None:
    """Return the number of a state's weight, by sizes and names; None if there is none."""
    roles = argument_roles(function)
    weights = [number for number, role in enumerate(roles) if role is Role.PARAMETER]

    def shared(number: int) -> int:
        names = [value.name_hint or "" for value in (state, function.args[number])]
        ends = zip(*(name[::-1] for name in names), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))

    sizes = [dim.size for dim in dist_type(state).dims]
    alike = [n for n in weights if [d.size for d in dist_type(function.args[n]).dims] == sizes]
    return max(alike, key=shared, default=None)
