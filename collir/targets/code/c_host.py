"""The steps of a local function in C on the memory of the host."""

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from collir.dialects.operation import DistOp, is_of_model
from collir.dialects.tensor import dist_type
from collir.layout import DType
from collir.layout.local import LocalBuffer
from collir.layout.operation_table import OperationTable
from collir.targets.code.c_copies import Pointer, copied, filled
from collir.targets.code.c_kernels import FileKernels
from collir.targets.code.c_method import CMethod
from collir.targets.code.c_text import AS_BITS, C_ELEMENTS, loop, number_text


@dataclass
class HostMethod(CMethod, ABC):
    """The function of a local program in C on the memory of the host.

    Attributes:
        kernels: the functions of the file for operations of models.
    """

    kernels: FileKernels

    def use(self, *dtypes: DType) -> None:
        """Record the sections of the runtime for element types that C does not know."""
        self.needs |= {dtype.value for dtype in dtypes if dtype in AS_BITS}

    def copied(self, source: Pointer, x: LocalBuffer, target: Pointer, y: LocalBuffer) -> list[str]:
        return copied(source, x, target, y, self.needs)

    def filled(self, target: Pointer, y: LocalBuffer, value: float) -> list[str]:
        if y.dtype is DType.BOOL or str(value) == "0.0":
            return filled(target, y, str(int(value != 0)))
        self.use(y.dtype)
        return filled(target, y, C_ELEMENTS.store(number_text(value, y.dtype), y.dtype))

    def computed(
        self,
        op: DistOp,
        starts: Sequence[str],
        inputs: Sequence[Pointer],
        out: Pointer,
        y: LocalBuffer,
    ) -> list[str]:
        if is_of_model(op):
            return [self.kernels.call(op, self.names, starts, list(map(str, inputs)), str(out))]
        self.use(y.dtype)
        elements = [pointer.element("i") for pointer in inputs]
        value = self.ELEMENTS[op.mnemonic](self, op, elements, y.dtype)
        return [loop(self.elements(y), f"{out.element('i')} = {value};")]

    def _cast(self, op: DistOp, inputs: Sequence[str], dtype: DType) -> str:
        source = dist_type(op.operands[0]).dtype
        self.use(source)
        if (source, dtype) == (DType.F64, DType.F16):
            self.needs.add("f16_of_double")
        return C_ELEMENTS.converted(inputs[0], source, dtype)

    def _sum(self, op: DistOp, inputs: Sequence[str], dtype: DType) -> str:
        return C_ELEMENTS.total(inputs, dtype)

    def _scaled(self, op: DistOp, inputs: Sequence[str], dtype: DType) -> str:
        return C_ELEMENTS.scaled(inputs[0], number_text(op.number("factor"), dtype), dtype)

    ELEMENTS: ClassVar[OperationTable[Callable[[Any, DistOp, Sequence[str], DType], str]]] = (
        OperationTable(
            "HostMethod.ELEMENTS",
            __name__,
            {"add": _sum, "scale": _scaled, "cast": _cast},
            row="a method that returns an element of its result in C",
        )
    )
    """The form of an element of the result of each step that is no operation of a model, from the
    elements of its operands at the same place."""
