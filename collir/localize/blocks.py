"""Blocks of a dimension, as a rank holds them: rows of one buffer, or one behind the other.

A dimension that is cut into ``n`` blocks lies as ``[rows, n, inner]`` in memory, where ``rows`` are
the indices of the dimensions in front. Collectives take ``[n, rows, inner]``.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from collir.layout import DistType, DType, Mesh
from collir.layout.local import LocalBuffer


def local_buffer(x: DistType, mesh: Mesh) -> LocalBuffer:
    """Return the buffer of a rank of a value whose blocks are all equal."""
    return LocalBuffer(x.dtype, tuple(map(int, x.local_shape(mesh))))


class CutBlocks(NamedTuple):
    """The blocks of a dimension of a contiguous buffer."""

    dtype: DType
    rows: int
    number: int
    inner: int

    @staticmethod
    def of(x: LocalBuffer, dim: int, count: int) -> "CutBlocks":
        """Return the equal blocks of a dimension."""
        rows = math.prod(x.shape[:dim])
        return CutBlocks(x.dtype, rows, count, math.prod(x.shape[dim:]) // count)

    @property
    def in_place(self) -> LocalBuffer:
        """The blocks as they lie in the buffer, the first index that of the block."""
        return LocalBuffer.strided(
            self.dtype,
            (self.number, self.rows, self.inner),
            (self.inner, self.number * self.inner, 1),
        )

    @property
    def single(self) -> LocalBuffer:
        """One block as it lies in the buffer."""
        shape, strides = (self.rows, self.inner), (self.number * self.inner, 1)
        return LocalBuffer.strided(self.dtype, shape, strides)


def part(x: LocalBuffer, dim: int, size: int) -> LocalBuffer:
    """Return the part of a contiguous buffer with some indices of a dimension, as it lies there."""
    return LocalBuffer.strided(x.dtype, (*x.shape[:dim], size, *x.shape[dim + 1 :]), x.steps)


def permuted(x: LocalBuffer, order: Sequence[int]) -> LocalBuffer:
    """Return a contiguous buffer with its dimensions in another order, as it lies there."""
    shape, steps = [x.shape[dim] for dim in order], [x.steps[dim] for dim in order]
    return LocalBuffer.strided(x.dtype, shape, steps)


def repeated(x: LocalBuffer, shape: Sequence[int]) -> LocalBuffer:
    """Return a contiguous buffer repeated along new dimensions in front and those of size 1."""
    new = len(shape) - len(x.shape)
    steps = [0] * new + [
        0 if own != size else step
        for own, size, step in zip(x.shape, shape[new:], x.steps, strict=True)
    ]
    return LocalBuffer.strided(x.dtype, shape, steps)
