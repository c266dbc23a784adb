"""The types at the border of a loop: a slice of a stacked value, and a stack of values.

A stacked value has the values of all iterations along its leading dimension. This is not sharded,
so that every device has its part of each value.
"""

from dataclasses import replace

from collir.layout.errors import LayoutError
from collir.layout.mesh import Mesh
from collir.layout.sizes import same_size
from collir.layout.types import Dim, DistType, check_type


def slice_type(mesh: Mesh, x: DistType, count: int) -> DistType:
    """Return the type of a slice of a value along its leading dimension.

    Raises:
        LayoutError: there is no such dimension, its size is not ``count``, or it is sharded.
    """
    if not x.dims:
        raise LayoutError("{0} has no dimension to take slices along", operand=0)
    leading, *rest = x.dims
    if not same_size(leading.size, count):
        raise LayoutError(
            f"dimension 0 of {{0}} has size {leading.size}, but there are {count} iterations, and "
            "each takes one slice",
            operand=0,
        )
    if leading.axes:
        raise LayoutError(
            f"dimension 0 of {{0}} is sharded over {', '.join(mesh.short(leading.axes))}, so no "
            "device has its part of every slice: all_gather it, or all_to_all it to another "
            "dimension",
            operand=0,
            axes=leading.axes,
        )
    return replace(x, dims=tuple(rest))


def stack_type(mesh: Mesh, x: DistType, count: int) -> DistType:
    """Return the type of the stack of ``count`` values of a type.

    Raises:
        LayoutError: the stack has too many dimensions or bytes.
    """
    stacked = replace(x, dims=(Dim(count), *x.dims))
    check_type(mesh, stacked)
    return stacked
