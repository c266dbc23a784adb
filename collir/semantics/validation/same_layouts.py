"""An ``auto`` function in the layouts that were chosen for its arguments and results."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of
from collir.ir.auto import take_layouts
from collir.ir.functions import machines_of, meshes_of


def moved_to_layouts(function: FuncOp, reference: FuncOp) -> tuple[ModuleOp, FuncOp]:
    """Return a copy of an ``auto`` function whose whole arguments and results have the layouts that
    they have in ``reference``, and the new module it is in."""
    module, mesh = reference.parent_op(), mesh_of(function)
    assert isinstance(module, ModuleOp)
    copy = function.clone()
    copy.attributes[MESH_ATTRIBUTE] = reference.attributes[MESH_ATTRIBUTE]
    meshes = [op for op in meshes_of(module) if op.sym_name.data == mesh.name]
    alone = ModuleOp([op.clone() for op in (*machines_of(module), *meshes)] + [copy])
    take_layouts(copy, reference)
    return alone, copy
