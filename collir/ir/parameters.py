"""The size parameters of a function, and the check that every size is the value of its formula."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, AttributeInvT, Operation
from xdsl.utils.exceptions import VerifyException

from collir.dialects.machine import MESH_ATTRIBUTE
from collir.dialects.parameters import PARAMETERS, parameters_of
from collir.dialects.tensor import BindingsAttr, DistTensorType, SizeAttr, SizesAttr
from collir.layout import Dim
from collir.layout.formulas import Formula, FormulaError
from collir.layout.sizes import Size, bindings_text, size_at, sized


def set_parameters(function: Operation, values: Mapping[str, int]) -> None:
    """Give a function parameters with defaults; without any, it has no attribute for them."""
    if values:
        function.attributes[PARAMETERS] = BindingsAttr(
            tuple((name, int(value)) for name, value in values.items())
        )
    else:
        function.attributes.pop(PARAMETERS, None)


def keep_used_parameters(function: FuncOp, values: Mapping[str, int]) -> None:
    """Give a function only the parameters that its sizes use."""
    used = {
        name
        for op in function.walk()
        for attribute in attributes_of(op)
        for size in sizes_in(attribute)
        if isinstance(size, Size)
        for name in size.formula.parameters
    }
    set_parameters(function, {name: value for name, value in values.items() if name in used})


def bindings_to_equal(function: FuncOp) -> dict[str, int]:
    """Return the parameters of a function at those of the same names of its caller."""
    own = parameters_of(function)
    return {name: sized(value, Formula.parameter(name)) for name, value in own.items()}


def shared_attributes(function: FuncOp) -> dict[str, Attribute]:
    """Return the attributes that a part of a function needs to be a function of its own: its mesh
    and its parameters."""
    names = (MESH_ATTRIBUTE, PARAMETERS)
    return {name: function.attributes[name] for name in names if name in function.attributes}


def sizes_in(attribute: Attribute) -> tuple[int, ...]:
    """Return the sizes in the attribute of a type or of an argument, those without formulas too."""
    match attribute:
        case DistTensorType():
            return attribute.data.shape
        case SizesAttr():
            return attribute.data
        case SizeAttr():
            return (attribute.data,)
        case BindingsAttr():
            return tuple(size for _, size in attribute.data)
        case _:
            return ()


def with_sizes_changed(attribute: AttributeInvT, change: Callable[[int], int]) -> AttributeInvT:
    """Return the attribute of a type or of an argument with other integers where it has formulas.

    Args:
        change: function from a size with a formula to the new one.
    """

    def changed(size: int) -> int:
        return change(size) if isinstance(size, Size) else size

    match attribute:
        case DistTensorType() if any(isinstance(size, Size) for size in attribute.data.shape):
            x = attribute.data
            dims = tuple(Dim(changed(dim.size), dim.axes) for dim in x.dims)
            return cast("AttributeInvT", DistTensorType(replace(x, dims=dims)))
        case SizesAttr():
            return cast("AttributeInvT", SizesAttr(tuple(map(changed, attribute.data))))
        case SizeAttr():
            return cast("AttributeInvT", SizeAttr(changed(attribute.data)))
        case BindingsAttr():
            bindings = tuple((name, changed(size)) for name, size in attribute.data)
            return cast("AttributeInvT", BindingsAttr(bindings))
        case _:
            return attribute


def attributes_of(op: Operation) -> Iterator[Attribute]:
    """Yield the types and arguments of an operation; of a function, those of its signature."""
    if isinstance(op, FuncOp):
        yield from (*op.function_type.inputs, *op.function_type.outputs)
        yield from (arg.type for block in op.body.blocks for arg in block.args)
        return
    yield from op.properties.values()
    yield from op.result_types


_WITH_SIZES = frozenset({DistTensorType, SizesAttr, SizeAttr, BindingsAttr})
"""The attributes in which there are sizes."""


def has_formulas(op: Operation) -> bool:
    """Return whether a result type or an argument of a step has a size with a formula."""
    for attribute in (*(result.type for result in op.results), *op.properties.values()):
        kind = attribute.__class__  # as fast as can be: this runs for every step
        if kind in _WITH_SIZES:
            for size in sizes_in(attribute):
                if size.__class__ is Size:
                    return True
    return False


def check_formulas(op: Operation, values: Mapping[str, int]) -> None:
    """Check that the sizes of an operation are the values of their formulas.

    Raises:
        VerifyException: a formula has another value, or a parameter that the function has not.
    """
    for attribute in attributes_of(op):
        for size in sizes_in(attribute):
            if isinstance(size, Size):
                _check_formula(size, values)


def _check_formula(size: Size, values: Mapping[str, int]) -> None:
    formula = size.formula
    if unknown := sorted(formula.parameters.difference(values)):
        raise VerifyException(
            f"the formula {formula} names '{unknown[0]}', which is no parameter of the function"
        )
    try:
        value = size_at(formula, values)
    except FormulaError as error:
        raise VerifyException(f"with {bindings_text([formula], values)}, {error}") from error
    if int(value) != int(size):
        bindings = bindings_text([formula], values)
        raise VerifyException(f"with {bindings}, {formula} is {value}, not {int(size)}")


__all__ = [
    "PARAMETERS",
    "attributes_of",
    "bindings_to_equal",
    "check_formulas",
    "has_formulas",
    "keep_used_parameters",
    "parameters_of",
    "set_parameters",
    "shared_attributes",
    "sizes_in",
    "with_sizes_changed",
]
