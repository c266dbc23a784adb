"""Calls between the functions of a module: cycles, and functions at the values of calls."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.tensor import BindingsAttr
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.ir.fusion import fuse, fusion_error
from collir.ir.names import set_name
from collir.ir.parameters import parameters_of
from collir.ir.retyping import function_at
from collir.ir.roles import pass_role
from collir.ir.steps import axes_named
from collir.layout.types import place_text


def calls_in(function: FuncOp) -> Iterator[CallOp]:
    """Yield the calls of a function, those in loops behind all others."""
    blocks = list(function.body.blocks)
    for block in blocks:  # grows meanwhile
        for op in block.ops:
            if type(op) is CallOp:  # not by ``isinstance``, which is slow
                yield op
            elif type(op) is RepeatOp:
                blocks += op.body.blocks


def given(call: CallOp, number: int) -> SSAValue:
    """Return the argument of the caller that an operand of a call is made of."""
    value: SSAValue = call.operands[number]
    while isinstance(value, OpResult) and value.op.operands:
        value = value.op.operands[0]
    return value


def called_names(module: ModuleOp) -> set[str]:
    """Return the names of the functions that functions of a module call."""
    functions = (op for op in module.ops if isinstance(op, FuncOp))
    return {call.symbol for function in functions for call in calls_in(function)}


def recursion_errors(module: ModuleOp) -> list[Diagnostic]:
    """Return an error for each cycle of functions that call each other."""
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    calls = {
        name: {call.symbol: call for call in calls_in(function) if call.symbol in functions}
        for name, function in functions.items()
    }
    errors: list[Diagnostic] = []
    ended: set[str] = set()
    for start in functions:
        path: list[str] = []
        stack = [(start, iter(calls[start]))] if start not in ended else []
        while stack:
            name, callees = stack[-1]
            if len(path) < len(stack):
                path.append(name)
            callee = next(callees, None)
            if callee is None:
                stack.pop()
                ended.add(path.pop())
            elif callee in path:
                cycle = [*path[path.index(callee) :], callee]
                steps = [calls[caller][name] for caller, name in pairwise(cycle)]
                errors.append(_cycle_error(steps, cycle))
            elif callee not in ended:
                stack.append((callee, iter(calls[callee])))
    return errors


def _cycle_error(calls: list[CallOp], names: list[str]) -> Diagnostic:
    """Return the error for functions that call each other in a cycle."""
    text = f"@{names[0]} calls itself: {' calls '.join(f'@{name}' for name in names)}"
    notes = tuple(
        note(f"@{name} calls @{call.symbol} here", Position.of(call))
        for name, call in list(zip(names, calls, strict=False))[1:]
    )
    return Diagnostic(f"{text}; use a repeat", Position.of(calls[0]), notes)


def fusion_errors(module: ModuleOp) -> list[Diagnostic]:
    """Return an error for each fused call of a function with steps that are no part of a kernel.

    Functions do not call themselves.
    """
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    fused = [
        call for function in functions for call in calls_in(function) if call.fused is not None
    ]
    errors = (
        next(filter(None, (fusion_error(call, op) for op in _steps_of(call))), None)
        for call in fused
    )
    return [error for error in errors if error]


def place_errors(module: ModuleOp) -> list[Diagnostic]:
    """Return an error for each call at a place on sub-axes that its callees name themselves.

    Functions do not call themselves.
    """
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    calls = [call for function in functions.values() for call in calls_in(function)]
    known = [call for call in calls if call.symbol in functions]
    placed = [(call, place) for call in known if (place := call.place(functions[call.symbol]))]
    named = _axes_of_functions(module) if placed else {}
    errors: list[Diagnostic] = []
    for call, place in placed:
        steps = named[call.symbol]
        if (axis := next((axis for axis, _ in place if axis in steps), None)) is not None:
            mesh = mesh_of(call)
            text = (
                f"@{call.symbol} is called at {place_text(place, mesh)}, and has a step over "
                f"{', '.join(mesh.short((axis,)))}: a function that is called at a place names "
                "none of its sub-axes"
            )
            step = note("the step is here", Position.of(steps[axis]))
            errors.append(Diagnostic(text, Position.of(call), (step,)))
    return errors


def _axes_of_functions(module: ModuleOp) -> dict[str, dict[str, Operation]]:
    """Return the sub-axes that each function names, itself or in its callees, each with an
    operation that does."""
    named: dict[str, dict[str, Operation]] = {}
    for function in callees_first(module):
        own = named.setdefault(function.sym_name.data, {})
        for call in calls_in(function):
            own |= named.get(call.symbol, {})
        for op in function.walk():
            own |= dict.fromkeys(axes_named(op), op)
    return named


def _steps_of(call: CallOp) -> Iterator[Operation]:
    """Yield the steps of the function that is called and of its callees, each once."""
    calls, seen = [call], set[str]()
    while calls:
        callee = (called := calls.pop()).function()
        if callee is None or called.symbol in seen:
            continue
        seen.add(called.symbol)
        for op in callee.body.ops:
            if type(op) is CallOp:
                calls.append(op)
            elif not isinstance(op, ReturnOp):
                yield op


def callees_first(module: ModuleOp) -> list[FuncOp]:
    """Return the functions of a module without cycles of calls, each behind its callees."""
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    ordered: dict[FuncOp, None] = {}
    for start in functions.values():
        stack = [start]
        while stack:
            callees = dict.fromkeys(functions.get(call.symbol) for call in calls_in(stack[-1]))
            missing = [callee for callee in callees if callee and callee not in ordered]
            if missing:
                stack += missing
            else:
                ordered[stack.pop()] = None
    return list(ordered)


def inline_call(call: CallOp, function: FuncOp) -> list[Operation]:
    """Put the steps of its callee in the place of a call in a function, and return them."""
    callee = call.function()
    assert callee is not None
    with function_at(callee, call.values, parameters_of(function), call.place(callee)) as copy:
        if call.fused is not None:
            for nested in list(calls_in(copy)):
                _ = inline_call(nested, copy)
            fuse(list(copy.body.block.ops)[:-1], call, function)
        return _put_steps(call, copy)


def _put_steps(call: CallOp, copy: FuncOp) -> list[Operation]:
    """Move the steps of the copy of a function to the place of a call, and return them."""
    block = call.parent
    assert block is not None
    for argument, operand in zip(copy.args, call.operands, strict=True):
        argument.replace_all_uses_with(operand)
    *ops, last = copy.body.block.ops
    for op in ops:
        op.detach()
        block.insert_op_before(op, call)
    for result, value in zip(call.results, last.operands, strict=True):
        if value not in call.operands:
            set_name(value, result.name_hint or value.name_hint)
            pass_role(result, value)
        result.replace_all_uses_with(value)
    block.erase_op(call)
    return ops


# ---------------------------------------------------------------------------------------------
# Functions at the values of calls
# ---------------------------------------------------------------------------------------------

_Key = tuple[FuncOp, BindingsAttr]
"""A function, and the values that it is called at."""


@dataclass
class _Checked:
    """The outcome of checking a function at some values.

    Attributes:
        error: the first error in it.
        parameters: the parameters in the values of its calls.
        calls: the calls in it that give values, each with its position and what it runs.
    """

    parameters: Mapping[str, int]
    error: Diagnostic | None = None
    calls: list[tuple[Position | None, _Key]] = field(default_factory=list)


def call_errors(
    module: ModuleOp, errors_in: Callable[[FuncOp], list[Diagnostic]]
) -> list[Diagnostic]:
    """Return an error for each call at whose values the function is not well typed.

    Each function is checked once for each set of values that it is called at.

    Args:
        errors_in: function from a function to the errors in it.
    """
    with meshes_remembered():
        checked = _all_checked(module, errors_in)
    if not any(result.error for result in checked.values()):
        return []
    errors = (
        _error_behind(Position.of(call), _key(call), checked) for _, call in _all_at_values(module)
    )
    return [error for error in errors if error]


def functions_at_values(module: ModuleOp) -> list[FuncOp]:
    """Return the functions that calls of a module run at other values than the defaults."""
    if not _all_at_values(module):
        return []
    return list(dict.fromkeys(callee for callee, _ in _all_checked(module, lambda _: [])))


def misfits(
    module: ModuleOp, errors_in: Callable[[FuncOp], list[Diagnostic]]
) -> dict[FuncOp, BindingsAttr]:
    """Return the functions that are not well typed at values of calls, and such values."""
    checked = _all_checked(module, errors_in)
    return {key[0]: key[1] for key, result in checked.items() if result.error}


def _all_checked(
    module: ModuleOp, errors_in: Callable[[FuncOp], list[Diagnostic]]
) -> dict[_Key, _Checked]:
    """Return the outcome of checking every function at all values of its calls."""
    checked: dict[_Key, _Checked] = {}
    missing = [(_key(call), parameters_of(function)) for function, call in _all_at_values(module)]
    while missing:
        key, parameters = missing.pop()
        if key not in checked:
            checked[key] = _checked(key, parameters, errors_in)
            missing += [(called, checked[key].parameters) for _, called in checked[key].calls]
    return checked


def _all_at_values(module: ModuleOp) -> list[tuple[FuncOp, CallOp]]:
    """Return the calls of a module that give values, each with the function around it."""
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    return [(function, call) for function in functions for call in _calls_at_values(function)]


def _calls_at_values(function: FuncOp) -> list[CallOp]:
    return [call for call in calls_in(function) if call.bindings is not None]


def _key(call: CallOp) -> _Key:
    callee = call.function()
    assert callee is not None
    assert call.bindings is not None
    return callee, call.bindings


def _checked(
    key: _Key,
    parameters: Mapping[str, int],
    errors_in: Callable[[FuncOp], list[Diagnostic]],
) -> _Checked:
    """Return what is found out about a function at the values of a call.

    Args:
        parameters: the parameters of the function with the call.
    """
    callee, bindings = key
    defaults = parameters_of(callee)
    if all(defaults.get(name) == int(value) for name, value in bindings.data):
        # As every function, it is checked at its defaults.
        own = [(Position.of(c), _key(c)) for c in _calls_at_values(callee)]
        return _Checked(defaults, calls=own)
    try:
        with function_at(callee, dict(bindings.data), parameters) as copy:
            if errors := errors_in(copy):
                return _Checked(parameters, errors[0])
            own = [(Position.of(c), _key(c)) for c in _calls_at_values(copy)]
            return _Checked(parameters, calls=own)
    except DiagnosticError as error:
        return _Checked(parameters, error.diagnostics[0])


def _error_behind(
    position: Position | None, key: _Key, checked: Mapping[_Key, _Checked]
) -> Diagnostic | None:
    """Return the error at a call whose callee has an error, or None."""
    ways: list[list[tuple[Position | None, _Key]]] = [[(position, key)]]
    seen: set[_Key] = set()
    while ways:
        way = ways.pop()
        last = way[-1][1]
        if last in seen:
            continue
        seen.add(last)
        if error := checked[last].error:
            notes = [note(f"{_called(*k)} is called here", place) for place, k in way[1:]]
            text = f"{_called(*last)} is not well typed: {error.message}"
            notes.append(note("the error is here", error.position))
            return Diagnostic(text, position, (*notes, *error.notes))
        ways += [[*way, called] for called in reversed(checked[last].calls)]
    return None


def _called(function: FuncOp, bindings: BindingsAttr) -> str:
    """Return a function at values as messages write it: ``@f(batch = 8)``."""
    return f"@{function.sym_name.data}({values_text(bindings)})"


def values_text(bindings: BindingsAttr) -> str:
    """Return the values of a call as messages write them: ``batch = 8, hidden = 64``."""
    return ", ".join(f"{name} = {value}" for name, value in bindings.data)
