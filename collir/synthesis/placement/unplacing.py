"""A program on a placed mesh as one on a mesh without a placement, to compare it with others.

That is possible where the program names whole axes only: all sub-axes of an axis next to each
other, the outermost first.
"""

from collections.abc import Iterator
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import MeshOp
from collir.dialects.tensor import AxesAttr, DistTensorType
from collir.ir.functions import meshes_of
from collir.layout import Axis, Mesh
from collir.synthesis.placement.meshes import change
from collir.synthesis.placement.placements import functions_on


def unplaced_copy(module: ModuleOp, mesh: Mesh) -> tuple[ModuleOp, MeshOp] | None:
    """A copy of a module in which a mesh has no placement, and that mesh; None if some function
    names a part of an axis."""
    copy = module.clone()
    op = next(op for op in meshes_of(copy) if op.sym_name.data == mesh.name)
    return (copy, op) if unplace(copy, op) is None else None


def unplace(module: ModuleOp, op: MeshOp) -> FuncOp | None:
    """Takes the axes of a mesh off their levels, in place; or returns a function that names a part
    of an axis, which would have no meaning then."""
    mesh = op.value()
    for function in functions_on(module, mesh.name):
        if not all(_whole(axes, mesh) for axes in _lists(function, mesh)):
            return function
    names: dict[str, tuple[str, ...]] = {}
    for axis, subs in mesh.of_axis.items():
        names |= {sub: (axis,) if sub == subs[0] else () for sub in subs}
    change(op, replace(mesh, axes=tuple(Axis(one.name, one.size) for one in mesh.axes)), names)
    return None


def _lists(function: FuncOp, mesh: Mesh) -> Iterator[tuple[str, ...]]:
    """All lists of sub-axes in a function."""
    for argument in function.args:
        yield from _lists_in(argument.type, mesh)
    for op in function.walk():
        for attribute in (*op.properties.values(), *(value.type for value in op.results)):
            yield from _lists_in(attribute, mesh)


def _lists_in(attribute: Attribute, mesh: Mesh) -> Iterator[tuple[str, ...]]:
    """The lists of sub-axes in an attribute; sets in the order of the mesh."""
    if isinstance(attribute, AxesAttr):
        yield attribute.data
    elif isinstance(attribute, DistTensorType):
        x = attribute.data
        yield from (dim.axes for dim in x.dims)
        yield from (mesh.ordered(axes) for axes in (x.partial, x.root))


def _whole(axes: tuple[str, ...], mesh: Mesh) -> bool:
    """Whether a list of sub-axes is one of whole axes."""
    return all(name in mesh.of_axis for name in mesh.short(axes))
