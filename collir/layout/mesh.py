"""Meshes: named axes of parallelism, and their sub-axes once they are placed on a machine."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from collir.layout.fitting import first_misfit, nearest_sizes
from collir.layout.weights import AxisWeights
from collir.machine import Machine
from collir.machine.counts import devices_text, product_text, saturated_product
from collir.machine.model import MAX_DEVICES


def unplaced_message(mesh: "Mesh") -> str:
    """Return the error message for a mesh that has to be placed on levels but is not."""
    level, axis = mesh.machine.levels[0], mesh.axes[0].name
    return (
        f"mesh @{mesh.name} is not placed on levels: -p place chooses a placement, or give its "
        f"axes levels, as in {axis} = {level.name}:{level.size}"
    )


class MeshError(ValueError):
    """A mesh that does not fit its machine; ``axis`` and ``level``, if not empty, are at fault."""

    def __init__(self, message: str, axis: str = "", level: str = ""):
        super().__init__(message)
        self.axis = axis
        self.level = level


@dataclass(frozen=True)
class Factor:
    """The part of an axis that lives on one hardware level: ``node:4``."""

    level: str
    size: int


@dataclass(frozen=True)
class Axis:
    """A parallelism axis: placed (``factors``, outermost level first) or only sized.

    Attributes:
        weights: the shares of the coordinates, in order, of a dimension that is sharded over the
            axis, without a common divisor; None if all coordinates have the same share.
    """

    name: str
    size: int
    factors: tuple[Factor, ...] | None = None
    weights: tuple[int, ...] | None = None

    @staticmethod
    def placed(name: str, factors: Iterable[Factor]) -> "Axis":
        """Return a placed axis; its size is the product of its factors."""
        factors = tuple(factors)
        return Axis(name, saturated_product(factor.size for factor in factors), factors)

    def weighted(self, weights: Iterable[int]) -> "Axis":
        """Return the axis with other weights, which are divided by their greatest divisor.

        Raises:
            MeshError: the number of weights is not the size, or one of them is below 1.
        """
        weights = tuple(weights)
        if len(weights) != self.size:
            raise MeshError(
                f"axis '{self.name}' has {self.size} coordinates and {len(weights)} weights: "
                "give every coordinate one",
                self.name,
            )
        if (least := min(weights)) < 1:
            raise MeshError(
                f"axis '{self.name}' has the weight {least}: weights are integers of at least 1, "
                "as every coordinate holds a part",
                self.name,
            )
        divisor = math.gcd(*weights)
        shares = tuple(weight // divisor for weight in weights)
        if sum(shares) > MAX_DEVICES:
            raise MeshError(
                f"the weights of axis '{self.name}' add up to {sum(shares)}: at most "
                f"{MAX_DEVICES} is possible",
                self.name,
            )
        return replace(self, weights=shares if max(shares) > 1 else None)


@dataclass(frozen=True)
class SubAxis:
    """The part of one axis that lives on one level; ``level`` is None where it is not placed.

    A device's coordinate on a sub-axis is ``rank // stride % size``.
    """

    axis: str
    level: str | None
    size: int
    stride: int

    @property
    def name(self) -> str:
        """``data.node``, or ``data`` where the axis is not placed."""
        return self.axis if self.level is None else f"{self.axis}.{self.level}"


@dataclass(frozen=True)
class Mesh:
    """Axes on a machine.

    A placed mesh is a parallelism matrix: the factors on a level multiply to the level's size. A
    mesh without a placement may be smaller than its machine.
    Ranks are mixed radix over the levels, outermost most significant, and within a level the first
    declared axis is most significant; without a placement, over the axes in declared order.

    Raises:
        MeshError: axes that are not distinct, not all placed, unknown levels, sizes that do not
            multiply up to the machine's, or to more.
    """

    name: str
    machine: Machine
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if not self.axes:
            raise MeshError(f"mesh @{self.name} has no axes")
        names: set[str] = set()
        for axis in self.axes:
            if axis.name in names:
                raise MeshError(f"mesh @{self.name} has two axes named '{axis.name}'", axis.name)
            names.add(axis.name)
            if axis.size < 1 or any(factor.size < 1 for factor in axis.factors or ()):
                raise MeshError(f"axis '{axis.name}' needs sizes of at least 1", axis.name)
            if (axis.factors is None) != (self.axes[0].factors is None):
                raise MeshError(
                    f"mesh @{self.name} places only some of its axes: "
                    f"give '{axis.name}' levels too, or none of them",
                    axis.name,
                )
        if self.placed:
            self._check_placement()
        elif (total := saturated_product(axis.size for axis in self.axes)) > self.machine.devices:
            raise MeshError(
                f"the axes of mesh @{self.name} multiply to {product_text(total)}, "
                f"but machine @{self.machine.name} has {devices_text(self.machine.devices)}"
                f"{self._fitting()}"
            )

    def _fitting(self) -> str:
        """Return the end of an error message: the axis that does not fit, and sizes that do."""
        sizes = [axis.size for axis in self.axes]
        wrong = ""
        if (index := first_misfit(self.machine.devices, sizes)) is not None:
            beside = " beside those before it" if self.machine.devices % sizes[index] == 0 else ""
            wrong = f": axis '{self.axes[index].name}' of {sizes[index]} does not divide it{beside}"
        if max(sizes) > MAX_DEVICES:
            return wrong
        return f"{wrong}; the nearest sizes that fit are {self.nearest_sizes()}"

    def nearest_sizes(self) -> str:
        """Return the sizes nearest to the axes' own that fill the machine, as text."""
        sizes = [axis.size for axis in self.axes]
        return " or ".join(
            ", ".join(f"{axis.name} = {size}" for axis, size in zip(self.axes, listed, strict=True))
            for listed in nearest_sizes(self.machine.devices, sizes, 2)
        )

    def _check_placement(self) -> None:
        order = {level.name: place for place, level in enumerate(self.machine.levels)}
        for axis in self.axes:
            factors = axis.factors or ()
            seen: set[str] = set()
            for level in (factor.level for factor in factors):
                if level not in order:
                    raise MeshError(self._unknown_level(level), axis.name, level)
                if level in seen:
                    raise MeshError(
                        f"axis '{axis.name}' names level '{level}' twice", axis.name, level
                    )
                seen.add(level)
            outermost_first = tuple(sorted(factors, key=lambda factor: order[factor.level]))
            if factors != outermost_first:
                right = " * ".join(f"{factor.level}:{factor.size}" for factor in outermost_first)
                raise MeshError(
                    f"write the levels of axis '{axis.name}' outermost first: {right}", axis.name
                )
        for level in self.machine.levels:
            sizes = [size for _, size in self._on_level.get(level.name, ())]
            if not sizes and level.size > 1:
                raise MeshError(
                    f"no axis of mesh @{self.name} is on level '{level.name}', which has "
                    f"{level.size} children: give one of them the factor {level.name}:{level.size}"
                )
            if (total := saturated_product(sizes)) != level.size:
                raise MeshError(
                    f"the factors of mesh @{self.name} on level '{level.name}' multiply to "
                    f"{product_text(total)}, but the level has {level.size} children: use all of "
                    "them; `collir new` writes machines of other sizes"
                )

    def _unknown_level(self, name: str) -> str:
        """Return the error message for a factor on no level of the machine."""
        for level in self.machine.levels:
            if level.parents and level.parents.level.name == name:
                return (
                    f"the children of level '{name}' differ in size, so no axis is on it: axes are "
                    f"on '{level.name}', which counts all {level.size}, as in "
                    f"`{level.name}:{level.size}`"
                )
        return (
            f"machine @{self.machine.name} has no level '{name}' "
            f"(its levels are {', '.join(level.name for level in self.machine.levels)})"
        )

    @property
    def placed(self) -> bool:
        """True if the axes are placed on levels."""
        return self.axes[0].factors is not None

    @property
    def devices(self) -> int:
        """The number of devices: the machine's, or without a placement, the product of the axes."""
        return (
            self.machine.devices
            if self.placed
            else saturated_product(axis.size for axis in self.axes)
        )

    @cached_property
    def sub_axes(self) -> tuple[SubAxis, ...]:
        """The sub-axes of size above 1: axes as declared, each from its outermost level inwards."""
        sub_axes: list[SubAxis] = []
        stride = self.devices
        for axis, level, size in self._radices():
            stride //= size
            if size > 1:
                sub_axes.append(SubAxis(axis, level, size, stride))
        order = [axis.name for axis in self.axes]
        return tuple(sorted(sub_axes, key=lambda sub: (order.index(sub.axis), -sub.stride)))

    def _radices(self) -> Iterable[tuple[str, str | None, int]]:
        """Yield (axis, level, size) of the mixed radix of the ranks, most significant first."""
        if not self.placed:
            for axis in self.axes:
                yield axis.name, None, axis.size
            return
        for level in self.machine.levels:
            for axis, size in self._on_level.get(level.name, ()):
                yield axis, level.name, size

    @property
    def _on_level(self) -> dict[str, list[tuple[str, int]]]:
        """For every level, the axes that are placed on it, with the sizes of their factors."""
        factors_on: dict[str, list[tuple[str, int]]] = {}
        for axis in self.axes:
            for factor in axis.factors or ():
                factors_on.setdefault(factor.level, []).append((axis.name, factor.size))
        return factors_on

    @cached_property
    def by_name(self) -> dict[str, SubAxis]:
        """The sub-axes by their names."""
        return {sub.name: sub for sub in self.sub_axes}

    @cached_property
    def of_axis(self) -> dict[str, tuple[str, ...]]:
        """For every axis, the names of its sub-axes, major to minor (empty if its size is 1)."""
        return {
            axis.name: tuple(sub.name for sub in self.sub_axes if sub.axis == axis.name)
            for axis in self.axes
        }

    @cached_property
    def uneven(self) -> dict[str, AxisWeights]:
        """The weights of the axis of each sub-axis whose axis has weights."""
        by_sub_axis: dict[str, AxisWeights] = {}
        for axis in self.axes:
            if axis.weights:
                sizes = {name: self.by_name[name].size for name in self.of_axis[axis.name]}
                weights = AxisWeights(axis.name, axis.weights, sizes)
                by_sub_axis |= dict.fromkeys(sizes, weights)
        return by_sub_axis

    @property
    def declared(self) -> dict[str, tuple[str, ...]]:
        """For every name of an axis or of its part on a level, its parts, those of size 1 too."""
        names: dict[str, tuple[str, ...]] = {}
        for axis in self.axes:
            factors = axis.factors
            parts = [axis.name] if factors is None else [f"{axis.name}.{f.level}" for f in factors]
            names |= {part: (part,) for part in parts} | {axis.name: tuple(parts)}
        return names

    def named(self, name: str) -> tuple[str, ...] | None:
        """Return the sub-axes that a name stands for, major to minor; None if it is not declared.

        An axis stands for all of its sub-axes. An axis or a part of size 1 stands for none.
        """
        return self._sub_axes_of.get(name)

    @cached_property
    def _sub_axes_of(self) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(part for part in parts if part in self.by_name)
            for name, parts in self.declared.items()
        }

    @cached_property
    def trivial_parts(self) -> dict[str, frozenset[str]]:
        """For every name of several sub-axes, its parts of size 1, which distribute nothing."""
        parts = {name: {*parts}.difference(self.by_name) for name, parts in self.declared.items()}
        return {name: frozenset(trivial) for name, trivial in parts.items() if trivial}

    def group_size(self, axes: Iterable[str]) -> int:
        """Return the product of the sizes of sub-axes of this mesh."""
        sizes = self.by_name
        return math.prod(sizes[name].size for name in axes)

    def label(self, name: str) -> str:
        """Return the name of a sub-axis for people: that of its axis, if it is all of it."""
        axis = self.by_name[name].axis
        return axis if len(self.of_axis[axis]) == 1 else name

    def ordered(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Return a set of sub-axes in the order of the mesh."""
        names = frozenset(axes)
        return tuple(name for name in self.by_name if name in names)

    def short(self, axes: Sequence[str]) -> tuple[str, ...]:
        """Return sub-axes as a user writes them: a whole axis, major to minor, by its name."""
        names: list[str] = []
        rest = tuple(axes)
        while rest:
            sub = self.by_name.get(rest[0])
            all_parts = self.of_axis[sub.axis] if sub else ()
            if sub and rest[: len(all_parts)] == all_parts:
                names.append(sub.axis)
                rest = rest[len(all_parts) :]
            else:
                names.append(rest[0])
                rest = rest[1:]
        return tuple(names)


def index_over(mesh: Mesh, axes: Iterable[str], coordinate: Mapping[str, int]) -> int:
    """Return the mixed-radix index of a coordinate over sub-axes, the first most significant."""
    index = 0
    for axis in axes:
        index = index * mesh.by_name[axis].size + coordinate[axis]
    return index


def digits_over(mesh: Mesh, axes: Sequence[str], index: int) -> dict[str, int]:
    """Return the coordinates on sub-axes that have this mixed-radix index over them."""
    digits: dict[str, int] = {}
    for axis in reversed(axes):
        index, digits[axis] = divmod(index, mesh.by_name[axis].size)
    return {axis: digits[axis] for axis in axes}


def by_rank(mesh: Mesh, axes: Iterable[str]) -> tuple[str, ...]:
    """Return sub-axes in the order in which ranks count, so that the ranks of a group ascend."""
    return tuple(sorted(axes, key=lambda axis: -mesh.by_name[axis].stride))
