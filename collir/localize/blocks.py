"""Blocks of a dimension, as a rank holds them: in rows of one buffer, or one behind the other.

A dimension that is cut into ``n`` equal blocks lies as ``[rows, n, inner]`` in memory, where
``rows`` are the indices of the dimensions in front. Collectives take ``[n, rows, inner]``. Blocks
that differ in size are runs of equal ones.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, product
from typing import NamedTuple

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Mesh
from collir.layout.cuts import Extent, cuts, is_even, places
from collir.layout.local import LocalBuffer, coordinate_index, table
from collir.layout.sizes import OpenSize
from collir.localize.shares import shares_by_dim


def rank_number(mesh: Mesh, size: int) -> int:
    """Return a size as a number of each rank; an open size is returned as it is."""
    if isinstance(size, OpenSize):
        return size
    if not isinstance(size, Extent):
        return int(size)
    shares = [table(over, mesh.uneven[over[0]].shares(over)) for over in size.cuts]
    return int(size.units) * math.prod(shares)


def local_buffer(x: DistType, mesh: Mesh) -> LocalBuffer:
    """Return the buffer of a value on a rank."""
    return LocalBuffer(x.dtype, tuple(rank_number(mesh, size) for size in x.local_shape(mesh)))


def starts_of(x: DistType, mesh: Mesh) -> list[int]:
    """Return the start of a value's block in each dimension."""
    starts: list[int] = []
    for dim, size in zip(x.dims, x.local_shape(mesh), strict=True):
        if is_even(mesh, dim.axes):
            starts.append(coordinate_index(mesh, dim.axes) * rank_number(mesh, size))
            continue
        begins = [cuts(mesh, int(dim.size), dim.axes, at)[0] for at in places(mesh, dim.axes)]
        starts.append(table(dim.axes, begins))
    return starts


class BlockRun(NamedTuple):
    """Equal blocks of a dimension, one behind the other.

    Attributes:
        number: how many there are.
        size: the elements of one of them, in a row.
    """

    number: int
    size: int


@dataclass(frozen=True)
class CutBlocks:
    """The blocks of a group of ranks in one dimension of a contiguous buffer.

    Attributes:
        begin: where the block of this rank begins in a row.
    """

    dtype: DType
    rows: int
    runs: tuple[BlockRun, ...]
    begin: int

    @staticmethod
    def of(x: LocalBuffer, dim: int, op: DistOp, mesh: Mesh) -> "CutBlocks":
        """Return the blocks of a dimension that a step over sub-axes cuts or joins.

        Args:
            x: the buffer with all blocks of the group.
        """
        rows, inner = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
        known = shares_by_dim(op, mesh)
        if known is None or not known[dim].cuts:
            count = mesh.group_size(op.over)
            size = x.shape[dim] * inner // count
            begin = coordinate_index(mesh, op.over) * size
            return CutBlocks(x.dtype, rows, (BlockRun(count, size),), begin)
        shares, sides = known[dim], (dist_type(op.operands[0]), dist_type(op.result))
        block = max(sides, key=lambda side: len(side.dims[dim].axes)).local_shape(mesh)[dim]
        unit = rank_number(mesh, shares.unit(block)) * inner
        sizes = [table(shares.rest, column) * unit for column in zip(*shares.rows, strict=True)]
        runs = tuple(BlockRun(len(list(run)), size) for size, run in groupby(sizes))
        axes = (*shares.rest, *op.over)
        begins = [sum(line[:index]) for line in shares.rows for index in range(len(line))]
        return CutBlocks(x.dtype, rows, runs, table(axes, begins) * unit)

    @property
    def is_even(self) -> bool:
        """True if all blocks are equal."""
        return len(self.runs) == 1

    @property
    def row(self) -> int:
        """The elements of all blocks in a row."""
        return sum(run.number * run.size for run in self.runs)

    @property
    def counts(self) -> list[int]:
        """The elements of each block."""
        return [self.rows * run.size for run in self.runs for _ in range(run.number)]

    @property
    def most(self) -> int:
        """The elements of the largest block of any group, the same number for all groups."""
        return self.rows * max(int(run.size) for run in self.runs)

    def views(self, order: "BlockOrder", slot: int | None = None) -> Iterator["BlockCopy"]:
        """Yield the copies between blocks in rows and blocks one behind the other, in an order.

        Args:
            slot: the elements from one block to the next, if more than a block has.
        """
        if self.is_even:
            [(_, size)] = self.runs
            digits = [(count, step * size) for count, step in order.digits]
            dims = [(self.rows, self.row)] if order.is_natural or self.rows != 1 else []
            shape, steps = zip(*digits, *dims, (size, 1), strict=True)
            rows = LocalBuffer.strided(self.dtype, shape, steps)
            yield BlockCopy(rows, 0, LocalBuffer(self.dtype, shape), 0)
            return
        sizes = [run.size for run in self.runs for _ in range(run.number)]
        begins = [*accumulate(sizes, initial=0)]
        behind, numbers = 0, list(order.numbers())
        while numbers:
            first, size = numbers[0], sizes[numbers[0]]
            count = _run_length(numbers, sizes)
            step = self.rows * size if slot is None else slot
            rows = self._dims((count, size), (self.rows, self.row), (size, 1))
            packed = self._dims((count, step), (self.rows, size), (size, 1))
            yield BlockCopy(rows, begins[first], packed, behind)
            behind, numbers = behind + count * step, numbers[count:]

    def _dims(self, *dims: tuple[int, int]) -> LocalBuffer:
        """Return a buffer of dimensions, each with its stride; those of size 1 are left out."""
        kept = [dim for dim in dims if dim[0] != 1]
        return LocalBuffer.strided(self.dtype, [x for x, _ in kept], [step for _, step in kept])


def _run_length(numbers: Sequence[int], sizes: Sequence[int]) -> int:
    """Return how many of the first blocks follow each other and are equal."""
    first, count = numbers[0], 1
    while (
        count < len(numbers)
        and numbers[count] == first + count
        and sizes[numbers[count]] == sizes[first]
    ):
        count += 1
    return count


class BlockCopy(NamedTuple):
    """Blocks in rows and the same blocks one behind the other, each with its start."""

    rows: LocalBuffer
    begin: int
    packed: LocalBuffer
    start: int


@dataclass(frozen=True)
class BlockOrder:
    """The order in which blocks lie one behind the other: that of the ranks of a group.

    Attributes:
        digits: for each sub-axis of the group, most significant first, the number of coordinates
            and the number of blocks from one coordinate to the next.
    """

    digits: tuple[tuple[int, int], ...]

    @staticmethod
    def of(mesh: Mesh, over: Sequence[str], ranks: Sequence[str]) -> "BlockOrder":
        """Return the order of blocks over sub-axes for a group in which others count ranks."""
        if tuple(over) == tuple(ranks):
            return BlockOrder(((mesh.group_size(over), 1),))
        step = {axis: mesh.group_size(over[place + 1 :]) for place, axis in enumerate(over)}
        return BlockOrder(tuple((mesh.by_name[axis].size, step[axis]) for axis in ranks))

    @property
    def is_natural(self) -> bool:
        """True if blocks keep their order."""
        return len(self.digits) == 1

    def numbers(self) -> Iterator[int]:
        """Yield the blocks in their order."""
        for digits in product(*(range(0, count * step, step) for count, step in self.digits)):
            yield sum(digits)


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
