"""An ``auto`` function in the layouts that were chosen for its arguments and results."""

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp

from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType
from collir.ir.functions import machines_of, meshes_of
from collir.ir.renaming import set_type
from collir.layout.steps import REDISTRIBUTE
from collir.layout.types import unsharded


def moved_to_layouts(function: FuncOp, reference: FuncOp) -> tuple[ModuleOp, FuncOp]:
    """Return a copy of an ``auto`` function whose whole arguments and results have the layouts that
    they have in ``reference``, and the new module it is in."""
    module, mesh = reference.parent_op(), mesh_of(function)
    assert isinstance(module, ModuleOp)
    copy = function.clone()
    meshes = [op for op in meshes_of(module) if op.sym_name.data == mesh.name]
    alone = ModuleOp([op.clone() for op in (*machines_of(module), *meshes)] + [copy])
    move = OPERATIONS[REDISTRIBUTE.name]
    block = copy.body.block
    first, last = block.first_op, block.last_op
    assert first is not None and isinstance(last, ReturnOp)
    for argument, to in zip(copy.args, reference.function_type.inputs, strict=False):
        if _is_layout_of(argument.type, to):
            whole = argument.type
            set_type(argument, to)
            op = move.make(mesh, argument, to=whole)
            argument.replace_uses_with_if(op.result, lambda use: True)
            op.operands[0] = argument
            block.insert_op_before(op, first)
    for number, to in enumerate(reference.function_type.outputs.data[: len(last.operands)]):
        value = last.operands[number]
        if _is_layout_of(value.type, to):
            op = move.make(mesh, value, to=to)
            block.insert_op_before(op, last)
            last.operands[number] = op.result
    inputs = [argument.type for argument in copy.args]
    outputs = [value.type for value in last.operands]
    copy.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
    copy.attributes[MESH_ATTRIBUTE] = reference.attributes[MESH_ATTRIBUTE]
    return alone, copy


def _is_layout_of(whole: object, x: object) -> bool:
    """Return whether a type has another layout than that of the same value, whole everywhere."""
    if not isinstance(whole, DistTensorType) or not isinstance(x, DistTensorType):
        return False
    return x != whole and unsharded(x.data) == whole.data
