"""A function on the mesh of another: where axes were placed or a level split, with its sub-axes.

Placing an axis on levels, or putting the children of a level in groups, makes several sub-axes of
one; the index along it stays what it was. So a program from before says the same with the new
names.
"""

from collections.abc import Mapping
from dataclasses import replace

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import MESH_ATTRIBUTE, MachineOp, MeshOp, mesh_of
from collir.dialects.tensor import AxesAttr, DistTensorType
from collir.layout import Dim, DistType, Mesh

Names = Mapping[str, tuple[str, ...]]
"""What becomes of every sub-axis, major to minor."""


def refined(old: Mesh, new: Mesh) -> Names | None:
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


def moved(function: FuncOp, other: FuncOp, names: Names) -> tuple[ModuleOp, FuncOp]:
    """A copy of a function on the mesh of another, in a module of its own."""
    mesh = mesh_of(other).name
    copy = function.clone()
    copy.attributes[MESH_ATTRIBUTE] = other.attributes[MESH_ATTRIBUTE]
    signature = copy.function_type
    copy.properties["function_type"] = FunctionType.from_lists(
        [_renamed(x, names) for x in signature.inputs],
        [_renamed(x, names) for x in signature.outputs],
    )
    for argument in copy.args:
        argument._type = _renamed(argument.type, names)  # pyright: ignore[reportPrivateUsage]
    for op in copy.body.ops:
        for name, attribute in op.properties.items():
            op.properties[name] = _renamed(attribute, names)
        for result in op.results:
            result._type = _renamed(result.type, names)  # pyright: ignore[reportPrivateUsage]
    module = other.parent_op()
    assert isinstance(module, ModuleOp)
    meshes = [op for op in module.ops if isinstance(op, MeshOp) and op.sym_name.data == mesh]
    machines = [op for op in module.ops if isinstance(op, MachineOp)]
    return ModuleOp([op.clone() for op in (*machines, *meshes)] + [copy]), copy


def _renamed(attribute: Attribute, names: Names) -> Attribute:
    if isinstance(attribute, AxesAttr):
        return AxesAttr(_all(attribute.data, names))
    if isinstance(attribute, DistTensorType):
        return DistTensorType(renamed_type(attribute.data, names))
    return attribute


def renamed_type(x: DistType, names: Names) -> DistType:
    """A type with the sub-axes that its own became."""
    return replace(
        x,
        dims=tuple(Dim(dim.size, _all(dim.axes, names)) for dim in x.dims),
        partial=frozenset(_all(tuple(x.partial), names)),
        root=frozenset(_all(tuple(x.root), names)),
    )


def _all(axes: tuple[str, ...], names: Names) -> tuple[str, ...]:
    return tuple(new for axis in axes for new in names.get(axis, (axis,)))
