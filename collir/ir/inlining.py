"""Functions without calls: the steps of callees, and of gradients, in the place of calls."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import module_of
from collir.ir.calls import callees_first, calls_in, inline_call
from collir.ir.differentiation import gradients_as_calls
from collir.ir.selection import erase_other_functions


def function_without_calls(function: FuncOp) -> FuncOp:
    """Return a function with the steps of callees in the place of calls: itself, or a copy of it in
    a copy of what it needs of its module."""
    if not any(True for _ in calls_in(function)):
        return function
    module = module_of(function)
    copy = module.clone()
    erase_other_functions(copy, [function.sym_name.data])
    inline_calls(copy)
    functions = [op for op in copy.ops if isinstance(op, FuncOp)]
    return next(op for op in functions if op.sym_name == function.sym_name)


def inline_calls(module: ModuleOp) -> None:
    """Put the steps of callees in the place of calls, in all functions of a module.

    A gradient is the call of a function that is made for it and does not stay.

    Raises:
        DiagnosticError: a function cannot be differentiated.
    """
    made = gradients_as_calls(module)
    for function in callees_first(module):
        for call in list(calls_in(function)):
            _ = inline_call(call, function)
    for function in made:
        function.detach()
        function.erase()
