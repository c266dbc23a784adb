"""The weights of a model as a framework sees them: names, uses, and the axes that divide them."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from xdsl.ir import BlockArgument, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import dist_type
from collir.ir.roles import Role, argument_roles
from collir.layout.nn import EINSUM
from collir.layout.nn_selections import TAKE
from collir.synthesis.propagation.graph import Tensor
from collir.synthesis.sweeping.classes import DimensionClasses, Place
from collir.synthesis.sweeping.programs import named
from collir.synthesis.sweeping.steps import TrainingStep


class WeightUse(Enum):
    """The use that a model makes of a weight."""

    TABLE = "rows are looked up"
    LINEAR = "rows are outputs, and columns are inputs, of a product"
    OTHER = "anything else"


@dataclass(frozen=True)
class Weight:
    """A weight of a model.

    Attributes:
        name: its name; `*` stands for the number of a layer.
        layers: the name of the list of layers that it is in; empty if it is in none.
        use: what the model does with it first.
        is_output: whether it is a table that is the matrix of a product too.
        divided: for each axis that divides it, the dimension, counted without the dimensions of
            layers, and its class; all places of a class are divided together.
        whole: whether a step needs the result of its product whole.
    """

    name: str
    layers: str
    use: WeightUse
    is_output: bool
    divided: dict[str, tuple[int, Place]]
    whole: bool

    @property
    def module(self) -> str:
        """The name of the module that it belongs to."""
        return self.name.rpartition(".")[0]


def weights_of(step: TrainingStep) -> list[Weight]:
    """Return the weights of a training step, in the order of its arguments.

    Raises:
        DiagnosticError: a step cannot be where layouts are chosen.
    """
    return list(_weights(step, DimensionClasses.build(step)))


def _weights(step: TrainingStep, classes: DimensionClasses) -> Iterator[Weight]:
    function = named(step.module, step.function)
    mesh, roles = mesh_of(function), argument_roles(function)
    for number, tensor in classes.weights.items():
        argument = classes.arguments[number]
        if not isinstance(argument, BlockArgument) or roles[argument.index] is not Role.PARAMETER:
            continue
        stacks = classes.stacked[tensor]
        divided = {
            mesh.by_name[sub].axis: (dim - stacks, classes.of[tensor, dim])
            for dim, of_type in enumerate(dist_type(argument).dims)
            for sub in of_type.axes
        }
        name, layers = _name(classes.callee.args[number])
        uses = [*_uses(tensor, classes)]
        use = next((use for use in uses if use is not WeightUse.OTHER), WeightUse.OTHER)
        whole = any(classes.gathers[place] for _, place in divided.values())
        yield Weight(
            name, layers, use, {WeightUse.TABLE, WeightUse.LINEAR} <= {*uses}, divided, whole
        )


def _name(argument: BlockArgument) -> tuple[str, str]:
    """Return the framework's name of a weight, and the list of layers that it is in.

    The fields of a record have dots, and a loop over layers sees the part behind the list.
    """
    full = argument.name_hint or ""
    name = full.partition(".")[2] or full
    inner: SSAValue = argument
    behind = ""
    while loop := next(
        (u.operation for u in inner.uses if isinstance(u.operation, RepeatOp)), None
    ):
        if inner not in loop.sliced:
            break
        inner = loop.body.block.args[[*loop.operands].index(inner)]
        field = (inner.name_hint or "").partition(".")[2]
        if not field or not name.endswith(f".{field}"):
            return f"{name}.*", name
        behind = field
    if not behind:
        return name, ""
    layers = name.removesuffix(f".{behind}")
    return f"{layers}.*.{behind}", layers


def _uses(tensor: Tensor, classes: DimensionClasses) -> Iterator[WeightUse]:
    """Yield the uses that steps make of a weight, in the order of the program."""
    same = {tensor}
    for relation in classes.graph.relations:
        [*operands, result] = relation.members
        own = [n for n, x in enumerate(operands) if x in same]
        if not own:
            continue
        if relation.op is None or (relation.passes_all and len(operands) == 1):
            same.add(result)  # a layer of a stack, or a cast
        elif relation.op.kind is TAKE and own == [0]:
            yield WeightUse.TABLE
        elif relation.op.kind is EINSUM and len(relation.indices[own[0]]) == 2:
            out, into = relation.indices[own[0]]
            linear = out in relation.indices[-1] and into not in relation.indices[-1]
            yield WeightUse.LINEAR if linear else WeightUse.OTHER
        else:
            yield WeightUse.OTHER
