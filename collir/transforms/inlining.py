"""Functions without calls: the steps of callees, and of gradients, in the place of calls."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import module_of
from collir.dialects.nested import RepeatOp
from collir.ir.calls import called_names, callees_first, calls_in, inline_call
from collir.ir.diagnostics import DiagnosticError
from collir.ir.loops import MOST_STEPS
from collir.ir.selection import copy_with_functions
from collir.transforms.gradients.differentiation import gradients_as_calls


def function_without_calls(function: FuncOp) -> FuncOp:
    """Return a function with the steps of callees in the place of calls: itself, or a copy of it in
    a copy of what it needs of its module."""
    [alone] = functions_without_calls([function])
    return alone


def functions_without_calls(functions: Sequence[FuncOp]) -> list[FuncOp]:
    """Return functions of one module with the steps of callees in the place of calls: themselves,
    or copies of them in one copy of what they need of their module."""
    if not any(True for function in functions for _ in calls_in(function)):
        return [*functions]
    names = [function.sym_name.data for function in functions]
    copy = copy_with_functions(module_of(functions[0]), names)
    inline_calls(copy)
    copies = {op.sym_name.data: op for op in copy.ops if isinstance(op, FuncOp)}
    return [copies[name] for name in names]


def inline_calls(module: ModuleOp, tasks: bool = True) -> None:
    """Put the steps of callees in the place of calls, in all functions of a module.

    A gradient is the call of a function that is made for it, and goes where no call of it is left.
    A loop whose tasks become steps has no schedule any more, and computes the same.

    Args:
        tasks: whether tasks of loops with schedules become steps too.

    Raises:
        DiagnosticError: a function cannot be differentiated, or has too many steps.
    """
    _ = gradients_as_calls(module)
    functions = callees_first(module)
    _check_length(functions)
    for function in functions:
        for call in list(calls_in(function)):
            loop = call.parent_op()
            if isinstance(loop, RepeatOp) and loop.schedule is not None:
                if not tasks:
                    continue
                loop.schedule = None
            _ = inline_call(call, function)
    called = called_names(module)
    for function in functions:
        if function.sym_visibility is not None and function.sym_name.data not in called:
            function.detach()
            function.erase()


def _check_length(functions: Sequence[FuncOp]) -> None:
    """Check that functions, each behind those that it calls, have not too many steps with theirs.

    Raises:
        DiagnosticError: a function has more than ``MOST_STEPS``.
    """
    steps: dict[str, int] = {}
    for function in functions:
        name = function.sym_name.data
        steps[name] = sum(1 for _ in function.walk())
        steps[name] += sum(steps[call.symbol] for call in calls_in(function))
        if steps[name] > MOST_STEPS:
            text = f"with those of the functions that it calls, @{name} has more than {MOST_STEPS}"
            raise DiagnosticError.at(function, f"{text} steps: call fewer, or in a repeat")
