"""The type of a distributed tensor: its global shape, and its state on every sub-axis."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from collir.layout.cuts import Coordinates, block_size, extent_at, is_even, undefined_cut, units
from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.formulas import Formula
from collir.layout.mesh import Mesh, index_over
from collir.layout.sizes import (
    Size,
    explained,
    formula_of,
    same_key,
    same_size,
    without_formula,
    written,
)

State = Literal["partial", "root", "sharded", "replicated"]
"""The state of a value on a sub-axis; ``root`` is the name for all values held at one coordinate,
which need not be coordinate 0."""

Place = tuple[tuple[str, int], ...]
"""Sub-axes, each with the one coordinate that holds the data; sorted by name."""


def place_at(coordinates: Mapping[str, int] | Iterable[tuple[str, int]]) -> Place:
    """Return the place with these coordinates."""
    return tuple(sorted(dict(coordinates).items()))


def at_root(axes: Iterable[str]) -> Place:
    """Return the place at coordinate 0 of sub-axes."""
    return tuple((axis, 0) for axis in sorted(axes))


def apart(place: Place, other: Place) -> bool:
    """Return whether no device is at both places."""
    at = dict(place)
    return any(at.get(axis, coordinate) != coordinate for axis, coordinate in other)


MAX_DIMS = 32
"""Largest number of dimensions of a tensor, as in older versions of numpy."""

MAX_BYTES = 2**63 - 1
"""Largest number of bytes of a tensor: emitted code has sizes as signed 64-bit integers."""


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension: its global size, and the sub-axes it is sharded over, major to minor.

    The size may be a ``Size``, which carries its formula: dimensions are equal if their formulas
    are, and one with a formula is none of a number.
    """

    size: int
    axes: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Dim) and self.axes == other.axes and same_key(self.size, other.size)
        )


@dataclass(frozen=True)
class DistType:
    """The type of a distributed tensor; it is replicated on all sub-axes that it does not name.

    Attributes:
        dims: the global shape, and the sub-axes that shard each dimension.
        partial: the sub-axes over whose coordinates the true value is the ``reduction``.
        reduction: the one reduction of the value; None if and only if ``partial`` is empty.
        place: the sub-axes on which a single coordinate holds data, with this coordinate.
    """

    dtype: DType
    dims: tuple[Dim, ...]
    partial: frozenset[str] = field(default=frozenset())
    reduction: Reduction | None = None
    place: Place = ()

    @staticmethod
    def make(
        dtype: DType,
        shape: Iterable[int],
        *,
        partial: Iterable[str] = (),
        reduction: Reduction | None = None,
        root: Iterable[str] = (),
        at: Mapping[str, int] | None = None,
    ) -> "DistType":
        """Return the type of an unsharded tensor; without partial sub-axes it has no reduction.

        Args:
            root: the sub-axes on which only coordinate 0 holds data.
            at: the sub-axes on which only another coordinate holds data, with this coordinate.
        """
        axes = frozenset(partial)
        place = place_at({**dict.fromkeys(root, 0), **(at or {})})
        return DistType(dtype, tuple(map(Dim, shape)), axes, reduction if axes else None, place)

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return tuple(dim.size for dim in self.dims)

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """The formulas of the sizes; empty if all sizes are plain integers."""
        if not any(isinstance(dim.size, Size) for dim in self.dims):
            return ()
        return tuple(formula_of(dim.size) for dim in self.dims)

    def agrees(self, other: "DistType") -> bool:
        """Return whether types are the same at the defaults of the parameters of a function."""
        return self == other or (
            same_size(self.shape, other.shape) and with_sizes(other, self.shape) == self
        )

    @property
    def elements(self) -> int:
        """The number of elements of the global tensor."""
        return math.prod(self.shape)

    def local_shape(self, mesh: Mesh) -> tuple[int, ...]:
        """Return the shape of a device's buffer; a size that differs is an ``Extent``."""
        return tuple(block_size(mesh, without_formula(dim.size), dim.axes) for dim in self.dims)

    def shape_at(self, mesh: Mesh, coordinates: Coordinates) -> tuple[int, ...]:
        """Return the shape of the buffer of the device at some coordinates."""
        return tuple(extent_at(mesh, size, coordinates) for size in self.local_shape(mesh))

    def local_bytes(self, mesh: Mesh) -> int:
        """Return the size in bytes of the largest buffer of a device."""
        return without_formula(math.prod(self.local_shape(mesh))) * self.dtype.bytes

    def is_even(self, mesh: Mesh) -> bool:
        """Return whether all buffers have the same shape."""
        return not mesh.uneven or all(is_even(mesh, dim.axes) for dim in self.dims)

    def dim_of(self, axis: str) -> int | None:
        """Return the dimension that is sharded over a sub-axis, or None."""
        return next((i for i, dim in enumerate(self.dims) if axis in dim.axes), None)

    def state_of(self, axis: str) -> State:
        """Return the state of the value on a sub-axis."""
        if axis in self.partial:
            return "partial"
        if axis in self.placed:
            return "root"
        return "replicated" if self.dim_of(axis) is None else "sharded"

    @cached_property
    def placed(self) -> frozenset[str]:
        """The sub-axes on which a single coordinate holds data."""
        return frozenset(axis for axis, _ in self.place)

    def coordinate(self, axis: str) -> int:
        """Return the coordinate of a placed sub-axis that holds the data."""
        return dict(self.place)[axis]

    @property
    def whole(self) -> "DistType":
        """The type of the value behind its reduction."""
        return replace(self, partial=frozenset(), reduction=None) if self.partial else self

    def with_place(self, coordinates: Mapping[str, int] | Place) -> "DistType":
        """Return the type at these coordinates too; other sub-axes stay as they are."""
        return replace(self, place=place_at({**dict(self.place), **dict(coordinates)}))

    def without_place(self, axes: Iterable[str]) -> "DistType":
        """Return the type with sub-axes replicated on which it is placed."""
        gone = frozenset(axes)
        return replace(self, place=tuple(item for item in self.place if item[0] not in gone))

    @property
    def axes(self) -> list[str]:
        """The sub-axes on which the value is not replicated."""
        sharded = [axis for dim in self.dims for axis in dim.axes]
        return sharded + sorted(self.partial) + [axis for axis, _ in self.place]

    def __str__(self) -> str:
        return self.text()

    def text(self, mesh: Mesh | None = None, *, formulas: bool = False) -> str:
        """Return the type as in a ``.coll`` file; a mesh gives whole axes their short names.

        With ``formulas``, sizes are written as formulas of the function's parameters.
        """

        def listed(axes: Sequence[str]) -> str:
            return ", ".join(mesh.short(axes) if mesh else axes)

        def dim_text(dim: Dim) -> str:
            size = written(dim.size) if formulas else str(dim.size)
            if not dim.axes:
                return size
            names = listed(dim.axes)
            return f"{size}@({names})" if "," in names else f"{size}@{names}"

        def set_text(axes: frozenset[str]) -> str:
            return listed(mesh.ordered(axes) if mesh else sorted(axes))

        text = f"{self.dtype}[{', '.join(map(dim_text, self.dims))}]"
        if self.partial:
            text += f" partial({self.reduction}: {set_text(self.partial)})"
        return " ".join([text, *place_words(self.place, mesh)])


