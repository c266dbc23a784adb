"""Questions about modules with operations of models, for targets that print them."""

from collections.abc import Collection

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.dialects.operation import DistOp, is_of_model
from collir.ir.calls import calls_in
from collir.ir.functions import functions_of
from collir.ir.rotation import ready_for_code
from collir.ir.selection import erase_other_functions


def has_models(root: Operation) -> bool:
    """Return whether there are operations of models, or additions with numpy's broadcasting."""
    return any(isinstance(op, DistOp) and is_of_model(op) for op in root.walk())


def not_called(module: ModuleOp) -> list[str]:
    """Return the functions that no other calls; one of which only a gradient is taken is among
    them. Private ones are for others."""
    functions = [op for op in functions_of(module) if op.sym_visibility is None]
    calls = (call for f in functions_of(module) for call in calls_in(f))
    called = {call.symbol for call in calls if not call.sought}
    return [f.sym_name.data for f in functions if f.sym_name.data not in called]


def models_for_code(
    module: ModuleOp,
    named: Collection[str] | None = None,
    tasks: bool = True,
) -> tuple[ModuleOp, list[FuncOp]]:
    """Return a module as it runs in which tasks are functions, and those that are for the code of
    others only.

    Where there are operations of models, functions that others call are such, or left out where
    their steps are in those.

    Args:
        named: the functions to keep of a module with operations of models instead.
        tasks: whether tasks of pipelines are functions; else they are steps.
    """
    own = not_called(module) if named is None else named
    ready, added = ready_for_code(module, tasks)
    if ready is module or not has_models(ready):
        return ready, added
    erase_other_functions(ready, own)
    called = {call.symbol for function in functions_of(ready) for call in calls_in(function)}
    hidden = {*added, *(f for f in functions_of(ready) if f.sym_name.data in called)}
    return ready, [function for function in functions_of(ready) if function in hidden]
