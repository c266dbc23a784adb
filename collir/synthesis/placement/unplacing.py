"""The rewrite of a program on a placed mesh to one without a placement, to compare placements.

A program can be unplaced if it names whole axes only: all sub-axes of an axis side by side, the
outermost first.
"""

from collections.abc import Iterator
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import MeshOp
from collir.dialects.tensor import AxesAttr, DistTensorType, PlaceAttr
from collir.ir.functions import meshes_of
from collir.layout import Mesh
from collir.synthesis.placement.meshes import change, functions_on


def unplaced_copy(module: ModuleOp, mesh: Mesh) -> tuple[ModuleOp, MeshOp] | None:
    """Return a copy of a module in which a mesh has no placement, and that mesh.

    Returns None if a function names a part of an axis.
    """
    copy = module.clone()
    op = next(op for op in meshes_of(copy) if op.sym_name.data == mesh.name)
    return (copy, op) if unplace(copy, op) is None else None


def unplace(module: ModuleOp, op: MeshOp) -> FuncOp | None:
    """Take the axes of a mesh off their levels.

    Returns: None, or a function that names a part of an axis; nothing is changed then, as the part
    would have no meaning without a placement.
    """
    mesh = op.value()
    for function in functions_on(module, mesh.name):
        if not all(_is_whole(axes, mesh) for axes in _axis_lists(function, mesh)):
            return function
    names: dict[str, tuple[str, ...]] = {}
    for axis, subs in mesh.of_axis.items():
        names |= {sub: (axis,) if sub == subs[0] else () for sub in subs}
    unplaced = replace(mesh, axes=tuple(replace(axis, factors=None) for axis in mesh.axes))
    change(op, mesh, unplaced, names)
    return None


def _axis_lists(function: FuncOp, mesh: Mesh) -> Iterator[tuple[str, ...]]:
    """Yield all lists of sub-axes in a function."""
    for argument in function.args:
        yield from _axis_lists_in(argument.type, mesh)
    for op in function.walk():
        for attribute in (*op.properties.values(), *(value.type for value in op.results)):
            yield from _axis_lists_in(attribute, mesh)


def _axis_lists_in(attribute: Attribute, mesh: Mesh) -> Iterator[tuple[str, ...]]:
    """Yield the lists of sub-axes in an attribute; sets become lists in the order of the mesh."""
    if isinstance(attribute, AxesAttr):
        yield attribute.data
    elif isinstance(attribute, PlaceAttr):
        yield mesh.ordered(dict(attribute.data))
    elif isinstance(attribute, DistTensorType):
        x = attribute.data
        yield from (dim.axes for dim in x.dims)
        yield from (mesh.ordered(axes) for axes in (x.partial, x.placed))


def _is_whole(axes: tuple[str, ...], mesh: Mesh) -> bool:
    """Return whether a list of sub-axes consists of whole axes."""
    return all(name in mesh.of_axis for name in mesh.short(axes))
