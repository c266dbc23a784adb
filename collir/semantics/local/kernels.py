"""Results of computations on the blocks of a rank."""

from collections.abc import Sequence

from xdsl.ir import Attribute

from collir.dialects.local import ComputeOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType
from collir.layout import Dim, DistType, Reduction
from collir.semantics.reference import nn, selections
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.steps import meaning_of


def computed(op: ComputeOp, step: DistOp, inputs: Sequence[Array], starts: Sequence[int]) -> Array:
    """Return the result of a computation on the arrays of a rank.

    Args:
        step: the same on tensors of a single device.
        starts: where the block that it reads or writes begins in the whole.
    """
    name = op.kernel.data
    match name:
        case "mask":
            [x] = inputs
            neutral = int(Reduction(step.word("reduction")) is Reduction.PROD)
            return x if list(starts) == [0] else x * x.dtype.type(0) + x.dtype.type(neutral)
        case "iota" | "uniform":
            assert op.whole is not None
            blocks = zip(starts, step.layout("to").shape, strict=True)
            whole = nn.FUNCTIONS[name](_on_whole(step, op.whole.data), inputs)
            return whole[tuple(slice(start, start + size) for start, size in blocks)]
        case "constant":
            return nn.FUNCTIONS[name](step, inputs)
        case "take" | "take_along_dim":
            take = selections.take if name == "take" else selections.take_along
            dim = step.integer("dim")
            return take(inputs[0], inputs[1], dim, starts[dim])
        case "take_transpose" | "take_along_dim_transpose":
            is_take = name == "take_transpose"
            take = selections.take_transpose if is_take else selections.take_along_transpose
            dim = step.integer("dim")
            end = starts[dim] + step.layout("to").shape[dim]
            return take(inputs[0], inputs[1], dim, starts[dim], end)
        case "grouped_matmul":
            x, w, groups = inputs
            transposed = "transposed" in step.properties
            return selections.grouped_matmul(x, w, groups, transposed, starts[0])
        case "grouped_matmul_transpose":
            x, g, groups = inputs
            end = starts[0] + step.layout("to").shape[0]
            return selections.grouped_matmul_transpose(x, g, groups, starts[0], end)
        case "one_hot":
            to = step.layout("to")
            return selections.one_hot(
                inputs[0], starts[-1], starts[-1] + to.shape[-1], NUMPY[to.dtype]
            )
        case _:
            [result] = meaning_of(name).run(step, tuple([x] for x in inputs))
            assert result is not None
            return result


def _on_whole(step: DistOp, shape: Sequence[int]) -> DistOp:
    """Return the operation on the whole value of which a rank has a block."""
    to = DistTensorType(DistType(step.layout("to").dtype, tuple(map(Dim, shape))))
    properties: dict[str, Attribute] = {**step.properties, "to": to}
    return type(step).create(operands=step.operands, properties=properties, result_types=[to])
