"""A function with callees of its own, which can be changed with it."""

from collections.abc import Iterable

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, SSAValue

from collir.dialects.machine import mesh_of, module_of
from collir.dialects.nested import CallOp, Signature
from collir.dialects.tensor import DistTensorType
from collir.ir.alternatives import FOR, FROM
from collir.ir.calls import calls_in, inline_call
from collir.ir.names import numbered_symbol, set_name
from collir.ir.parameters import bindings_to_equal, parameters_of
from collir.ir.retyping import function_at
from collir.ir.roles import argument_roles, set_argument_roles
from collir.layout import DistType
from collir.transforms.gradients.differentiation import (
    call_gradient,
    erase_unused,
    gradient_function,
)


def own_copy(function: FuncOp, name: str, copies: dict[SSAValue, SSAValue] | None = None) -> FuncOp:
    """Return a private copy of a function, added behind it.

    Args:
        copies: gets the copies of all values.
    """
    block = function.parent_block()
    assert block is not None
    copy = function.clone(copies)
    copy.properties["sym_name"] = StringAttr(numbered_symbol(module_of(function), name))
    copy.properties["sym_visibility"] = StringAttr("private")
    for attribute in (FOR, FROM):
        copy.attributes.pop(attribute, None)
    block.insert_op_after(copy, function)
    return copy


def with_own_callees(function: FuncOp) -> dict[FuncOp, CallOp]:
    """Let all calls of a function run functions that nothing else calls, with equal parameters;
    return these with their calls. Calls without steps to compute again in gradients are inlined.

    Raises:
        DiagnosticError: a gradient cannot be taken.
    """
    callers: dict[FuncOp, CallOp] = {}
    while calls := [call for call in calls_in(function) if call not in callers.values()]:
        for call in calls:
            if call.sought:
                _inline_gradient(call, function)
            elif call.recompute is None and call.fused is None:
                _ = inline_call(call, function)
            else:
                own, new = _with_own_callee(call, function)
                callers |= {**with_own_callees(own), own: new}
    return callers


def _with_own_callee(call: CallOp, function: FuncOp) -> tuple[FuncOp, CallOp]:
    """Return a function that a call alone calls, and the call of it."""
    callee, block = call.function(), call.parent
    assert callee is not None and block is not None
    name = f"{function.sym_name.data}_{call.symbol}"
    with function_at(callee, call.values, parameters_of(function), call.place(callee)) as copy:
        own = own_copy(copy, name)
    again, fused = call.recompute is not None, call.fused is not None
    new = CallOp.of(
        mesh_of(function),
        Signature.of(own),
        list(call.operands),
        bindings_to_equal(own),
        recompute=again,
        fused=fused,
    )
    new.location = call.location
    block.insert_op_before(new, call)
    for old, result in zip(call.results, new.results, strict=True):
        set_name(result, old.name_hint)
        old.replace_all_uses_with(result)
    block.erase_op(call)
    return own, new


def _inline_gradient(call: CallOp, function: FuncOp) -> None:
    """Replace a gradient by its steps."""
    callee = call.function()
    assert callee is not None
    gradient = gradient_function(callee, call.sought)
    _ = inline_call(call_gradient(call, gradient), function)
    erase([gradient])


def add_argument(function: FuncOp, x: DistType, name: str | None) -> BlockArgument:
    """Return a new last argument of a function."""
    argument = function.body.block.insert_arg(DistTensorType(x), len(function.args))
    set_name(argument, name)
    function.update_function_type()
    if function.arg_attrs is not None:
        function.arg_attrs = ArrayAttr([*function.arg_attrs, DictionaryAttr({})])
    return argument


def keep_results(function: FuncOp, values: Iterable[SSAValue]) -> list[int]:
    """Let a function return only some values, and take only what these need; return the numbers of
    the arguments that it keeps."""
    block = function.body.block
    last = block.last_op
    assert isinstance(last, ReturnOp)
    new = ReturnOp(*values)
    new.location = last.location
    block.erase_op(last)
    block.add_op(new)
    erase_unused(block)
    roles = argument_roles(function)
    kept = [n for n, argument in enumerate(function.args) if argument.uses.get_length()]
    for argument in [argument for n, argument in enumerate(function.args) if n not in kept]:
        block.erase_arg(argument)
    for name in ("arg_attrs", "res_attrs"):
        function.properties.pop(name, None)
    function.update_function_type()
    set_argument_roles(function, [roles[number] for number in kept])
    return kept


def erase(functions: Iterable[FuncOp]) -> None:
    """Erase functions that nothing calls any more."""
    for function in functions:
        function.detach()
        function.erase(safe_erase=False)