def place_words(place: Place, mesh: Mesh | None = None) -> list[str]:
    """Return a place as in a type of ``.coll``: ``root(data)`` and ``at(pipe = 2)``, or one of
    these."""
    entries = place_entries(place, mesh)
    root = ", ".join(name for name, index in entries.items() if not index)
    rest = ", ".join(f"{name} = {index}" for name, index in entries.items() if index)
    return [f"root({root})"] * bool(root) + [f"at({rest})"] * bool(rest)


def place_text(place: Place, mesh: Mesh | None = None) -> str:
    """Return a place as it is written behind ``at``."""
    entries = place_entries(place, mesh)
    return ", ".join(f"{name} = {index}" for name, index in entries.items())


def place_entries(place: Place, mesh: Mesh | None) -> dict[str, int]:
    """Return the coordinate on each placed sub-axis.

    With a mesh, the digits on all sub-axes of an axis become one coordinate on the axis.
    """
    coordinate = dict(place)
    if mesh is None:
        return coordinate
    entries: dict[str, int] = {}
    for axis in mesh.ordered(coordinate):
        name = mesh.by_name[axis].axis
        parts = mesh.of_axis[name]
        if all(part in coordinate for part in parts):
            entries[name] = index_over(mesh, parts, coordinate)
        else:
            entries[axis] = coordinate[axis]
    return entries


