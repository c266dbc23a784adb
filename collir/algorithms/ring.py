"""Rings: every rank passes a block on to the next one, n - 1 times.

Where the children of a level have links of their own, half of each block goes round in either
direction, as links are full duplex.

Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
"""

from collections.abc import Iterator

from collir.algorithms.moves import Algorithm, Round, Waits
from collir.algorithms.patterns import BothWays, GroupShape, Shift


def _around(shape: GroupShape, first: int, reduces: bool) -> Iterator[Round]:
    """Yield the rounds in which rank r sends block r + first, then the one before it, and so on."""
    ranks = shape.ranks

    def block(turn: int, rank: int, _: int) -> list[int]:
        return [(rank + first - turn) % ranks]

    def half(turn: int, rank: int, _: int) -> list[int]:
        back, way = divmod(turn, 2)
        return [2 * ((rank - first + back if way else rank + first - back) % ranks) + way]

    if shape.wired:
        yield Round(BothWays(), half, reduces=reduces, times=ranks - 1, waits=Waits.DATA)
    else:
        yield Round(Shift(1), block, reduces=reduces, times=ranks - 1, waits=Waits.DATA)


def reduce_scatter(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds after which rank r has block r of all ranks."""
    return _around(shape, -1, True)


def all_gather(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds after which all ranks have all blocks; rank r begins with block r."""
    return _around(shape, 0, False)


def all_reduce(shape: GroupShape) -> Iterator[Round]:
    """Yield a reduce_scatter and an all_gather."""
    yield from reduce_scatter(shape)
    yield from all_gather(shape)


def blocks(shape: GroupShape) -> int:
    """Return the blocks of the full buffer: two for each rank if it is cut in halves."""
    return shape.ranks * (2 if shape.wired else 1)


ALGORITHMS = [
    Algorithm("ring", "all_reduce", all_reduce, blocks=blocks),
    Algorithm("ring", "reduce_scatter", reduce_scatter, blocks=blocks),
    Algorithm("ring", "all_gather", all_gather, blocks=blocks),
]
