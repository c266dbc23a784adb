"""The operations of a stage's tasks, as DistIR's programs have them.

Under ``tensor``, weights of even layers are divided by columns and those of odd layers by rows; an
MPIAllreduce follows every second product, forwards and backwards.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from distir.operations import Extent, Operation, Shape


@dataclass(frozen=True)
class Stage:
    """The properties of a stage that its tasks depend on.

    Attributes:
        layers: the number of its layers.
        odd: whether its first layer is an odd one of the model.
        first: whether it is the first stage.
        last: whether it is the last stage.
        divided: whether its weights are divided over several devices.
        gathers: whether there are several microbatches, whose results are gathered.
    """

    layers: int
    odd: bool
    first: bool
    last: bool
    divided: bool
    gathers: bool

    def inputs(self, layer: int) -> Extent:
        """Return the columns of the operand of a layer, counted within the stage."""
        return "part" if self.divided and (layer + self.odd) % 2 else "width"

    def outputs(self, layer: int) -> Extent:
        """Return the columns of the result of a layer, counted within the stage."""
        return "part" if self.divided and not (layer + self.odd) % 2 else "width"

    def weight(self, layer: int) -> Shape:
        """Return the shape of a layer's weight on a device."""
        return (self.inputs(layer), self.outputs(layer))


def _gathered(value: Shape, stage: Stage, begins: bool, kind: str) -> Iterator[Operation]:
    """Yield the operation that gathers a value of the microbatches, if there are several."""
    if stage.gathers and begins:
        yield Operation("Identity", value, (value,), (value,))
    elif stage.gathers and kind == "Add":
        yield Operation("Add", value, (value,), (value, value))
    elif stage.gathers:
        yield Operation("Concat", value, (value,), (value,), grows=True)


def _reduced(value: Shape) -> Operation:
    return Operation("MPIAllreduce", value, (value,), (value,))


def forward(stage: Stage, begins: bool) -> tuple[Operation, ...]:
    """Return the operations of a forward task; ``begins``: on the first microbatch.

    Activations stay until the backward task; the last one of a stage that sends it until the Send.
    """
    operations: list[Operation] = []
    for layer in range(stage.layers):
        result: Shape = ("rows", stage.outputs(layer))
        product: Shape = ("rows", *stage.weight(layer))
        operations.append(Operation("MatMul", product, (result,)))
        if stage.inputs(layer) == "part":
            operations.append(_reduced(result))
        operations.append(Operation("Relu", result, (result,)))
    if stage.last:
        whole: Shape = ("rows", stage.outputs(stage.layers - 1))
        operations.append(Operation("Loss", whole, (whole,)))
        operations += _gathered(whole, stage, begins, "Concat")
        operations.append(Operation("LossGrad", whole, (whole,), (whole,)))
    return tuple(operations)


def backward(stage: Stage, begins: bool) -> tuple[Operation, ...]:
    """Return the operations of a backward task; ``begins``: on the first microbatch.

    It begins with the gradient of the stage's result, from the loss or received. The gradient of
    the first stage's input is kept.
    """
    operations: list[Operation] = []
    for layer in reversed(range(stage.layers)):
        result: Shape = ("rows", stage.outputs(layer))
        operand: Shape = ("rows", stage.inputs(layer))
        weight = stage.weight(layer)
        outermost = stage.first and layer == 0
        operations.append(Operation("ReluGrad", result, (result,), (result, result)))
        freed = (result,) if outermost else (result, operand)
        operations.append(Operation("MatMulGrad", ("rows", *weight), (operand, weight), freed))
        if stage.outputs(layer) == "part":
            operations.append(_reduced(operand))
        if outermost:
            operations += _gathered(operand, stage, begins, "Concat")
        operations += _gathered(weight, stage, begins, "Add")
    return tuple(operations)
