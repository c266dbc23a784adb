"""Functions at other values of their size parameters.

Every formula is evaluated again, and every step is typed again. A program that passes have changed
for some values either is well typed for others too, which proves it as at first, or has a step that
is not: the error at that step is the guard that fails.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, AttributeInvT, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp, argument_types, result_types
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.alternatives import place_of
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.parameters import (
    default_error,
    parameters_of,
    set_parameters,
    with_sizes_changed,
)
from collir.ir.renaming import map_attributes, set_type
from collir.ir.verification import verify
from collir.layout import DistType, LayoutError, Mesh, check_type
from collir.layout.formulas import Formula, FormulaError
from collir.layout.sizes import formula_of, size_at, substituted


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


def fix_parameters(function: FuncOp, names: Iterable[str]) -> None:
    """Remove parameters from a function: sizes depend on them no more, and keep their values."""
    values = parameters_of(function)
    fixed = {name: Formula.constant(values.pop(name)) for name in names}
    if fixed:
        change = partial(substituted, formulas=fixed)
        map_attributes(function, lambda attribute: with_sizes_changed(attribute, change))
        set_parameters(function, values)


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
    item: FuncOp | SSAValue = function
    try:
        signature = function.function_type
        inputs = [_at(x, new) for x in signature.inputs]
        outputs = [_at(x, new) for x in signature.outputs]
        function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
        for item in function.args:
            set_type(item, _at(item.type, new))
            check_type(mesh, dist_type(item))
    except (FormulaError, LayoutError) as error:
        raise _error_at(item, error) from error
    for op in function.body.ops:
        _type_again(op, mesh, new)
    set_parameters(function, new)


def _type_again(op: Operation, mesh: Mesh, values: Mapping[str, int]) -> None:
    """Evaluate the formulas of an operation again, and infer the types of its results.

    Raises:
        DiagnosticError: at the first step that is wrong.
    """
    if not isinstance(op, DistOp | RepeatOp):
        return
    try:
        op.properties = {name: _at(x, values) for name, x in op.properties.items()}
        types = [dist_type(operand) for operand in op.operands]
        if isinstance(op, DistOp):
            _set_types(op.results, [op.result_type(mesh, types, op.properties)])
            return
        inputs = argument_types(mesh, op.times, types, len(op.carried), len(op.sliced))
        _set_types(op.body.block.args, inputs)
        for inner in op.body.ops:
            _type_again(inner, mesh, values)
        yielded = [dist_type(value) for value in op.yielded]
        _set_types(op.results, result_types(mesh, op.times, yielded, len(op.carried)))
    except (FormulaError, LayoutError) as error:
        raise _error_at(op, error) from error


def _set_types(values: Iterable[SSAValue], types: Iterable[DistType]) -> None:
    for value, x in zip(values, types, strict=True):
        set_type(value, DistTensorType(x))


def _error_at(item: Operation | SSAValue, error: FormulaError | LayoutError) -> DiagnosticError:
    names: Iterable[str] = ()
    if isinstance(item, DistOp):
        names = item.operand_names()
    elif isinstance(item, RepeatOp):
        names = [value_text(operand) for operand in item.operands]
    text = error.text(names) if isinstance(error, LayoutError) else str(error)
    return DiagnosticError.at(item, text)


def _at(attribute: AttributeInvT, values: Mapping[str, int]) -> AttributeInvT:
    """Return the attribute of a type or of an argument, for other values of parameters."""
    return with_sizes_changed(attribute, lambda size: size_at(formula_of(size), values))


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
        values: list[SSAValue] = [result for op in ops for result in op.results]
        values += [arg for op in ops for region in op.regions for arg in region.block.args]
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
