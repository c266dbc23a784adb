"""A function on the mesh of another: where axes were placed or a level split, with its sub-axes.

Placing an axis on levels, or putting the children of a level in groups, makes several sub-axes of
one; the index along it stays what it was. So a program from before says the same with the new
names.
"""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of
from collir.ir.functions import machines_of, meshes_of
from collir.ir.renaming import Renaming, rename_sub_axes
from collir.layout import Mesh


def refined(old: Mesh, new: Mesh) -> Renaming | None:
    """The sub-axes of ``new`` that every sub-axis of ``old`` is made of; None if there are none.

    Axes are told by their names; an axis of size 1 need not be there.
    """
    axes = {mesh: {a.name: a.size for a in mesh.axes if a.size > 1} for mesh in (old, new)}
    if axes[old] != axes[new]:
        return None
    names: dict[str, tuple[str, ...]] = {}
    for axis in axes[old]:
        left = list(new.of_axis[axis])
        for sub in old.of_axis[axis]:
            parts: list[str] = []
            while left and new.group_size(parts) < old.by_name[sub].size:
                parts.append(left.pop(0))
            if new.group_size(parts) != old.by_name[sub].size:
                return None
            names[sub] = tuple(parts)
    return names


def moved_to_mesh(
    function: FuncOp, reference: FuncOp, renaming: Renaming
) -> tuple[ModuleOp, FuncOp]:
    """Return a copy of a function on the mesh of ``reference``, and the new module it is in."""
    mesh = mesh_of(reference).name
    copy = function.clone()
    copy.attributes[MESH_ATTRIBUTE] = reference.attributes[MESH_ATTRIBUTE]
    rename_sub_axes(copy, renaming)
    module = reference.parent_op()
    assert isinstance(module, ModuleOp)
    meshes = [op for op in meshes_of(module) if op.sym_name.data == mesh]
    return ModuleOp([op.clone() for op in (*machines_of(module), *meshes)] + [copy]), copy
