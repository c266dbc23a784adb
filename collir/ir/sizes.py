"""A program with other sizes: to try one small that was written for a cluster."""

from dataclasses import replace

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, SizesAttr, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.verification import verify
from collir.layout import Dim, LayoutError


def _functions(module: ModuleOp) -> list[FuncOp]:
    return [op for op in module.ops if isinstance(op, FuncOp)]


def largest_dimension(module: ModuleOp) -> int:
    """The largest dimension of any argument; 1 if there are none."""
    arguments = [arg for function in _functions(module) for arg in function.args]
    return max((size for arg in arguments for size in dist_type(arg).shape), default=1)


def dimensions(module: ModuleOp) -> set[int]:
    """The sizes of the dimensions of all values."""
    values = [
        value
        for function in _functions(module)
        for value in (*function.args, *(r for op in function.body.ops for r in op.results))
    ]
    return {size for value in values for size in dist_type(value).shape}


def resize(module: ModuleOp, sizes: dict[int, int]) -> None:
    """Replaces dimensions (and sizes in split and reshape) everywhere, in place.

    Raises:
        DiagnosticError: the program is not well typed with the new sizes.
    """

    def resized(attribute: Attribute) -> Attribute:
        match attribute:
            case DistTensorType():
                dims = tuple(Dim(sizes.get(d.size, d.size), d.axes) for d in attribute.data.dims)
                return DistTensorType(replace(attribute.data, dims=dims))
            case FunctionType():
                return FunctionType.from_lists(
                    [resized(t) for t in attribute.inputs], [resized(t) for t in attribute.outputs]
                )
            case _:
                return attribute

    for function in module.ops:
        if not isinstance(function, FuncOp):
            continue
        function.properties["function_type"] = resized(function.function_type)
        for arg in function.args:
            arg._type = resized(arg.type)  # pyright: ignore[reportPrivateUsage]
        for op in function.body.ops:
            if isinstance(op, DistOp):
                for name, attribute in op.properties.items():
                    if isinstance(attribute, SizesAttr) and name in ("sizes", "shape"):
                        new = tuple(sizes.get(n, n) for n in attribute.data)
                        op.properties[name] = SizesAttr(new)
                    else:
                        op.properties[name] = resized(attribute)
                _retype(op)
    try:
        verify(module)
    except DiagnosticError as error:
        raise DiagnosticError(
            replace(found, message=f"with the new sizes, {found.message}")
            for found in error.diagnostics
        ) from error


def _retype(op: DistOp) -> None:
    try:
        types = [dist_type(operand) for operand in op.operands]
        result = op.result_type(mesh_of(op), types, op.properties)
    except LayoutError as error:
        message = f"with the new sizes, {error.text(op.operand_names())}"
        raise DiagnosticError.at(op, message) from error
    op.result._type = DistTensorType(result)  # pyright: ignore[reportPrivateUsage]
