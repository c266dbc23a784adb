"""Calls between the functions of a module: cycles, and the steps of callees in place of calls."""

from collections.abc import Iterator
from itertools import pairwise

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.nested import CallOp
from collir.ir.diagnostics import Diagnostic, Position, note
from collir.ir.names import set_name


def calls_in(function: FuncOp) -> Iterator[CallOp]:
    """Yield the calls of a function, those in regions too."""
    return (op for op in function.walk() if isinstance(op, CallOp))


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
    """Return the error for functions that call each other, the first of them again at the end."""
    text = f"@{names[0]} calls itself: {' calls '.join(f'@{name}' for name in names)}"
    notes = tuple(
        note(f"@{name} calls @{call.symbol} here", Position.of(call))
        for name, call in list(zip(names, calls, strict=False))[1:]
    )
    return Diagnostic(f"{text}; use a repeat", Position.of(calls[0]), notes)


def inlined(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module with the steps of callees in the place of calls.

    A module without calls is returned as it is.
    """
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    if not any(True for function in functions for _ in calls_in(function)):
        return module
    copy = module.clone()
    inline_calls(copy)
    return copy


def function_without_calls(function: FuncOp) -> FuncOp:
    """Return a function with the steps of callees in the place of calls: itself, or a copy of it in
    a copy of its module."""
    if not any(True for _ in calls_in(function)):
        return function
    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    functions = [op for op in inlined(module).ops if isinstance(op, FuncOp)]
    return next(op for op in functions if op.sym_name == function.sym_name)


def inline_calls(module: ModuleOp) -> None:
    """Put the steps of callees in the place of calls, in all functions of a module."""
    done: set[FuncOp] = set()

    def inline(function: FuncOp) -> None:
        if function in done:
            return
        done.add(function)
        for call in list(calls_in(function)):
            callee = call.function()
            assert callee is not None
            inline(callee)
            _put_steps(call, callee)

    for function in [op for op in module.ops if isinstance(op, FuncOp)]:
        inline(function)


def _put_steps(call: CallOp, callee: FuncOp) -> None:
    """Put the steps of a function in the place of a call."""
    block = call.parent
    assert block is not None
    values: dict[SSAValue, SSAValue] = dict(zip(callee.args, call.operands, strict=True))
    *ops, last = callee.body.block.ops
    for op in ops:
        copy = op.clone(values)
        block.insert_op_before(copy, call)
    for result, returned in zip(call.results, last.operands, strict=True):
        value = values[returned]
        if value not in call.operands:
            set_name(value, result.name_hint or value.name_hint)
        result.replace_all_uses_with(value)
    block.erase_op(call)
