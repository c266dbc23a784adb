"""Functions moved to a finer mesh, to compare programs before and after placement.

Placing an axis on levels, or splitting a level, replaces a sub-axis by several. The index along the
axis stays the same: ``data`` becomes ``data.node, data.gpu``, major to minor. The earlier program
therefore keeps its meaning with the new names.
"""

from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.ir.functions import copied_beside
from collir.ir.renaming import Renaming, rename_sub_axes
from collir.ir.steps import first_use


def refined(function: FuncOp, reference: FuncOp) -> Renaming | None:
    """Return the sub-axes of the mesh of ``reference`` that replace each sub-axis of a function, or
    None.

    It is None unless both meshes have the same axes, by name and size, and by weights if the
    function uses the axis, and every sub-axis of the function is a product of sub-axes of
    ``reference``. Axes of size 1 do not count.
    """
    old, new = mesh_of(function), mesh_of(reference)
    sizes = {axis.name: axis.size for axis in old.axes if axis.size > 1}
    if sizes != {axis.name: axis.size for axis in new.axes if axis.size > 1}:
        return None
    weights = {axis.name: axis.weights for axis in new.axes}
    for axis in old.axes:
        if axis.weights != weights.get(axis.name) and first_use(function, old.of_axis[axis.name]):
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