def check_type(mesh: Mesh, tensor: DistType) -> None:
    """Check that a type can exist on a mesh, in time independent of the number of devices.

    Raises:
        LayoutError: too many dimensions, a sub-axis the mesh does not have or that is used twice,
            a coordinate that is not there, a dimension that its shards do not divide, a cut that
            depends on other sub-axes, a size below 1, an average of integers, too many bytes.
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
    for axis, coordinate in tensor.place:
        check_coordinate(mesh, (axis,), coordinate)
    for index, dim in enumerate(tensor.dims):
        if dim.size < 1:
            raise LayoutError(
                f"dimension {index} has size {explained(dim.size)}; sizes are at least 1", dim=index
            )
        if dim.axes:
            check_cut(mesh, dim.axes, index)
            _check_divides(mesh, dim, index)
    if math.prod(map(int, tensor.shape)) * tensor.dtype.bytes > MAX_BYTES:  # without formulas
        raise LayoutError("the tensor has more than 2^63 - 1 bytes")
    if tensor.reduction and tensor.reduction not in tensor.dtype.reductions:
        if tensor.dtype is not DType.BOOL:
            raise LayoutError(
                f"an average of {tensor.dtype} is not an integer: use sum, or cast to a float first"
            )
        raise LayoutError(
            f"bool has no partial({tensor.reduction}): max is true where any part is, and min "
            "where all are; or cast it to a number first"
        )


def _check_divides(mesh: Mesh, dim: Dim, index: int) -> None:
    """Check that the shards of a dimension divide it."""
    if dim.size % (parts := units(mesh, dim.axes)):
        even = is_even(mesh, dim.axes)
        what = "shards" if even else "units of the weights"
        below, above = dim.size // parts * parts, -(-dim.size // parts) * parts
        nearest = f"{below} or {above}" if below else str(above)
        advice = f": make it {nearest}" if even else f": make it a multiple of {parts}"
        raise LayoutError(
            f"dimension {index} of size {explained(dim.size)} does not divide into the "
            f"{parts} {what} of {', '.join(mesh.short(dim.axes))}{advice}, or pad it",
            axes=dim.axes,
            dim=index,
        )


def check_coordinate(mesh: Mesh, axes: Sequence[str], index: int, parameter: str = "") -> None:
    """Check that sub-axes have a coordinate, which is a mixed-radix index over them.

    Raises:
        LayoutError: they do not.
    """
    size = mesh.group_size(axes)
    if not 0 <= index < size:
        raise LayoutError(
            f"{', '.join(mesh.short(axes)) or 'an axis of size 1'} has no coordinate {index}: "
            f"its coordinates are 0 to {size - 1}",
            axes=axes,
            parameter=parameter,
        )


def check_cut(mesh: Mesh, axes: Sequence[str], index: int) -> None:
    """Check that the sub-axes that shard a dimension determine where its blocks begin and end.

    Raises:
        LayoutError: the cut by a sub-axis depends on a sub-axis that the list does not name before.
    """
    undefined = undefined_cut(mesh, axes) if mesh.uneven else None
    if undefined is None:
        return
    name, group = undefined
    raise LayoutError(
        f"the weights of axis '{mesh.uneven[name].axis}' are no product of weights of {name} and "
        f"weights of its other sub-axes, so {name} does not say how to cut dimension {index}: "
        f"name the first of ({', '.join(group)}), in this order, such as {group[0]}",
        axes=(name,),
        dim=index,
    )


def without_formulas(x: DistType) -> DistType:
    """Return the type at the defaults of the parameters: its sizes are plain integers."""
    return with_sizes(x, map(int, x.shape)) if x.formulas else x


def with_sizes(x: DistType, sizes: Iterable[int]) -> DistType:
    """Return a type with other sizes."""
    dims = (Dim(size, dim.axes) for size, dim in zip(sizes, x.dims, strict=True))
    return replace(x, dims=tuple(dims))


def with_axes(x: DistType, dim: int, axes: tuple[str, ...]) -> DistType:
    """Return a type with a dimension sharded over other sub-axes."""
    dims = (*x.dims[:dim], Dim(x.dims[dim].size, axes), *x.dims[dim + 1 :])
    return replace(x, dims=dims)


def unsharded(x: DistType) -> DistType:
    """Return the type of the whole value on every device."""
    return DistType(x.dtype, tuple(Dim(dim.size) for dim in x.dims)) if x.axes else x


def without_trivial_axes(mesh: Mesh, x: DistType) -> DistType:
    """Return a type without the axes and parts of size 1 that a mesh declares.

    On them all states mean the same, so a type on the mesh does not name them.
    """
    trivial = {axis for axis in x.axes if mesh.named(axis) == ()}
    if not trivial:
        return x
    dims = (Dim(dim.size, tuple(a for a in dim.axes if a not in trivial)) for dim in x.dims)
    partial = x.partial - trivial
    reduction = x.reduction if partial else None
    place = tuple(item for item in x.place if item[0] not in trivial)
    return DistType(x.dtype, tuple(dims), partial, reduction, place)


def unknown_axis_message(mesh: Mesh, axis: str) -> str:
    """Return the error message for a sub-axis that a mesh does not have."""
    name, _, level = axis.partition(".")
    declared = next((known for known in mesh.axes if known.name == name), None)
    if declared is None:
        names = ", ".join(known.name for known in mesh.axes)
        return f"axis '{name}' is not in mesh @{mesh.name} (its axes are {names})"
    subs = mesh.declared[name]
    if axis in mesh.declared and not mesh.named(axis):
        return (
            f"axis '{axis}' has size 1 on mesh @{mesh.name}: "
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
