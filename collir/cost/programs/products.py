"""The time of a product of matrices on a device that computes it in tiles.

The result is cut into tiles, and the sum of each may be cut into parts. The processors of the
device take tiles in waves: the last wave, and the tiles at the edges, may be filled badly. A tile
that is smaller than the smallest one at the full rate is as slow as the operands that it reads, of
which it uses each element less often. Each tile also fills and drains its pipeline, which takes as
long as some steps of the sum. Libraries choose the cut that is fastest; so does this.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import Mesh
from collir.layout.structure import REPEATED
from collir.machine import Efficiency

_LEAST_SIDE = 8
"""The fewest rows or columns of a tile."""

_MOST_PARTS = 64
"""The most parts that a sum is cut into."""


@dataclass(frozen=True)
class Product:
    """Some products of matrices of equal sizes: their number, and the sizes of each."""

    count: int
    rows: int
    columns: int
    length: int


def product_of(op: DistOp, mesh: Mesh) -> Product | None:
    """Return the products that a device computes for an operation with two operands.

    The indices of both operands and the result count products, those of only one operand and the
    result are its rows or columns, and the others are summed over. It is None for other operations.
    """
    structure = op.structure
    if structure is None or len(structure.operands) != 2 or not structure.reduced:
        return None
    sizes: dict[str, int] = {}
    for indices, operand in zip(structure.operands, op.operands, strict=True):
        shape = dist_type(operand).local_shape(mesh)
        sizes |= {index: int(size) for index, size in zip(indices, shape, strict=True)}
    left, right = (set(indices) - {REPEATED} for indices in structure.operands)
    kept = set(structure.result)

    def over(indices: set[str]) -> int:
        return math.prod(sizes[index] for index in indices)

    return Product(
        over(left & right & kept),
        over((left - right) & kept),
        over((right - left) & kept),
        over((left | right) - kept),
    )


@lru_cache(maxsize=4096)
def slowdown(product: Product, efficiency: Efficiency) -> float:
    """Return the time of products divided by that at the full rate; 1 on devices without tiles."""
    if efficiency.tile is None:
        return 1.0
    full, units, depth = efficiency.tile, efficiency.units, efficiency.depth
    best = min(
        math.ceil(_tiles(product, sides) * parts / units)
        * _tile_time(sides, full)
        * (math.ceil(product.length / parts) + depth)
        for sides in _tile_sides(full)
        for parts in _parts(product.length)
    )
    points = product.count * product.rows * product.columns * product.length
    return best * units * math.prod(full) / points


def _tiles(product: Product, sides: Sequence[int]) -> int:
    rows, columns = sides
    return product.count * math.ceil(product.rows / rows) * math.ceil(product.columns / columns)


def _tile_time(sides: Sequence[int], full: Sequence[int]) -> float:
    """Return the time of a tile divided by that of one at the full rate: by its operations, or by
    the elements that it reads for each step of the sum."""
    return max(math.prod(sides) / math.prod(full), sum(sides) / sum(full))


def _tile_sides(full: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the sizes of tiles to try: those whose sides are halves, quarters and so on."""
    for rows, columns in {full, full[::-1]}:
        for high in _halves(rows):
            for wide in _halves(columns):
                yield high, wide


def _halves(side: int) -> Iterator[int]:
    yield side
    while side % 2 == 0 and side > _LEAST_SIDE:
        side //= 2
        yield side


def _parts(length: int) -> Iterator[int]:
    parts = 1
    while parts <= min(length, _MOST_PARTS):
        yield parts
        parts *= 2
