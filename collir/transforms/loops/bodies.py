"""The bodies of loops as functions, and loops alone in a module."""

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from collir.dialects.machine import function_of, module_of
from collir.dialects.nested import RepeatOp
from collir.dialects.parameters import parameters_of
from collir.ir.functions import functions_of
from collir.ir.names import set_name, unused_symbol
from collir.ir.parameters import keep_used_parameters, shared_attributes
from collir.ir.selection import copy_with_functions

BODY = "coll.body"
"""The attribute that names the function that code calls: of a loop, that of its body."""


def body_function(op: RepeatOp, name: str) -> FuncOp:
    """Return a new function for one iteration of a loop; it is in no module."""
    block = Block(arg_types=[arg.type for arg in op.body.block.args])
    values: dict[SSAValue, SSAValue] = dict(zip(op.body.block.args, block.args, strict=True))
    for old, new in values.items():
        set_name(new, old.name_hint)
    for inner in list(op.body.block.ops)[:-1]:
        block.add_op(inner.clone(values))
    results = [values[value] for value in op.yielded]
    last = ReturnOp(*results)
    if op.body.block.last_op is not None:
        last.location = op.body.block.last_op.location
    block.add_op(last)
    types = [arg.type for arg in block.args], [value.type for value in results]
    function = FuncOp(name, types, Region(block))
    function.attributes = shared_attributes(_function_of(op))
    function.location = op.location
    return function


def loop_alone(op: RepeatOp) -> ModuleOp:
    """Return a module with a function that runs only a loop, and the declarations that it needs."""
    outer = _function_of(op)
    operands = [*dict.fromkeys(op.operands)]
    block = Block(arg_types=[value.type for value in operands])
    loop = op.clone(dict[SSAValue, SSAValue](zip(operands, block.args, strict=True)))
    block.add_ops([loop, ReturnOp(*loop.results)])
    types = [value.type for value in operands], [value.type for value in loop.results]
    module = module_of(outer)
    function = FuncOp(unused_symbol(module, "alone"), types, Region(block))
    function.attributes = shared_attributes(outer)
    keep_used_parameters(function, parameters_of(outer))
    module.body.block.insert_op_before(function, functions_of(module)[0])
    copy = copy_with_functions(module, [function.sym_name.data])
    module.body.block.erase_op(function)
    return copy


@contextmanager
def as_function(op: RepeatOp) -> Generator[FuncOp]:
    """Insert the body of a loop as a function into the module that it is in, and remove it."""
    outer = _function_of(op)
    block = outer.parent_block()
    assert block is not None
    function = body_function(op, outer.sym_name.data)
    block.insert_op_after(function, outer)
    try:
        yield function
    finally:
        function.detach()
        function.erase()


def _function_of(op: Operation) -> FuncOp:
    function = function_of(op)
    assert function is not None
    return function
