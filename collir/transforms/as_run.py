"""Programs as they run: without calls, and with ``ahead`` steps in the iteration before."""

from collections.abc import Collection

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import module_of
from collir.dialects.nested import RepeatOp
from collir.ir.ahead import is_ahead
from collir.ir.calls import calls_in
from collir.ir.selection import copy_with_functions
from collir.transforms.inlining import inline_calls
from collir.transforms.loops.rotation import rotate_all


def prepare(module: ModuleOp, tasks: bool = False) -> None:
    """Put the steps of callees in the place of calls, and rotate all loops, in place.

    Args:
        tasks: whether tasks of loops with schedules become steps too.
    """
    inline_calls(module, tasks)
    rotate_all(module)


def as_run(module: ModuleOp, tasks: bool = False) -> ModuleOp:
    """Return a module as it runs, without calls and steps that are ahead: itself, or a copy.

    Args:
        tasks: whether tasks of loops with schedules become steps too.
    """
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    if not any(map(_changes, functions)):
        return module
    copy = module.clone()
    prepare(copy, tasks)
    return copy


def function_as_run(function: FuncOp) -> FuncOp:
    """Return a function without calls and steps that are ahead: itself, or a copy of it in a copy
    of what it needs of its module."""
    if not _changes(function):
        return function
    return next(iter(functions_as_run(module_of(function), [function.sym_name.data])))


def functions_as_run(module: ModuleOp, names: Collection[str]) -> list[FuncOp]:
    """Return functions of a module without calls and steps that are ahead, in a copy."""
    copy = copy_with_functions(module, names)
    prepare(copy)
    functions = (op for op in copy.ops if isinstance(op, FuncOp))
    return [function for function in functions if function.sym_name.data in names]


def _changes(function: FuncOp) -> bool:
    loops = (op for block in function.body.blocks for op in block.ops if type(op) is RepeatOp)
    return any(True for _ in calls_in(function)) or any(
        is_ahead(op) for loop in loops for op in loop.walk()
    )
