"""Computations in the local dialect: operations of the tables on the blocks of a rank."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    StringAttr,
)
from xdsl.ir import (
    Attribute,
    Block,
    SSAValue,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException

from collir.dialects.local_memory import check_target
from collir.dialects.local_program import check_numbers, mesh_at, ranks_at
from collir.dialects.local_types import (
    BufferType,
    RankNumberAttr,
    buffer_of,
    on_one_device,
)
from collir.dialects.operation import DistOp, arguments_of, value_text
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, SizesAttr
from collir.layout import LayoutError, Place
from collir.layout.local import (
    LocalBuffer,
)
from collir.layout.steps import ArgumentKind

MASK = "mask"
"""The kernel that keeps a value at index 0, and writes the neutral element elsewhere."""


@irdl_op_definition
class ComputeOp(IRDLOperation):
    """An operation of the tables on the blocks of a rank.

    Attributes:
        kernel: the name of the operation.
        arguments: its properties, without the type of the result, which its buffer has.
        starts: the start of its block in the whole, for each dimension, if it depends on that.
        whole: the shape of the whole, if the result depends on it.
    """

    name = "local.compute"

    kernel = prop_def(StringAttr)
    arguments = prop_def(DictionaryAttr)
    starts = opt_prop_def(ArrayAttr[RankNumberAttr])
    whole = opt_prop_def(SizesAttr)
    inputs = var_operand_def(BufferType)
    outputs = var_operand_def(BufferType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(
        kernel: str,
        arguments: Mapping[str, Attribute],
        inputs: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        starts: Sequence[int] = (),
        whole: Sequence[int] = (),
    ) -> "ComputeOp":
        """Return a computation."""
        properties: dict[str, Attribute] = {
            "kernel": StringAttr(kernel),
            "arguments": DictionaryAttr(dict(arguments)),
        }
        if starts:
            properties["starts"] = ArrayAttr(map(RankNumberAttr, starts))
        if whole:
            properties["whole"] = SizesAttr(tuple(whole))
        return ComputeOp.build(operands=[inputs, outputs], properties=properties)

    def step(
        self, sizes: Callable[[LocalBuffer], LocalBuffer] | None = None, place: Place = ()
    ) -> DistOp:
        """Return the operation on tensors of a single device.

        Args:
            sizes: a function that gives buffers other sizes, such as the sizes on one rank.
            place: the place of the tensors, which says which devices have them.
        """
        buffers = [[buffer_of(x) for x in values] for values in (self.inputs, self.outputs)]
        if sizes is not None:
            buffers = [list(map(sizes, values)) for values in buffers]
        types, results = (
            [DistTensorType(replace(on_one_device(x), place=place)) for x in values]
            for values in buffers
        )
        operation = OPERATIONS[self.kernel.data]
        made = dict.fromkeys(type_parameters(operation), (results or types)[0])
        step = operation.create(
            operands=Block(arg_types=types).args,
            properties={**self.arguments.data, **made},
            result_types=results or types[:1],
        )
        step.location = self.location
        return step

    def verify_(self) -> None:
        name = self.kernel.data
        operation = OPERATIONS.get(name)
        if operation is None or not operation.KIND.local:
            raise VerifyException(f"there is no operation {name} that sends nothing")
        for value in self.outputs:
            check_target(buffer_of(value))
        check_numbers([start.data for start in self.starts or ()], ranks_at(self))
        if given := [x for x in type_parameters(operation) if x in self.arguments.data]:
            raise VerifyException(f"{name} takes no {given[0]}: its buffer has the type")
        inputs = [on_one_device(buffer_of(x)) for x in self.inputs]
        outputs = [on_one_device(buffer_of(x)) for x in self.outputs]
        if name == MASK:
            starts = [] if self.starts is None else [*self.starts]
            if not len(inputs) == len(starts) == 1 or inputs != outputs:
                raise VerifyException("mask has one operand, a result like it, and one start")
            if not isinstance(self.arguments.data.get("reduction"), StringAttr):
                raise VerifyException("mask says for which reduction it is")
            return
        if (count := operation.KIND.operands) not in (None, len(inputs)):
            plural = "s" * (count != 1)
            raise VerifyException(f"{name} takes {count} operand{plural}, not {len(inputs)}")
        try:
            step = self.step()
            step.get_irdl_definition().verify(step)
        except VerifyException as error:
            raise VerifyException(f"{name}: {str(error).partition(chr(10))[0]}") from error
        if operation.KIND.computes:
            return
        try:
            arguments = arguments_of(operation.KIND, step.properties)
            made = operation.KIND.result_type(mesh_at(self), inputs, arguments)
        except LayoutError as error:
            names = [value_text(value, "the operand") for value in self.inputs]
            raise VerifyException(f"{name}: {error.text(names)}") from error
        if [made] != outputs:
            written = ", ".join(map(str, outputs)) or "nothing"
            raise VerifyException(f"{name} makes {made}, not {written}")


def type_parameters(operation: type[DistOp]) -> list[str]:
    """Return the properties of an operation that are the type of its result."""
    return [x.name for x in operation.KIND.parameters if x.kind is ArgumentKind.TYPE]
