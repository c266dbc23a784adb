"""From a program on the synthesis hierarchy to groups of real devices (P², Xie et al., MLSys 2022).

The synthesis hierarchy has the factors of the reduced axes only: a root of size 1, then one level
per hardware level, of which the factors are multiplied. A program found on it runs once for every
combination of the other factors' indices.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import product
from math import prod

from collir.layout import Mesh, MeshError
from collir.synthesis.p2.dsl import (
    CollectiveKind,
    DeviceGroup,
    DeviceGroups,
    Hierarchy,
    Instruction,
    Program,
    span,
)
from collir.synthesis.p2.matrices import Matrix


class Numbering(StrEnum):
    """How the devices of a reduction over several axes are numbered."""

    AXES = "axes"
    """Axis by axis, as P² does: what is one block of hardware may be scattered."""
    HARDWARE = "hardware"
    """Level by level, so that a slice of the synthesis hierarchy is a block of hardware."""


@dataclass(frozen=True)
class MatrixFactor:
    """A factor of a matrix: a device's index on it is ``rank // stride % size``."""

    axis: int
    level: int
    size: int
    stride: int


@dataclass(frozen=True)
class LoweredStep:
    """A collective that all groups carry out at once, on the ranks of the machine."""

    collective: CollectiveKind
    groups: DeviceGroups


@dataclass(frozen=True)
class SubAxes:
    """The groups of an instruction as sub-axes of a mesh.

    ``over`` is in the order of a group's members, major to minor; only the devices at coordinate 0
    of all sub-axes in ``root`` take part.
    """

    over: tuple[str, ...]
    root: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReducedFactors:
    """Factors of a parallelism matrix that one collective reduces over.

    Ranks are mixed radix over the levels, outermost most significant, and within a level the first
    axis is most significant.
    """

    matrix: Matrix
    factors: frozenset[tuple[int, int]]
    """Pairs of an axis and a level."""
    numbering: Numbering = Numbering.AXES

    @staticmethod
    def of_axes(
        matrix: Matrix, axes: Collection[int], numbering: Numbering = Numbering.AXES
    ) -> "ReducedFactors":
        """Over whole axes, by their indices."""
        levels = range(len(matrix[0]))
        return ReducedFactors(matrix, frozenset(product(axes, levels)), numbering)

    @staticmethod
    def of_mesh(
        mesh: Mesh, sub_axes: Collection[str], numbering: Numbering = Numbering.AXES
    ) -> "ReducedFactors":
        """Over sub-axes of a placed mesh, by their names.

        Raises:
            MeshError: the mesh is not placed, or has no sub-axis of a name.
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
        """The synthesis hierarchy; its level j + 1 is the hardware's level j."""
        levels = range(len(self.matrix[0]))
        axes = range(len(self.matrix))
        return (
            1,
            *(prod(self.matrix[i][j] for i in axes if (i, j) in self.factors) for j in levels),
        )

    @cached_property
    def _digits(self) -> list[MatrixFactor]:
        """All factors, most significant in a rank first."""
        stride = prod(map(prod, self.matrix))
        found: list[MatrixFactor] = []
        for level in range(len(self.matrix[0])):
            for axis, row in enumerate(self.matrix):
                stride //= row[level]
                found.append(MatrixFactor(axis, level, row[level], stride))
        return found

    @cached_property
    def digits(self) -> tuple[MatrixFactor, ...]:
        """The reduced factors, most significant in the numbers of the synthesis hierarchy first."""
        reduced = [digit for digit in self._digits if (digit.axis, digit.level) in self.factors]
        if self.numbering is Numbering.AXES:
            reduced.sort(key=lambda digit: digit.axis)
        return tuple(reduced)

    def copies(self) -> Iterator[DeviceGroup]:
        """For every combination of the other indices the ranks of the reducing devices.

        They are in the order of their numbers on the synthesis hierarchy.
        """
        others = [digit for digit in self._digits if (digit.axis, digit.level) not in self.factors]
        offsets = _ranks(self.digits)
        for start in _ranks(others):
            yield tuple([start + offset for offset in offsets])

    def lower(self, program: Program) -> tuple[LoweredStep, ...]:
        """A program's steps on the ranks of the machine."""
        copies = list(self.copies())
        return tuple(self._step(instruction, copies) for instruction in program)

    def _step(self, instruction: Instruction, copies: Sequence[DeviceGroup]) -> LoweredStep:
        hierarchy = self.hierarchy
        found = span(hierarchy, instruction.slice, instruction.form)
        groups = list(found.groups(prod(hierarchy)))
        return LoweredStep(
            instruction.collective,
            tuple(tuple([copy[i] for i in group]) for copy in copies for group in groups),
        )

    def over(self, instruction: Instruction, mesh: Mesh) -> SubAxes | None:
        """The sub-axes of a placed mesh that an instruction's groups are, if they are any.

        They always are in the hardware's numbering; in that of the axes a group may be a part of a
        sub-axis.

        Raises:
            MeshError: the mesh is not placed.
        """
        names = _names(mesh)
        found = span(self.hierarchy, instruction.slice, instruction.form)
        over: list[str] = []
        root: list[str] = []
        for name, low, high in self._weights(names):
            if low >= found.inner * found.size:
                continue  # the same within a group, and any
            if found.inner <= low and high <= found.inner * found.size:
                over.append(name)
            elif high <= found.inner:
                root.append(name)
            else:
                return None
        return SubAxes(tuple(over), tuple(root) if found.master else ())

    def _weights(self, names: dict[tuple[int, int], str]) -> Iterator[tuple[str, int, int]]:
        """The reduced sub-axes, and what their index and they as a whole count in a number."""
        high = prod(self.hierarchy)
        for digit in self.digits:
            low = high // digit.size
            if digit.size > 1:
                yield names[digit.axis, digit.level], low, high
            high = low


def matrix_of(mesh: Mesh) -> Matrix:
    """The parallelism matrix of a placed mesh.

    Raises:
        MeshError: it is not placed.
    """
    if not mesh.placed:
        raise MeshError(f"mesh @{mesh.name} is not placed")
    sizes = {(sub.axis, sub.level): sub.size for sub in mesh.sub_axes}
    return tuple(
        tuple(sizes.get((axis.name, level.name), 1) for level in mesh.machine.levels)
        for axis in mesh.axes
    )


def _names(mesh: Mesh) -> dict[tuple[int, int], str]:
    """The names of the sub-axes, by axis and level."""
    if not mesh.placed:
        raise MeshError(f"mesh @{mesh.name} is not placed")
    axes = [axis.name for axis in mesh.axes]
    levels = [level.name for level in mesh.machine.levels]
    return {
        (axes.index(sub.axis), levels.index(sub.level)): sub.name
        for sub in mesh.sub_axes
        if sub.level is not None
    }


def _ranks(digits: Sequence[MatrixFactor]) -> list[int]:
    """All ranks that differ in these digits alone, the last one fastest."""
    found = [0]
    for digit in digits:
        found = [rank + i * digit.stride for rank in found for i in range(digit.size)]
    return found
