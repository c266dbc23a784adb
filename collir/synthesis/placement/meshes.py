"""Meshes before and after placement, and the rewrite of a program from one to the other.

A placement is a parallelism matrix (P², Xie et al., MLSys 2022): a row per axis, a column per
level. Placement splits an axis from one sub-axis into several, outermost level first. The index
along the axis does not change, so programs compute the same results. A mesh that is smaller than
its machine gets the first children of some levels, as a machine of its own.
"""

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import ArrayAttr, FunctionType, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block

from collir.dialects.machine import (
    MESH_ATTRIBUTE,
    AxisAttr,
    DeviceAttr,
    LevelAttr,
    MachineOp,
    MeshOp,
)
from collir.dialects.tensor import AxesAttr, DistTensorType
from collir.ir.functions import functions_of
from collir.layout import Axis, Dim, DistType, Factor, Mesh
from collir.machine import Machine
from collir.machine.model import product
from collir.synthesis.p2.matrices import Matrix

Names = dict[str, tuple[str, ...]]
"""The new sub-axes that replace each sub-axis, by its name."""


def unplaced_meshes(module: ModuleOp) -> list[MeshOp]:
    """Return the meshes of a module whose axes are not on levels."""
    meshes = [op for op in module.ops if isinstance(op, MeshOp)]
    return [op for op in meshes if not op.value().placed]


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
    levels = (level.first(size) for level, size in zip(machine.levels, sizes, strict=True))
    return Machine(f"{machine.name}_part", tuple(levels), machine.device)


def mesh_of_matrix(mesh: Mesh, matrix: Matrix) -> Mesh:
    """Return a mesh with its axes placed by a matrix on the levels of its machine or of a part."""
    machine = machine_part(mesh.machine, [product(column) for column in zip(*matrix, strict=True)])
    levels = machine.levels
    axes: list[Axis] = []
    for axis, row in zip(mesh.axes, matrix, strict=True):
        factors = [Factor(level.name, size) for level, size in zip(levels, row, strict=True)]
        used = [factor for factor in factors if factor.size > 1]
        axes.append(Axis.placed(axis.name, used or factors[-1:]))
    return Mesh(mesh.name, machine, tuple(axes))


def place(op: MeshOp, mesh: Mesh) -> None:
    """Put the axes of a mesh on levels, and rename the sub-axes of all programs on the mesh.

    If the placed mesh uses a part of the machine, the part is declared as a machine beside it.
    """
    module = op.parent_op()
    assert isinstance(module, ModuleOp)
    if mesh.machine != op.value().machine:
        machine = _declaration(module, mesh.machine)
        assert op.parent is not None
        op.parent.insert_op_before(machine, op)
        op.machine = SymbolRefAttr(machine.sym_name.data)
    change(op, mesh, {axis.name: mesh.of_axis[axis.name] for axis in mesh.axes})


def change(op: MeshOp, mesh: Mesh, names: Names) -> None:
    """Gives a mesh the axes of another, and renames the sub-axes of all programs on it."""
    module = op.parent_op()
    assert isinstance(module, ModuleOp)
    for function in functions_of(module):
        if function.attributes[MESH_ATTRIBUTE] == SymbolRefAttr(op.sym_name.data):
            _rename(function, names)
    op.axes = ArrayAttr([AxisAttr.of(axis) for axis in mesh.axes])


def _declaration(module: ModuleOp, machine: Machine) -> MachineOp:
    """Return an operation that declares a machine under a name that is new in the module."""
    names = {
        name.data
        for op in module.ops
        if isinstance(name := op.properties.get("sym_name"), StringAttr)
    }
    name = machine.name
    while name in names:
        name += "_"
    properties: dict[str, Attribute] = {
        "sym_name": StringAttr(name),
        "levels": ArrayAttr([LevelAttr.of(level) for level in machine.levels]),
    }
    if machine.device is not None:
        properties["device"] = DeviceAttr.of(machine.device)
    return MachineOp.create(properties=properties)


def _rename(function: FuncOp, names: Names) -> None:
    signature = function.function_type
    function.properties["function_type"] = FunctionType.from_lists(
        [renamed(x, names) for x in signature.inputs],
        [renamed(x, names) for x in signature.outputs],
    )
    for op in function.walk():
        for name, attribute in op.properties.items():
            if name != "function_type":
                op.properties[name] = renamed(attribute, names)
        for block in (block for region in op.regions for block in region.blocks):
            _retype(block, names)
        for result in op.results:
            result._type = renamed(result.type, names)  # pyright: ignore[reportPrivateUsage]


def _retype(block: Block, names: Names) -> None:
    for argument in block.args:
        argument._type = renamed(argument.type, names)  # pyright: ignore[reportPrivateUsage]


def renamed(attribute: Attribute, names: Names) -> Attribute:
    """An attribute with every axis replaced by its sub-axes."""
    if isinstance(attribute, AxesAttr):
        return AxesAttr(_all(attribute.data, names))
    if isinstance(attribute, DistTensorType):
        return DistTensorType(renamed_type(attribute.data, names))
    return attribute


def renamed_type(x: DistType, names: Names) -> DistType:
    """A type with every axis replaced by its sub-axes."""
    partial = frozenset(_all(x.partial, names))
    return DistType(
        x.dtype,
        tuple(Dim(dim.size, _all(dim.axes, names)) for dim in x.dims),
        partial,
        x.reduction if partial else None,
        frozenset(_all(x.root, names)),
    )


def _all(axes: Iterable[str], names: Names) -> tuple[str, ...]:
    return tuple(sub for axis in axes for sub in names[axis])
