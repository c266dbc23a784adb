"""Functions moved to a finer mesh, to compare programs before and after placement.

Placing an axis on levels, or splitting a level, replaces a sub-axis by several. The index along the
axis stays the same: ``data`` becomes ``data.node, data.gpu``, major to minor. The earlier program
therefore keeps its meaning with the new names.
"""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of, module_of
from collir.ir.functions import machines_of, meshes_of
from collir.ir.renaming import Renaming, rename_sub_axes
from collir.layout import Mesh


def refined(old: Mesh, new: Mesh) -> Renaming | None:
    """Return the sub-axes of ``new`` that replace each sub-axis of ``old``, or None.

    It is None unless both meshes have the same axes, by name, size and weights, and every sub-axis
    of ``old`` is a product of sub-axes of ``new``. Axes of size 1 do not count.
    """
    sizes = {axis.name: (axis.size, axis.weights) for axis in old.axes if axis.size > 1}
    if sizes != {axis.name: (axis.size, axis.weights) for axis in new.axes if axis.size > 1}:
        return None
    renaming: dict[str, tuple[str, ...]] = {}
    for axis in sizes:
        left = list(new.of_axis[axis])
        for sub_axis in old.of_axis[axis]:
            parts: list[str] = []
            while left and new.group_size(parts) < old.by_name[sub_axis].size:
                parts.append(left.pop(0))
            if new.group_size(parts) != old.by_name[sub_axis].size:
                return None
            renaming[sub_axis] = tuple(parts)
    return renaming


def moved_to_mesh(function: FuncOp, reference: FuncOp, renaming: Renaming) -> FuncOp:
    """Return a copy of a function on the mesh of ``reference``, in a new module."""
    copy = copied_beside(function, reference)
    rename_sub_axes(copy, renaming, mesh_of(function), mesh_of(reference))
    return copy


def copied_beside(function: FuncOp, reference: FuncOp) -> FuncOp:
    """Return a copy of a function in a new module, on the mesh of ``reference``, which is copied
    too."""
    module, mesh = module_of(reference), mesh_of(reference)
    copy = function.clone()
    copy.attributes[MESH_ATTRIBUTE] = reference.attributes[MESH_ATTRIBUTE]
    meshes = [op for op in meshes_of(module) if op.sym_name.data == mesh.name]
    _ = ModuleOp([op.clone() for op in (*machines_of(module), *meshes)] + [copy])
    return copy
