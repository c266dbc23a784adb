"""Modules at the local level."""

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, Region

from collir.dialects.local import LocalFuncOp, local_functions, number
from collir.dialects.local_types import BufferType
from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_of_model
from collir.dialects.tensor import PlaceAttr, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.ir.names import keep_names, result_names, set_name
from collir.ir.parameters import PARAMETERS, attributes_of, parameters_of, sizes_in
from collir.ir.remarks import remark
from collir.layout.local import Ranks
from collir.layout.sizes import OpenSize
from collir.localize.arena import plan_arena
from collir.localize.blocks import local_buffer
from collir.localize.function import BlockLowering
from collir.localize.lifetimes import free_memory
from collir.localize.writer import ANY_GROUPS, GroupRules
from collir.transforms.any_size import open_sizes
from collir.transforms.for_code import not_called, ready_for_code, write_out_pipelines
from collir.transforms.stages.tasks import outline_tasks


def localize(module: ModuleOp, rules: GroupRules = ANY_GROUPS, sized: bool = False) -> None:
    """Replace the functions of a module, in place, by the programs of a rank.

    Tasks of pipelines are functions that are called; other calls become steps.

    Args:
        sized: whether sizes stay formulas of parameters.

    Raises:
        DiagnosticError: a function has a step that has to be replaced first, or that has no form
            for values of any size.
    """
    functions = functions_of(module)
    check_programs(functions, "is lowered to no program of a rank", nested=True)
    own = not_called(module)
    if sized:
        _lower_for_any_size(module, rules)
        return
    for function in functions:
        name = function.sym_name.data
        if name in own and (parameters := parameters_of(function)):
            sizes = ", ".join(f"{name} = {size}" for name, size in parameters.items())
            remark(function, f"@{name} is lowered for {sizes}: sized=true lowers it for any")
    write_out_pipelines(module)
    _ = outline_tasks(module)
    lower_functions(module, rules)


def _lower_for_any_size(module: ModuleOp, rules: GroupRules) -> None:
    """Replace the functions of a module, in place, by the programs of a rank for any values of
    their size parameters; calls are inlined."""
    for op in module.walk():
        if isinstance(op, DistOp) and is_of_model(op):
            raise DiagnosticError.at(
                op,
                f"{op.mnemonic} is of a model, and has no form for any size: leave out sized=true",
            )
    ready, _ = ready_for_code(module, tasks=False)
    if ready is module:
        ready = module.clone()
    check_programs(functions_of(ready), "has no form for any size", even=True, nested=True)
    open_sizes(ready, module, _apart, widths=False)
    lower_functions(ready, rules)
    for op in list(module.ops):
        op.detach()
        op.erase(safe_erase=False)
    for op in list(ready.ops):
        op.detach()
        module.body.block.add_op(op)


def _apart(names: Sequence[str]) -> list[str]:
    """Return distinct names; the first of equal ones stays as it is."""
    chosen: list[str] = []
    for name in names:
        while name in chosen:
            name += "_"
        chosen.append(name)
    return chosen


def programs_of_ranks(module: ModuleOp, rules: GroupRules) -> list[LocalFuncOp]:
    """Return the programs of a rank for the functions of a module as it runs. The module does not
    change, and values have the names that they have in it."""
    copy = module.clone()
    keep_names(copy)
    lower_functions(copy, rules)
    return list(local_functions(copy))


def lower_functions(module: ModuleOp, rules: GroupRules) -> None:
    """Replace the functions of a module, as it runs, by the programs of a rank, in place."""
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
        BlockLowering(function, ranks, block, inputs, outputs, rules).run()
    free_memory(block)
    return new


def _sizes(op: Operation) -> Iterator[int]:
    return (size for attribute in attributes_of(op) for size in sizes_in(attribute))
