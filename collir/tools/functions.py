"""The option ``--function`` of the tools, and the functions that a report is about."""

from collections.abc import Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.ir.alternatives import place_of
from collir.ir.diagnostics import Position
from collir.ir.functions import functions_of
from collir.ir.selection import erase_other_functions
from collir.syntax.imports import LIBRARY
from collir.tools.shell import UsageError
from collir.transforms.as_run import as_run
from collir.transforms.gradients.differentiation import gradients_as_calls


def keep_functions(module: ModuleOp, names: Sequence[str]) -> None:
    """Erase all functions except the named functions and those they need; no names keep all.

    Raises:
        UsageError: there is no function of a name.
    """
    if not names:
        return
    functions = [function.sym_name.data for function in functions_of(module)]
    for name in names:
        if name not in functions:
            known = ", ".join(functions) or "no functions"
            raise UsageError(f"there is no function @{name} (there are {known})")
    erase_other_functions(module, names)


def reported(module: ModuleOp, names: Sequence[str]) -> list[str]:
    """Return the names of the functions of a module that a report is about, in order.

    A report is about the named functions and the functions that take their place. Without names, or
    if passes have left none of the named functions, it is about all functions except two kinds:
    functions of the library, which others call, and functions made for gradients, which are gone
    once calls have become steps.

    Args:
        names: the names that ``--function`` gives.
    """
    functions = {function.sym_name.data: function for function in functions_of(module)}
    chosen = [
        name
        for name, function in functions.items()
        if name in names or ((place := place_of(function)) is not None and place[0] in names)
    ]
    return (
        chosen
        or [name for name, function in functions.items() if not _is_part(function)]
        or [*functions]
    )


def for_report(module: ModuleOp, names: Sequence[str]) -> ModuleOp:
    """Return a module with some functions alone, whose calls have become their steps: itself, or a
    copy."""
    if len(names) == len(functions_of(module)):
        return module
    module = as_run(module)
    erase_other_functions(module, names)
    return module


def for_code(module: ModuleOp, names: Sequence[str]) -> ModuleOp:
    """Return a module with some functions and their callees: itself, or a copy."""
    if len(names) == len(functions_of(module)):
        return module
    module = module.clone()
    gradients_as_calls(module)
    erase_other_functions(module, names)
    return module


def _is_part(function: FuncOp) -> bool:
    """Return whether a function is one of the library, or made for a gradient."""
    if function.sym_visibility is not None:
        return True
    position = Position.of(function)
    return position is not None and Path(position.file).parent == LIBRARY
