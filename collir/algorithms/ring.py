"""Rings: every rank passes a block on to the next one, n - 1 times.

Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
"""

from collections.abc import Iterator
from functools import partial

from collir.algorithms.moves import Algorithm, Round


def _around(ranks: int, first: int, reduces: bool) -> Iterator[Round]:
    """Yield the rounds in which rank r sends block r + first, then the one before it, and so on."""

    def block(back: int, rank: int) -> list[int]:
        return [(rank + first - back) % ranks]

    for back in range(ranks - 1):
        yield Round(lambda rank: (rank + 1) % ranks, partial(block, back), reduces)


def reduce_scatter(ranks: int) -> Iterator[Round]:
    """Yield the rounds after which rank r has block r of all ranks."""
    return _around(ranks, -1, True)


def all_gather(ranks: int) -> Iterator[Round]:
    """Yield the rounds after which all ranks have all blocks, of which rank r has block r."""
    return _around(ranks, 0, False)


def all_reduce(ranks: int) -> Iterator[Round]:
    """Yield a reduce_scatter and an all_gather."""
    yield from reduce_scatter(ranks)
    yield from all_gather(ranks)


ALGORITHMS = [
    Algorithm("ring", "reduce_scatter", reduce_scatter),
    Algorithm("ring", "all_gather", all_gather),
    Algorithm("ring", "all_reduce", all_reduce),
]
