"""Meshes before and after placement, and the rewrite of a program from one to the other.

A placement is a parallelism matrix (P², Xie et al., MLSys 2022): a row per axis, a column per
level. Placement splits an axis from one sub-axis into several, outermost level first. The index
along the axis does not change, so programs compute the same results. A mesh that is smaller than
its machine gets the first children of some levels, as a machine of its own.
"""

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import MESH_ATTRIBUTE, AxisAttr, MeshOp, module_of
from collir.ir.builders import machine_op
from collir.ir.functions import functions_of, meshes_of
from collir.ir.names import unused_symbol
from collir.ir.renaming import Renaming, rename_sub_axes
from collir.layout import Axis, Factor, Mesh
from collir.machine import Machine
from collir.machine.counts import saturated_product
from collir.synthesis.placement.matrices import Matrix


def unplaced_meshes(module: ModuleOp) -> list[MeshOp]:
    """Return the meshes of a module whose axes are not on levels."""
    return [op for op in meshes_of(module) if not op.value().placed]


def functions_on(module: ModuleOp, mesh: str) -> list[FuncOp]:
    """Return the functions of a module that are on the mesh of a name."""
    reference = SymbolRefAttr(mesh)
    return [f for f in functions_of(module) if f.attributes[MESH_ATTRIBUTE] == reference]


def machine_part(machine: Machine, sizes: Sequence[int]) -> Machine:
    """Return the first children of every level as a machine; the machine itself if that is all.

    A tapered interconnect keeps its total bandwidth.
    """
    if list(sizes) == [level.size for level in machine.levels]:
        return machine
    levels = [level.first(size) for level, size in zip(machine.levels, sizes, strict=True)]
    kinds = machine.kinds_on(levels)
    return Machine(f"{machine.name}_part", tuple(levels), machine.device, kinds)


def mesh_of_matrix(mesh: Mesh, matrix: Matrix) -> Mesh:
    """Return a mesh with its axes placed by a matrix on the levels of its machine or of a part."""
    sizes = [saturated_product(column) for column in zip(*matrix, strict=True)]
    machine = machine_part(mesh.machine, sizes)
    levels = machine.levels
    axes: list[Axis] = []
    for axis, row in zip(mesh.axes, matrix, strict=True):
        factors = [Factor(level.name, size) for level, size in zip(levels, row, strict=True)]
        used = [factor for factor in factors if factor.size > 1]
        placed = Axis.placed(axis.name, used or factors[-1:])
        axes.append(placed.weighted(axis.weights) if axis.weights else placed)
    return Mesh(mesh.name, machine, tuple(axes))


def place(op: MeshOp, mesh: Mesh) -> None:
    """Put the axes of a mesh on levels, and rename the sub-axes of all programs on the mesh.

    If the placed mesh uses a part of the machine, the part is declared as a machine beside it.
    """
    module = module_of(op)
    old = op.value()
    if mesh.machine != old.machine:
        name = unused_symbol(module, mesh.machine.name)
        machine = machine_op(replace(mesh.machine, name=name))
        assert op.parent is not None
        op.parent.insert_op_before(machine, op)
        op.machine = SymbolRefAttr(name)
    change(op, old, mesh, {axis.name: mesh.of_axis[axis.name] for axis in mesh.axes})


def change(op: MeshOp, old: Mesh, mesh: Mesh, renaming: Renaming) -> None:
    """Give a mesh the axes of another, and rename the sub-axes of all programs on it.

    Args:
        old: the mesh before; its machine may have other levels now.
    """
    module = module_of(op)
    for function in functions_of(module):
        if function.attributes[MESH_ATTRIBUTE] == SymbolRefAttr(op.sym_name.data):
            rename_sub_axes(function, renaming, old, mesh)
    op.axes = ArrayAttr([AxisAttr.of(axis) for axis in mesh.axes])
