"""The time of a product of matrices on a device that computes it in tiles.

The result is cut into tiles, and the sum of each may be cut into parts. The processors of the
device take tiles in waves; the last wave and the tiles at the edges may be partly empty. A tile
that is too small for the full rate uses each element of its operands less often, so reading them
limits it. Each tile also fills and drains its pipeline, which takes as long as some steps of the
sum. The cut is the fastest one, as libraries choose it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import numpy.typing as npt

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import Mesh
from collir.layout.sizes import same_size, without_formula
from collir.layout.structure import REPEATED, Structure
from collir.machine import Efficiency

Array = npt.NDArray[np.float64]

_LEAST_SIDE = 8
"""The fewest rows or columns of a tile."""

ALIGNED = 8
"""The elements that sides of aligned products are multiples of: 16 bytes of two-byte numbers."""

_PARTS = np.array([1, 2, 4, 8, 16, 32, 64])
"""The parts that a sum is cut into."""


@dataclass(frozen=True)
class MatrixProducts:
    """Some products of matrices of equal sizes: their number, and the sizes of each."""

    count: int
    rows: int
    columns: int
    length: int

    @property
    def is_aligned(self) -> bool:
        """True if units for matrices load its operands well."""
        return not (self.rows % ALIGNED or self.columns % ALIGNED or self.length % ALIGNED)


def product_of(op: DistOp, structure: Structure, mesh: Mesh) -> MatrixProducts | None:
    """Return the products that a device computes for an operation with two operands.

    The indices of both operands and the result count products, the others of the result are rows or
    columns, and the rest is summed over. A convolution is the product of its windows and its
    kernel: positions in the result alone are rows. If the result selects positions, those of the
    first operand are rows too. Each group of a grouped product is a product of its own. The result
    is None for other operations, and for one row times one column: compilers make a map and a sum
    of these, which memory limits.
    """
    if len(structure.operands) - len(structure.grouped) != 2 or not structure.contracts:
        return None
    sizes: dict[str, int] = {}
    indices_of = (*structure.operands, structure.result)
    for indices, value in zip(indices_of, (*op.operands, op.result), strict=True):
        shape = dist_type(value).local_shape(mesh)
        sizes |= {index: without_formula(size) for index, size in zip(indices, shape, strict=True)}
    points = set(sizes) - {REPEATED} - structure.selected
    left, right, kept = (points.intersection(indices_of[n]) for n in (0, 1, -1))
    count, columns = left & right & kept, (right - left) & kept
    rows = kept - count - columns
    if structure.selected.intersection(structure.result):
        rows |= left - right
    parts = (count, rows, columns, points - count - rows - columns)
    numbers = [math.prod(sizes[index] for index in part) for part in parts]
    for group in structure.grouped:  # groups cut the rows, or the sum
        cut = parts.index(points.intersection(indices_of[2]))
        chosen = math.ceil(numbers[cut] * sizes[group] / without_formula(structure.sizes[group]))
        numbers[0] = max(1, min(sizes[group], chosen))
        numbers[cut] = math.ceil(chosen / numbers[0])
    product = MatrixProducts(*numbers)
    return None if same_size((product.rows, product.columns), (1, 1)) else product


def disordered(op: DistOp, structure: Structure, mesh: Mesh) -> Iterator[int]:
    """Yield the elements of each operand or result that has to be transposed for a product. In the
    order of a product, dimensions of all three values come first; those of the rows, of the columns
    and of the sum are together; in the left operand, rows come before the sum."""
    if structure.grouped:
        return
    free = [index for index in structure.result if not all(index in x for x in structure.operands)]
    first, second = structure.operands
    if free and free[0] in second:
        first, second = second, first
    left, right = set(first), set(second)
    shared = left & right & set(structure.result)
    for indices, value in zip(
        (*structure.operands, structure.result), (*op.operands, op.result), strict=True
    ):
        shape = dist_type(value).local_shape(mesh)
        real = [index for index, size in zip(indices, shape, strict=True) if size > 1]
        groups = [
            "n"
            if index in shared
            else "a"
            if index not in right
            else "c"
            if index not in left
            else "b"
            for index in real
        ]
        order = [group for group, _ in groupby(groups)]
        turned = (
            indices == first
            and value is not op.result
            and "a" in order
            and "b" in order[: order.index("a")]
        )
        if len(order) > len(set(order)) or "n" in order[1:] or turned:
            yield without_formula(math.prod(shape))


def slowdown(product: MatrixProducts, efficiency: Efficiency) -> float:
    """Return the time of products divided by that at the full rate: 1 for aligned products on
    devices without tiles."""
    aligned = 1.0 if product.is_aligned else efficiency.unaligned
    if efficiency.tile is None:
        return 1.0 / aligned
    return _tiled(product, efficiency.tile, efficiency.units, efficiency.depth) / aligned


@lru_cache(maxsize=4096)
def _tiled(product: MatrixProducts, full: tuple[int, int], units: int, depth: int) -> float:
    sides = product.count, product.rows, product.columns, product.length
    count, rows, columns, length = (np.asarray(float(side)) for side in sides)
    return float(tiled_slowdowns(count, rows, columns, length, full, units, depth))


def tiled_slowdowns(
    count: Array,
    rows: Array,
    columns: Array,
    length: Array,
    full: tuple[int, int],
    units: int,
    depth: int,
) -> Array:
    """Return the times of products divided by those at the full rate, on a device with tiles.

    Args:
        count, rows, columns, length: arrays of one shape: the numbers of products and their sizes.
        full: the sides of the smallest tile at the full rate.
        units: the number of processors.
        depth: the steps of the sum that fill and drain the pipeline of a tile.
    """
    parts = _PARTS.reshape(-1, *[1] * np.ndim(count))
    steps = np.where(parts <= length, np.ceil(length / parts) + depth, np.inf)
    best = np.full(np.shape(count), np.inf)
    for high, wide in _tile_sides(full):
        tiles = count * np.ceil(rows / high) * np.ceil(columns / wide)
        times = np.ceil(tiles * parts / units)
        times *= steps
        np.minimum(best, times.min(axis=0) * _tile_time((high, wide), full), out=best)
    return best * (units * math.prod(full)) / (count * rows * columns * length)


def _tile_time(sides: Sequence[int], full: Sequence[int]) -> float:
    """Return the time of a tile divided by that of a tile at the full rate. Its operations limit
    it, or the elements read for each step of the sum."""
    return max(math.prod(sides) / math.prod(full), sum(sides) / sum(full))


def _tile_sides(full: tuple[int, int]) -> frozenset[tuple[int, int]]:
    """Return the sizes of tiles to try, with sides halved again and again."""
    ways = (full, full[::-1])
    return frozenset((h, w) for a, b in ways for h in _halves(a) for w in _halves(b))


def _halves(side: int) -> Iterator[int]:
    yield side
    while side % 2 == 0 and side > _LEAST_SIDE:
        side //= 2
        yield side
