"""Functions at other values of their size parameters.

Every formula is evaluated again, and every step is typed again. A program that passes have changed
for some values either is well typed for others too, which proves it as at first, or has a step that
is not: the error at that step is the guard that fails.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, AttributeInvT, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, SizeAttr, SizesAttr, dist_type
from collir.ir.alternatives import place_of
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.parameters import default_error, parameters_of, set_parameters
from collir.ir.renaming import set_type
from collir.ir.verification import verify
from collir.layout import Dim, LayoutError, check_type
from collir.layout.formulas import FormulaError
from collir.layout.sizes import Size, size_at


def instantiate(module: ModuleOp, values: Mapping[str, int], function: str = "") -> None:
    """Give parameters of functions other values, in place, and check the module.

    A function that takes the place of another is instantiated together with it.

    Args:
        values: the new values of parameters. A parameter that is not named keeps its default.
        function: the name of the function; by default, all functions that have one of the
            parameters.

    Raises:
        DiagnosticError: there is no such function or parameter, or the program is not well typed
            with these values; the module is left as it was.
    """
    functions = _chosen(module, values, function)
    before = [_State.of(f) for f in functions]
    try:
        for changed in functions:
            _instantiate(changed, values)
        verify(module)
    except DiagnosticError as error:
        for state in before:
            state.restore()
        raise _with_values(error, values) from error


def _chosen(module: ModuleOp, values: Mapping[str, int], name: str) -> list[FuncOp]:
    """Return the functions that get other values; all names and values have to fit them."""
    functions = functions_of(module)
    known = {f.sym_name.data: parameters_of(f) for f in functions}
    for parameter, value in values.items():
        if problem := default_error(parameter, value):
            raise DiagnosticError(Diagnostic(problem))
    if name and name not in known:
        listed = ", ".join(f"@{other}" for other in known) or "none"
        raise DiagnosticError(Diagnostic(f"there is no function @{name} (there are {listed})"))
    candidates = {name: known[name]} if name else known
    for parameter in values:
        if not any(parameter in parameters for parameters in candidates.values()):
            names = dict.fromkeys(p for parameters in candidates.values() for p in parameters)
            subject = f"@{name}" if name else "no function"
            has = "has no" if name else "has a"
            listed = ", ".join(names) or "none"
            text = f"{subject} {has} parameter '{parameter}' (there are {listed})"
            raise DiagnosticError(Diagnostic(text))
    return [
        f
        for f in functions
        if not known[f.sym_name.data].keys().isdisjoint(values)
        and name in ("", f.sym_name.data, (place_of(f) or ("",))[0])
    ]


def _instantiate(function: FuncOp, values: Mapping[str, int]) -> None:
    """Evaluate the formulas of a function again, and type its steps again.

    Raises:
        DiagnosticError: at the first type or step that is wrong.
    """
    old = parameters_of(function)
    new = {name: values.get(name, value) for name, value in old.items()}
    mesh = mesh_of(function)
    item: Operation | SSAValue = function
    try:
        signature = function.function_type
        inputs = [_at(x, new) for x in signature.inputs]
        outputs = [_at(x, new) for x in signature.outputs]
        function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
        for item in function.args:
            set_type(item, _at(item.type, new))
            check_type(mesh, dist_type(item))
        for item in function.body.ops:
            if isinstance(item, DistOp):
                item.properties = {name: _at(x, new) for name, x in item.properties.items()}
                types = [dist_type(operand) for operand in item.operands]
                result = item.result_type(mesh, types, item.properties)
                set_type(item.result, DistTensorType(result))
    except (FormulaError, LayoutError) as error:
        names = item.operand_names() if isinstance(item, DistOp) else ()
        text = error.text(names) if isinstance(error, LayoutError) else str(error)
        raise DiagnosticError.at(item, text) from error
    set_parameters(function, new)


def _at(attribute: AttributeInvT, values: Mapping[str, int]) -> AttributeInvT:
    """Return the attribute of a type or of an argument, for other values of parameters."""
    match attribute:
        case DistTensorType():
            x = attribute.data
            if not any(isinstance(size, Size) for size in x.shape):
                return attribute
            dims = tuple(Dim(_size_at(dim.size, values), dim.axes) for dim in x.dims)
            return cast("AttributeInvT", DistTensorType(replace(x, dims=dims)))
        case SizesAttr():
            sizes = (_size_at(size, values) for size in attribute.data)
            return cast("AttributeInvT", SizesAttr(tuple(sizes)))
        case SizeAttr():
            return cast("AttributeInvT", SizeAttr(_size_at(attribute.data, values)))
        case _:
            return attribute


def _size_at(size: int, values: Mapping[str, int]) -> int:
    return size_at(size.formula, values) if isinstance(size, Size) else size


def _with_values(error: DiagnosticError, values: Mapping[str, int]) -> DiagnosticError:
    """Return an error whose messages begin with the values of parameters."""
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    return DiagnosticError(
        replace(diagnostic, message=f"with {listed}, {diagnostic.message}")
        for diagnostic in error.diagnostics
    )


@dataclass(frozen=True)
class _State:
    """The types and arguments of a function, to restore."""

    function: FuncOp
    attributes: dict[str, Attribute]
    properties: list[tuple[Operation, dict[str, Attribute]]]
    types: list[tuple[SSAValue, Attribute]]

    @staticmethod
    def of(function: FuncOp) -> "_State":
        ops = list(function.walk())
        values = [*function.args, *(result for op in ops for result in op.results)]
        return _State(
            function,
            dict(function.attributes),
            [(op, dict(op.properties)) for op in ops],
            [(value, value.type) for value in values],
        )

    def restore(self) -> None:
        """Give the function its types and arguments back."""
        self.function.attributes = self.attributes
        for op, properties in self.properties:
            op.properties = properties
        for value, old in self.types:
            set_type(value, old)
