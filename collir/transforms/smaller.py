"""A program with other sizes, to try a program for a cluster in the small."""

from dataclasses import replace

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, SizesAttr, dist_type
from collir.ir.calls import functions_at_values
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.renaming import map_attributes, set_type
from collir.ir.verification import verify
from collir.layout import Dim, LayoutError
from collir.transforms.inlining import inline_calls

SHAPES = ("sizes", "shape")
"""The arguments that are sizes of dimensions of the result."""


def largest_dimension(module: ModuleOp) -> int:
    """Return the largest dimension of any argument, or 1 if there are none."""
    arguments = [arg for function in functions_of(module) for arg in function.args]
    return max((size for arg in arguments for size in dist_type(arg).shape), default=1)


def dimensions(module: ModuleOp) -> set[int]:
    """Return the sizes of the dimensions of all values."""
    values = [
        value
        for function in functions_of(module)
        for value in (*function.args, *(r for op in function.walk() for r in op.results))
    ]
    return {size for value in values for size in dist_type(value).shape}


def resize(module: ModuleOp, sizes: dict[int, int]) -> None:
    """Replace dimensions (and sizes in split and reshape) everywhere, in place.

    If calls give values to parameters, the steps of the functions take the places of the calls.

    Args:
        sizes: the new size of each size that changes.

    Raises:
        DiagnosticError: the program is not well typed with the new sizes.
    """

    def resized(attribute: Attribute) -> Attribute:
        if not isinstance(attribute, DistTensorType):
            return attribute
        dims = tuple(Dim(sizes.get(d.size, d.size), d.axes) for d in attribute.data.dims)
        return DistTensorType(replace(attribute.data, dims=dims))

    if functions_at_values(module):  # whose values have no other sizes
        inline_calls(module)
    for function in functions_of(module):
        map_attributes(function, resized)
        for op in function.walk():
            if isinstance(op, DistOp):
                _resize_arguments(op, sizes)
                _infer_result(op)
            elif isinstance(op, RepeatOp):
                op.count = IntegerAttr(sizes.get(op.times, op.times), i64)
    try:
        verify(module)
    except DiagnosticError as error:
        raise DiagnosticError(
            replace(diagnostic, message=f"with the new sizes, {diagnostic.message}")
            for diagnostic in error.diagnostics
        ) from error


def _resize_arguments(op: DistOp, sizes: dict[int, int]) -> None:
    """Replace the sizes that an operation names; permutations and paddings are no sizes."""
    for name in SHAPES:
        if isinstance(old := op.properties.get(name), SizesAttr):
            op.properties[name] = SizesAttr(tuple(sizes.get(n, n) for n in old.data))


def _infer_result(op: DistOp) -> None:
    try:
        types = [dist_type(operand) for operand in op.operands]
        result = op.result_type(mesh_of(op), types, op.properties)
    except LayoutError as error:
        message = f"with the new sizes, {error.text(op.operand_names())}"
        raise DiagnosticError.at(op, message) from error
    set_type(op.result, DistTensorType(result))
