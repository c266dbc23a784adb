"""Tasks of pipelines as functions of their own, which code calls for each microbatch."""

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import function_of
from collir.dialects.nested import CallOp
from collir.ir.calls import calls_in
from collir.ir.names import numbered_symbol
from collir.ir.parameters import parameters_of
from collir.ir.retyping import function_at
from collir.transforms.loops.bodies import BODY


def outline_tasks(module: ModuleOp) -> list[FuncOp]:
    """Let each call of a module name a function with its sizes, and return the new functions.

    Calls of one function at equal values share it. A function without parameters is its own.
    """
    added: list[FuncOp] = []
    names: dict[tuple[object, ...], str] = {}
    for function in [op for op in module.ops if isinstance(op, FuncOp)]:
        for call in calls_in(function):
            parameters = parameters_of(function)
            key = call.symbol, call.bindings, tuple(parameters.items())
            if key not in names:
                callee = call.function()
                assert callee is not None
                task = _with_sizes_of(call, callee)
                names[key] = task.sym_name.data
                added += [task] if task is not callee else []
            call.callee = call.attributes[BODY] = SymbolRefAttr(names[key])
            call.bindings = None
    return added


def _with_sizes_of(call: CallOp, callee: FuncOp) -> FuncOp:
    """Return the function that a call runs: the callee, or a copy at the end of its module."""
    caller = function_of(call)
    assert caller is not None
    if not parameters_of(callee):
        return callee
    with function_at(callee, call.values, parameters_of(caller)) as function:
        task = function.clone()
    module = callee.parent_op()
    assert isinstance(module, ModuleOp)
    task.properties["sym_name"] = StringAttr(numbered_symbol(module, callee.sym_name.data))
    module.body.block.add_op(task)
    return task
