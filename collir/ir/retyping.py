"""Functions whose sizes change: their formulas are evaluated again, and their steps typed again.

A caller is typed again after its callee, since a call has the callee's types at the values of the
call.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import (
    CallOp,
    NestedOp,
    RepeatOp,
    Signature,
    argument_types,
    result_types,
)
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.parameters import parameters_of, set_parameters, with_sizes_changed
from collir.ir.renaming import map_attributes, set_type
from collir.layout import DistType, LayoutError, Mesh, Place, check_type
from collir.layout.formulas import Formula, FormulaError
from collir.layout.sizes import formula_of, size_at, size_with, substituted

Change = Callable[[int], int]
"""A function from a size with a formula to the new size."""


def at_values(values: Mapping[str, int]) -> Change:
    """Return the change to other values of the parameters, which keeps formulas."""
    return lambda size: size_at(formula_of(size), values)


def retype(function: FuncOp, change: Change) -> None:
    """Change the sizes of a function that have formulas, and type its steps again, in place.

    Raises:
        DiagnosticError: at the first type or step that is wrong.
    """
    mesh = mesh_of(function)
    item: FuncOp | SSAValue = function
    try:
        signature = function.function_type
        inputs = [with_sizes_changed(x, change) for x in signature.inputs]
        outputs = [with_sizes_changed(x, change) for x in signature.outputs]
        function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
        for item in function.args:
            set_type(item, with_sizes_changed(item.type, change))
            check_type(mesh, dist_type(item))
    except (FormulaError, LayoutError) as error:
        raise _error_at(item, error) from error
    for op in function.body.ops:
        _retype_step(op, mesh, change)


def _retype_step(op: Operation, mesh: Mesh, change: Change) -> None:
    """Change the sizes of an operation, and infer the types of its results.

    Raises:
        DiagnosticError: at the first step that is wrong.
    """
    if not isinstance(op, DistOp | NestedOp):
        return
    try:
        op.properties = {
            name: with_sizes_changed(attribute, change) for name, attribute in op.properties.items()
        }
        types = [dist_type(operand) for operand in op.operands]
        if isinstance(op, DistOp):
            _set_types(op.results, [op.result_type(mesh, types, op.properties)])
        elif isinstance(op, CallOp):
            callee = op.function()
            assert callee is not None
            signature = Signature.of(callee)
            results = signature.results(mesh, types, op.values)
            _set_types(op.results, [*results, *signature.gradients(mesh, types, op.sought)])
        elif isinstance(op, RepeatOp):
            inputs = argument_types(mesh, op.times, types, len(op.carried), len(op.sliced))
            _set_types(op.body.block.args, inputs)
            for inner in op.body.ops:
                _retype_step(inner, mesh, change)
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
    elif isinstance(item, NestedOp):
        names = [value_text(operand) for operand in item.operands]
    text = error.text([*names]) if isinstance(error, LayoutError) else str(error)
    return DiagnosticError.at(item, text)


@contextmanager
def function_at(
    function: FuncOp,
    bindings: Mapping[str, int],
    parameters: Mapping[str, int],
    place: Place = (),
) -> Generator[FuncOp]:
    """Insert a copy of a function at other values behind it, and remove the copy again.

    Args:
        bindings: the values of parameters of the function, with their formulas over ``parameters``;
            a parameter that is not named has its default.
        parameters: the parameters of the copy: those of a caller, or none.
        place: coordinates on sub-axes that the function does not name, where the copy runs.

    Raises:
        DiagnosticError: at the first type or step that is wrong at these values.
    """
    block = function.parent_block()
    assert block is not None
    copy = function.clone()
    block.insert_op_after(copy, function)
    try:
        if old := parameters_of(function):
            retype(copy, partial(size_with, values={**old, **bindings}))
            set_parameters(copy, parameters)
        if place:
            map_attributes(copy, partial(_placed, place))
        yield copy
    finally:
        copy.detach()
        copy.erase(safe_erase=False)


def _placed(place: Place, attribute: Attribute) -> Attribute:
    """Return a type at a place too."""
    if isinstance(attribute, DistTensorType):
        return DistTensorType(attribute.data.with_place(place))
    return attribute


def fix_parameters(function: FuncOp, names: Iterable[str]) -> None:
    """Remove parameters from a function: sizes depend on them no more, and keep their values."""
    values = parameters_of(function)
    fixed = {name: Formula.constant(values.pop(name)) for name in names}
    if fixed:
        change = partial(substituted, formulas=fixed)
        map_attributes(function, lambda attribute: with_sizes_changed(attribute, change))
        set_parameters(function, values)
