"""Buffers of a rank, and numbers that depend on its coordinates.

The program of a rank is written once for all of them. Where they differ, it says how: as a sum of
multiples of coordinates on sub-axes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from collir.layout.dtypes import DType
from collir.layout.mesh import Mesh


@dataclass(frozen=True)
class Affine:
    """A number of each rank: a constant and multiples of coordinates.

    Attributes:
        terms: sub-axes, each with the factor of the rank's coordinate on it; no factor is 0.
    """

    constant: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(constant: int, terms: Mapping[str, int] | None = None) -> "Affine":
        """Return a number; factors of 0 are left out."""
        return Affine(constant, tuple((x, n) for x, n in (terms or {}).items() if n))

    @staticmethod
    def index(mesh: Mesh, axes: Iterable[str]) -> "Affine":
        """Return the mixed-radix index of a rank over sub-axes, the first most significant."""
        terms: dict[str, int] = {}
        for axis in axes:
            size = mesh.by_name[axis].size
            terms = {name: factor * size for name, factor in terms.items()} | {axis: 1}
        return Affine.of(0, terms)

    def __add__(self, other: "Affine | int") -> "Affine":
        if isinstance(other, int):
            return Affine(self.constant + other, self.terms)
        terms = dict(self.terms)
        for name, factor in other.terms:
            terms[name] = terms.get(name, 0) + factor
        return Affine.of(self.constant + other.constant, terms)

    def __mul__(self, factor: int) -> "Affine":
        terms = {name: own * factor for name, own in self.terms}
        return Affine.of(self.constant * factor, terms)

    def at(self, coordinates: Mapping[str, int]) -> int:
        """Return the number of a rank with some coordinates."""
        return self.constant + sum(factor * coordinates[name] for name, factor in self.terms)

    def bounds(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Return the least and the largest number of all ranks.

        Args:
            sizes: the sizes of sub-axes, by name.
        """
        ends = [factor * (sizes[name] - 1) for name, factor in self.terms]
        low = self.constant + sum(min(0, end) for end in ends)
        return low, self.constant + sum(max(0, end) for end in ends)

    def __str__(self) -> str:
        parts = [f"{factor} * {name}" if factor != 1 else name for name, factor in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


@dataclass(frozen=True)
class LocalBuffer:
    """Memory of a rank as an array of elements.

    Attributes:
        strides: the elements from one index of a dimension to the next; None: those of rows one
            behind the other.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    @staticmethod
    def strided(dtype: DType, shape: Sequence[int], strides: Sequence[int]) -> "LocalBuffer":
        """Return a buffer with some strides; those of dimensions of size 1 do not count."""
        dense = LocalBuffer(dtype, tuple(shape)).steps
        pairs = zip(shape, strides, dense, strict=True)
        own = tuple(usual if size == 1 else step for size, step, usual in pairs)
        return LocalBuffer(dtype, tuple(shape), None if own == dense else own)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Elements from one index of each dimension to the next."""
        if self.strides is not None:
            return self.strides
        return tuple(math.prod(self.shape[dim + 1 :]) for dim in range(len(self.shape)))

    @property
    def packed(self) -> "LocalBuffer":
        """The same elements, with rows one behind the other."""
        return LocalBuffer(self.dtype, self.shape)

    @property
    def is_contiguous(self) -> bool:
        """True if its elements are rows one behind the other."""
        return self.strides is None

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of all elements."""
        return self.elements * self.dtype.bytes

    @property
    def span(self) -> int:
        """The number of elements of memory from the first to the last one."""
        if not self.elements:
            return 0
        ends = ((n - 1) * step for n, step in zip(self.shape, self.steps, strict=True))
        return 1 + sum(ends)

    @property
    def repeats(self) -> bool:
        """True if two indices may lie at one place, as where a stride is 0."""
        reached = 0
        for step, size in sorted(
            (step, size) for step, size in zip(self.steps, self.shape, strict=True) if size > 1
        ):
            if step <= reached:
                return True
            reached += step * (size - 1)
        return False

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        if self.strides is None:
            return text
        return f"{text} strides [{', '.join(map(str, self.strides))}]"
