"""Lowering of programs from the synthesis hierarchy to devices (P², Xie et al., MLSys 2022).

The synthesis hierarchy has the factors of the reduced axes only: a root of size 1, then one level
per hardware level, whose size is the product of the reduced factors on that level. A program for it
runs once for every combination of indices of the other factors.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import product
from math import prod

from collir.layout import Mesh, MeshError
from collir.synthesis.placement.matrices import Matrix
from p2.dsl import (
    CollectiveKind,
    DeviceGroup,
    DeviceGroups,
    Hierarchy,
    Instruction,
    Program,
    span,
)


class Numbering(StrEnum):
    """The numbering of the devices of a reduction over several axes."""

    AXES = "axes"
    """Axis by axis, as in P²: the devices of one block of hardware may be scattered."""
    HARDWARE = "hardware"
    """Level by level, so that a slice of the synthesis hierarchy is a block of hardware."""


@dataclass(frozen=True)
class MatrixFactor:
    """A factor of a matrix; the index of a device on it is ``rank // stride % size``."""

    axis: int
    level: int
    size: int
    stride: int


@dataclass(frozen=True)
class LoweredStep:
    """A collective that all groups run at once, on the ranks of the machine."""

    collective: CollectiveKind
    groups: DeviceGroups


@dataclass(frozen=True)
class SubAxes:
    """The groups of an instruction as sub-axes of a mesh.

    Attributes:
        over: sub-axes whose coordinates number the members of a group, major to minor.
        root: sub-axes of which only the devices at coordinate 0 take part.
    """

    over: tuple[str, ...]
    root: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReducedFactors:
    """The factors of a parallelism matrix over which a collective reduces.

    Ranks are mixed radix over the levels, outermost most significant. Within a level the first axis
    is most significant.
    """

    matrix: Matrix
    factors: frozenset[tuple[int, int]]
    """Pairs of an axis and a level."""
    numbering: Numbering = Numbering.AXES

    @staticmethod
    def of_axes(
        matrix: Matrix, axes: Collection[int], numbering: Numbering = Numbering.AXES
    ) -> "ReducedFactors":
        """Return the factors of whole axes, by the indices of the axes."""
        levels = range(len(matrix[0]))
        return ReducedFactors(matrix, frozenset(product(axes, levels)), numbering)

    @staticmethod
    def of_mesh(
        mesh: Mesh, sub_axes: Collection[str], numbering: Numbering = Numbering.AXES
    ) -> "ReducedFactors":
        """Return the factors of sub-axes of a placed mesh, by their names.

        Raises:
            MeshError: the mesh is not placed, or has no sub-axis of one of the names.
        """
        names = {name: pair for pair, name in _names(mesh).items()}
        unknown = [name for name in sub_axes if name not in names]
        if unknown:
            raise MeshError(f"mesh @{mesh.name} has no sub-axis '{unknown[0]}'")
        return ReducedFactors(
            matrix_of(mesh), frozenset(names[name] for name in sub_axes), numbering
        )

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the synthesis hierarchy; its level j + 1 is level j of the hardware."""
        levels = range(len(self.matrix[0]))
        axes = range(len(self.matrix))
        return (
            1,
            *(prod(self.matrix[i][j] for i in axes if (i, j) in self.factors) for j in levels),
        )

    @cached_property
    def _all_factors(self) -> list[MatrixFactor]:
        """The factors of the matrix, most significant in a rank first."""
        stride = prod(map(prod, self.matrix))
        factors: list[MatrixFactor] = []
        for level in range(len(self.matrix[0])):
            for axis, row in enumerate(self.matrix):
                stride //= row[level]
                factors.append(MatrixFactor(axis, level, row[level], stride))
        return factors

    @cached_property
    def _reduced(self) -> tuple[MatrixFactor, ...]:
        """The reduced factors, most significant in the synthesis hierarchy first."""
        reduced = [f for f in self._all_factors if (f.axis, f.level) in self.factors]
        if self.numbering is Numbering.AXES:
            reduced.sort(key=lambda factor: factor.axis)
        return tuple(reduced)

    def copies(self) -> Iterator[DeviceGroup]:
        """Yield the ranks that reduce together, for every combination of the other indices.

        The ranks are in the order of their numbers on the synthesis hierarchy.
        """
        repeated = [f for f in self._all_factors if (f.axis, f.level) not in self.factors]
        offsets = _ranks(self._reduced)
        for start in _ranks(repeated):
            yield tuple([start + offset for offset in offsets])

    def lower(self, program: Program) -> tuple[LoweredStep, ...]:
        """Return the steps of a program on the ranks of the machine."""
        copies = list(self.copies())
        return tuple(self._step(instruction, copies) for instruction in program)

    def _step(self, instruction: Instruction, copies: Sequence[DeviceGroup]) -> LoweredStep:
        hierarchy = self.hierarchy
        group_span = span(hierarchy, instruction.slice, instruction.form)
        groups = list(group_span.groups(prod(hierarchy)))
        return LoweredStep(
            instruction.collective,
            tuple(tuple([copy[i] for i in group]) for copy in copies for group in groups),
        )

    def over(self, instruction: Instruction, mesh: Mesh) -> SubAxes | None:
        """Return the sub-axes of a placed mesh that make the groups of an instruction.

        Returns None if no sub-axes do: with the numbering by axes, a group may be a part of a
        sub-axis; with the numbering by hardware it never is.

        Raises:
            MeshError: the mesh is not placed.
        """
        names = _names(mesh)
        group_span = span(self.hierarchy, instruction.slice, instruction.form)
        inner, outer = group_span.inner, group_span.inner * group_span.size
        over: list[str] = []
        root: list[str] = []
        for name, low, high in self._strides(names):
            if low >= outer:
                continue  # equal within a group
            if inner <= low and high <= outer:
                over.append(name)
            elif high <= inner:
                root.append(name)
            else:
                return None
        return SubAxes(tuple(over), tuple(root) if group_span.master else ())

    def _strides(self, names: dict[tuple[int, int], str]) -> Iterator[tuple[str, int, int]]:
        """Yield each reduced sub-axis with its stride, and the stride of the next greater one."""
        high = prod(self.hierarchy)
        for factor in self._reduced:
            low = high // factor.size
            if factor.size > 1:
                yield names[factor.axis, factor.level], low, high
            high = low


def matrix_of(mesh: Mesh) -> Matrix:
    """Return the parallelism matrix of a placed mesh.

    Raises:
        MeshError: the mesh is not placed.
    """
    if not mesh.placed:
        raise MeshError(f"mesh @{mesh.name} is not placed")
    sizes = {(sub.axis, sub.level): sub.size for sub in mesh.sub_axes}
    return tuple(
        tuple(sizes.get((axis.name, level.name), 1) for level in mesh.machine.levels)
        for axis in mesh.axes
    )


def _names(mesh: Mesh) -> dict[tuple[int, int], str]:
    """Return the names of the sub-axes, by the indices of axis and level."""
    if not mesh.placed:
        raise MeshError(f"mesh @{mesh.name} is not placed")
    axes = [axis.name for axis in mesh.axes]
    levels = [level.name for level in mesh.machine.levels]
    return {
        (axes.index(sub.axis), levels.index(sub.level)): sub.name
        for sub in mesh.sub_axes
        if sub.level is not None
    }


def _ranks(factors: Sequence[MatrixFactor]) -> list[int]:
    """Return all ranks whose indices on other factors are 0; the last factor varies fastest."""
    ranks = [0]
    for factor in factors:
        ranks = [rank + i * factor.stride for rank in ranks for i in range(factor.size)]
    return ranks
