"""Modules prepared for printing: tasks of pipelines are functions, and callers are known."""

from collections.abc import Collection

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.dialects.nested import NestedOp
from collir.dialects.operation import DistOp, is_of_model
from collir.ir.calls import calls_in
from collir.ir.functions import functions_of
from collir.ir.pipelines import pipelines_in
from collir.ir.selection import erase_other_functions
from collir.transforms.as_run import prepare
from collir.transforms.loops.bodies import BODY
from collir.transforms.stages.tasks import outline_tasks
from collir.transforms.stages.written_out import write_out


def has_models(root: Operation) -> bool:
    """Return whether there are operations of models, or additions with numpy's broadcasting."""
    return any(isinstance(op, DistOp) and is_of_model(op) for op in root.walk())


def not_called(module: ModuleOp) -> list[str]:
    """Return the public functions that no other one calls; a gradient alone counts as no call."""
    functions = [op for op in functions_of(module) if op.sym_visibility is None]
    calls = (call for f in functions_of(module) for call in calls_in(f))
    called = {call.symbol for call in calls if not call.sought}
    return [f.sym_name.data for f in functions if f.sym_name.data not in called]


def models_for_code(
    module: ModuleOp,
    named: Collection[str] | None = None,
    tasks: bool = True,
) -> tuple[ModuleOp, list[FuncOp]]:
    """Return a module as it runs, with tasks as functions, and its functions for internal use. Of
    functions with operations of models, those that others call are internal, or are left out where
    their steps are inlined.

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


def ready_for_code(module: ModuleOp, tasks: bool = True) -> tuple[ModuleOp, list[FuncOp]]:
    """Return a module as it runs, with tasks as functions, and the new functions.

    A module in this form is returned as it is; otherwise a copy is.

    Args:
        tasks: whether tasks of pipelines are functions; else they are steps.
    """
    functions = [op for op in module.ops if isinstance(op, FuncOp) and not op.is_declaration]
    ops = [op for function in functions for op in function.body.block.ops]
    if all(not isinstance(op, NestedOp) or BODY in op.attributes for op in ops):
        return module, []
    copy = module.clone()
    write_out_pipelines(copy, tasks)
    return copy, outline_tasks(copy)


def write_out_pipelines(module: ModuleOp, tasks: bool = True) -> None:
    """Make a module as it runs, and write out its pipelines.

    Args:
        tasks: whether tasks of pipelines are calls; else they are steps.
    """
    prepare(module)
    for loop in pipelines_in(module):
        write_out(loop)
    if not tasks:
        prepare(module)
