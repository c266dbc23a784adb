"""The type of a distributed tensor: its global shape, and its state on every sub-axis."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.mesh import Mesh

State = Literal["partial", "root", "sharded", "replicated"]
"""The state of a value on a sub-axis."""

MAX_DIMS = 32
"""Largest number of dimensions of a tensor, as in older versions of numpy."""

MAX_BYTES = 2**63 - 1
"""Largest number of bytes of a tensor: emitted code has sizes as signed 64-bit integers."""


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension: its global size, and the sub-axes it is sharded over, major to minor."""

    size: int
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DistType:
    """The type of a distributed tensor; it is replicated on all sub-axes that it does not name.

    Attributes:
        dims: the global shape, and the sub-axes that shard each dimension.
        partial: the sub-axes over whose coordinates the true value is the ``reduction``.
        reduction: the one reduction of the value; None if and only if ``partial`` is empty.
        root: the sub-axes of which only coordinate 0 holds data.
    """

    dtype: DType
    dims: tuple[Dim, ...]
    partial: frozenset[str] = field(default=frozenset())
    reduction: Reduction | None = None
    root: frozenset[str] = field(default=frozenset())

    @staticmethod
    def make(
        dtype: DType,
        shape: Iterable[int],
        *,
        partial: Iterable[str] = (),
        reduction: Reduction | None = None,
        root: Iterable[str] = (),
    ) -> "DistType":
        """Return the type of an unsharded tensor; without partial sub-axes it has no reduction."""
        axes = frozenset(partial)
        return DistType(
            dtype, tuple(map(Dim, shape)), axes, reduction if axes else None, frozenset(root)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return tuple(dim.size for dim in self.dims)

    @property
    def elements(self) -> int:
        """The number of elements of the global tensor."""
        return math.prod(self.shape)

    def local_shape(self, mesh: Mesh) -> tuple[int, ...]:
        """Return the shape of one device's buffer."""
        return tuple(dim.size // mesh.group_size(dim.axes) for dim in self.dims)

    def local_bytes(self, mesh: Mesh) -> int:
        """Return the size of one device's buffer in bytes."""
        return math.prod(self.local_shape(mesh)) * self.dtype.bytes

    def dim_of(self, axis: str) -> int | None:
        """Return the dimension that is sharded over a sub-axis, or None."""
        return next((i for i, dim in enumerate(self.dims) if axis in dim.axes), None)

    def state_of(self, axis: str) -> State:
        """Return the state of the value on a sub-axis."""
        if axis in self.partial:
            return "partial"
        if axis in self.root:
            return "root"
        return "replicated" if self.dim_of(axis) is None else "sharded"

    @property
    def axes(self) -> list[str]:
        """The sub-axes on which the value is not replicated."""
        sharded = [axis for dim in self.dims for axis in dim.axes]
        return sharded + sorted(self.partial) + sorted(self.root)

    def __str__(self) -> str:
        return self.text()

    def text(self, mesh: Mesh | None = None) -> str:
        """Return the type as in a ``.coll`` file; a mesh gives whole axes their short names."""

        def listed(axes: Sequence[str]) -> str:
            return ", ".join(mesh.short(axes) if mesh else axes)

        def dim_text(dim: Dim) -> str:
            if not dim.axes:
                return str(dim.size)
            names = listed(dim.axes)
            return f"{dim.size}@({names})" if "," in names else f"{dim.size}@{names}"

        def set_text(axes: frozenset[str]) -> str:
            return listed(mesh.ordered(axes) if mesh else sorted(axes))

        text = f"{self.dtype}[{', '.join(map(dim_text, self.dims))}]"
        if self.partial:
            text += f" partial({self.reduction}: {set_text(self.partial)})"
        if self.root:
            text += f" root({set_text(self.root)})"
        return text


def check_type(mesh: Mesh, tensor: DistType) -> None:
    """Check that a type can exist on a mesh, in time independent of the number of devices.

    Raises:
        LayoutError: too many dimensions, a sub-axis the mesh does not have or that is used twice,
            a dimension that its shards do not divide, a size below 1, an average of integers, too
            many bytes.
    """
    if len(tensor.dims) > MAX_DIMS:
        raise LayoutError(
            f"the tensor has {len(tensor.dims)} dimensions; at most {MAX_DIMS} are possible"
        )
    axes = tensor.axes
    for axis in axes:
        if axis not in mesh.by_name:
            raise LayoutError(unknown_axis_message(mesh, axis), axes=(axis,))
        if axes.count(axis) > 1:
            raise LayoutError(
                f"sub-axis {axis} is used twice: a value has one state on each sub-axis",
                axes=(axis,),
            )
    for index, dim in enumerate(tensor.dims):
        if dim.size < 1:
            raise LayoutError(
                f"dimension {index} has size {dim.size}; sizes are at least 1", dim=index
            )
        shards = mesh.group_size(dim.axes)
        if dim.size % shards:
            raise LayoutError(
                f"dimension {index} of size {dim.size} does not divide into the {shards} shards "
                f"of {', '.join(mesh.short(dim.axes))}",
                axes=dim.axes,
                dim=index,
            )
    if tensor.elements * tensor.dtype.bytes > MAX_BYTES:
        raise LayoutError("the tensor has more than 2^63 - 1 bytes")
    possible = (None, *tensor.dtype.reductions)
    if tensor.dtype is DType.BOOL and tensor.reduction not in possible:
        raise LayoutError(
            f"bool has no partial({tensor.reduction}): max is true where any part is, and min "
            "where all are; or cast it to a number first"
        )
    if tensor.reduction is Reduction.AVG and not tensor.dtype.is_float:
        raise LayoutError(
            f"an average of {tensor.dtype} is not an integer: use sum, or cast to a float first"
        )


def unknown_axis_message(mesh: Mesh, axis: str) -> str:
    """Return the error message for a sub-axis that a mesh does not have."""
    name, _, level = axis.partition(".")
    declared = next((known for known in mesh.axes if known.name == name), None)
    if declared is None:
        names = ", ".join(known.name for known in mesh.axes)
        return f"axis '{name}' is not in mesh @{mesh.name} (its axes are {names})"
    subs = mesh.of_axis[name]
    if not subs:
        return (
            f"axis '{name}' has size 1 on mesh @{mesh.name}: "
            "nothing is distributed over it, so leave it out"
        )
    if not mesh.placed:
        return f"mesh @{mesh.name} is not placed on levels: write {name}, not {axis}"
    if not level:
        return (
            f"axis '{name}' of mesh @{mesh.name} is in parts: write {', '.join(subs)}, not {name}"
        )
    return (
        f"axis '{name}' of mesh @{mesh.name} has no part on a level '{level}' "
        f"(its sub-axes are {', '.join(subs)})"
    )
