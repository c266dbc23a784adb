"""Modules at the local level."""

from collections.abc import Iterator

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, Region

from collir.dialects.local import LocalFuncOp, local_functions, number
from collir.dialects.local_types import BufferType
from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of, meshes_remembered
from collir.dialects.tensor import PlaceAttr, dist_type
from collir.ir.functions import check_programs, functions_of
from collir.ir.models import not_called
from collir.ir.names import keep_names, result_names, set_name
from collir.ir.parameters import PARAMETERS, attributes_of, parameters_of, sizes_in
from collir.ir.remarks import remark
from collir.ir.rotation import write_out_pipelines
from collir.ir.tasks import outline_tasks
from collir.layout.local import Ranks
from collir.layout.sizes import OpenSize
from collir.localize.arena import plan_arena
from collir.localize.blocks import local_buffer
from collir.localize.function import Function
from collir.localize.lifetimes import free_memory
from collir.localize.writer import ANY_GROUPS, GroupRules


def localize(module: ModuleOp, rules: GroupRules = ANY_GROUPS) -> None:
    """Replace the functions of a module by what each rank executes, in place.

    Tasks of pipelines are functions that are called; other calls become steps.

    Raises:
        DiagnosticError: a function has a step that has to be replaced first.
    """
    functions = functions_of(module)
    check_programs(functions, "is lowered to no program of a rank", nested=True)
    own = not_called(module)
    for function in functions:
        name = function.sym_name.data
        if name in own and (parameters := parameters_of(function)):
            sizes = ", ".join(f"{name} = {size}" for name, size in parameters.items())
            remark(function, f"@{name} is lowered for {sizes}: a rank's program has no parameters")
    write_out_pipelines(module)
    _ = outline_tasks(module)
    lower_functions(module, rules)


def programs_of_ranks(module: ModuleOp, rules: GroupRules) -> list[LocalFuncOp]:
    """Return what each rank executes, for the functions of a module as it runs, which stays as it
    is; values have the names that they have in the module."""
    copy = module.clone()
    keep_names(copy)
    lower_functions(copy, rules)
    return list(local_functions(copy))


def lower_functions(module: ModuleOp, rules: GroupRules) -> None:
    """Replace the functions of a module, as it runs, by what each rank executes, in place."""
    pairs = [(function, _localized(function, rules)) for function in functions_of(module)]
    for function, new in pairs:
        block = function.parent
        assert block is not None
        block.insert_op_before(new, function)
        function.detach()
        function.erase()
    for _, new in pairs:
        _ = plan_arena(new)


def _localized(function: FuncOp, rules: GroupRules) -> LocalFuncOp:
    mesh, parameters = mesh_of(function), parameters_of(function)
    is_open = any(isinstance(x, OpenSize) for op in function.walk() for x in _sizes(op))
    ranks = Ranks(mesh, parameters) if is_open else Ranks(mesh)
    last = function.body.block.last_op
    assert last is not None
    types = [dist_type(x) for x in (*function.args, *last.operands)]
    block = Block(arg_types=[BufferType(local_buffer(x, mesh)) for x in types])
    reference = function.attributes[MESH_ATTRIBUTE]
    assert isinstance(reference, SymbolRefAttr)
    new = LocalFuncOp.create(
        properties={
            "sym_name": function.sym_name,
            "mesh": reference,
            "places": ArrayAttr(PlaceAttr(x.place) for x in types),
            "returned": number(len(last.operands)),
        },
        regions=[Region(block)],
    )
    if PARAMETERS in function.attributes and is_open:
        new.attributes[PARAMETERS] = function.attributes[PARAMETERS]
    new.location = function.location
    count = len(function.args)
    inputs, outputs = block.args[:count], block.args[count:]
    for argument, buffer in zip(function.args, inputs, strict=True):
        set_name(buffer, argument.name_hint)
    for name, buffer in zip(result_names(function), outputs, strict=True):
        set_name(buffer, None if name.isdigit() else name)
    with meshes_remembered():
        Function(function, ranks, block, inputs, outputs, rules).run()
    free_memory(block)
    return new


def _sizes(op: Operation) -> Iterator[int]:
    return (size for attribute in attributes_of(op) for size in sizes_in(attribute))
