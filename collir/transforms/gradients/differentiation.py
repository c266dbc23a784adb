"""Gradients of functions: a function that also returns gradients of its first result.

Reverse-mode differentiation of the meaning on one device: first the unchanged forward program, then
the cotangents from the last step to the first. The gradient with respect to an argument has the
layout of the argument.
"""

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.traits import Pure

from collir.dialects.machine import mesh_of, module_of
from collir.dialects.nested import CallOp, RepeatOp, Signature
from collir.dialects.tensor import dist_type
from collir.ir.alternatives import FOR, FROM
from collir.ir.calls import callees_first, calls_in, fusion_errors, inline_call
from collir.ir.diagnostics import DiagnosticError
from collir.ir.names import (
    argument_names,
    name_signature,
    result_names,
    set_name,
    unused_symbol,
)
from collir.ir.roles import Role, role_of, set_role
from collir.transforms.gradients.reverse import (
    Cotangents,
    ForwardValues,
    Path,
    RecomputedSteps,
    activity,
)
from collir.transforms.terms import BlockSteps


def gradients_as_calls(module: ModuleOp) -> list[FuncOp]:
    """Replace gradients by plain calls, and return the private functions made for them, which are
    erased when nothing calls them.

    Raises:
        DiagnosticError: a function cannot be differentiated, or a gradient not be fused.
    """
    made: dict[tuple[FuncOp, tuple[int, ...]], FuncOp] = {}
    for function in callees_first(module):
        for call in [call for call in calls_in(function) if call.sought]:
            callee = call.function()
            assert callee is not None
            key = (callee, call.sought)
            if key not in made:
                made[key] = gradient_function(callee, call.sought)
                made[key].properties["sym_visibility"] = StringAttr("private")
            _ = call_gradient(call, made[key])
    if made and (errors := fusion_errors(module)):
        raise DiagnosticError(errors)
    return list(made.values())


def call_gradient(call: CallOp, gradient: FuncOp) -> CallOp:
    """Put a plain call of a gradient function in the place of a gradient, and return it."""
    block = call.parent
    assert block is not None
    plain = CallOp.of(
        mesh_of(call),
        Signature.of(gradient),
        list(call.operands),
        call.values,
        recompute=call.recompute is not None,
        fused=call.fused is not None,
    )
    plain.location = call.location
    block.insert_op_before(plain, call)
    for old, new in zip(call.results, plain.results, strict=True):
        set_name(new, old.name_hint)
        old.replace_all_uses_with(new)
    block.erase_op(call)
    return plain


def gradient_function(function: FuncOp, wrt: Sequence[int]) -> FuncOp:
    """Return a function that is added behind another one, with its results and the gradients of the
    first with respect to some of its arguments.

    Args:
        function: a function whose callees have no gradients in them.
        wrt: the numbers of the arguments.

    Raises:
        DiagnosticError: a step cannot be differentiated.
    """
    module, block = module_of(function), function.parent_block()
    assert block is not None
    copy = function.clone()
    copy.properties["sym_name"] = type(function.sym_name)(
        unused_symbol(module, f"{function.sym_name.data}_gradient")
    )
    for attribute in (FOR, FROM):
        copy.attributes.pop(attribute, None)
    block.insert_op_after(copy, function)
    try:
        _differentiate(copy, wrt)
    except BaseException:
        copy.detach()
        copy.erase(safe_erase=False)
        raise
    return copy


def _differentiate(function: FuncOp, wrt: Sequence[int]) -> None:
    """Add the reverse program to a function, and the gradients to its results."""
    groups = _inlined(function)
    block = function.body.block
    *ops, last = block.ops
    assert isinstance(last, ReturnOp)
    results, arguments = list(last.operands), argument_names(function)
    names = [*result_names(function), *(f"d_{arguments[number]}" for number in wrt)]
    block.erase_op(last)
    active: set[SSAValue] = {function.args[number] for number in wrt}
    activity(ops, active)
    steps = BlockSteps(mesh_of(function), block)
    steps.location = last.location
    kept = ForwardValues(steps, _kept, groups, lambda op: False)
    cotangents = Cotangents(steps, kept, active, {})
    cotangents.add(results[0], steps.constant(dist_type(results[0]).whole, 1))
    cotangents.run(ops)
    steps.location = last.location
    for number in wrt:
        argument = function.args[number]
        gradient = cotangents.of_or_zero(argument)
        if gradient.name_hint is None:
            set_name(gradient, f"d_{arguments[number]}")
        if isinstance(gradient, OpResult):
            set_role(gradient, Role.GRADIENT)
        results.append(gradient)
    _ = steps.add(ReturnOp(*map(cotangents.current, results)))
    erase_unused(block)
    function.update_function_type()
    _ = function.properties.pop("res_attrs", None)
    name_signature(function, arguments, names)


def _kept(value: SSAValue) -> SSAValue:
    """Return a value of the forward program, which the reverse program reads in place."""
    if isinstance(value, OpResult) and role_of(value) is None:
        set_role(value, Role.ACTIVATION)
    return value


def _inlined(function: FuncOp) -> dict[Operation, Path]:
    """Inline all calls of a function, and return the steps to compute again, with their calls."""
    groups: dict[Operation, Path] = {}
    number = 0
    while calls := list(calls_in(function)):
        for call in calls:
            number += 1
            around, fused = groups.get(call, ()), call.fused is not None
            path = around
            inside = bool(around) and around[-1].fused
            if (fused and not inside) or (call.recompute is not None and not around):
                path = (*around, RecomputedSteps(number, fused))
            steps = inline_call(call, function)
            if path:
                groups |= dict.fromkeys(steps, path)
    return groups


def erase_unused(block: Block) -> None:
    """Erase the steps of a block and of the loops in it whose results are not used."""
    for op in reversed(list(block.ops)):
        unused = all(not result.uses.get_length() for result in op.results)
        if op.results and unused and op.has_trait(Pure):
            block.erase_op(op)
        elif isinstance(op, RepeatOp):
            erase_unused(op.body.block)
