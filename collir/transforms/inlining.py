"""Functions without calls: callees and gradients are inlined."""

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
    """Return a function with its callees inlined: itself, or a copy of it in a copy of the part of
    its module that it needs."""
    [alone] = functions_without_calls([function])
    return alone


def functions_without_calls(functions: Sequence[FuncOp]) -> list[FuncOp]:
    """Return functions of one module with their callees inlined: themselves, or copies in one copy
    of the part of the module that they need."""
    if not any(True for function in functions for _ in calls_in(function)):
        return [*functions]
    names = [function.sym_name.data for function in functions]
    copy = copy_with_functions(module_of(functions[0]), names)
    inline_calls(copy)
    copies = {op.sym_name.data: op for op in copy.ops if isinstance(op, FuncOp)}
    return [copies[name] for name in names]


def inline_calls(module: ModuleOp, tasks: bool = True) -> None:
    """Inline the callees in all functions of a module.

    A gradient counts as a call of a function made for it, which is erased after its last call. A
    loop whose tasks become steps has no schedule any more, and computes the same.

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
    """Check that functions do not have too many steps after inlining; each follows its callees.

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
