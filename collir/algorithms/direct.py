"""Direct exchanges: every rank sends to every other one by itself, to one after the other."""

from collections.abc import Iterator
from functools import partial

from collir.algorithms.moves import Algorithm, Round


def reduce_scatter(ranks: int) -> Iterator[Round]:
    """Yield the rounds in which each rank sends another one its block."""

    def after(distance: int, rank: int) -> int:
        return (rank + distance) % ranks

    def owned(distance: int, rank: int) -> list[int]:
        return [after(distance, rank)]

    for distance in range(1, ranks):
        yield Round(partial(after, distance), partial(owned, distance), True)


def all_gather(ranks: int) -> Iterator[Round]:
    """Yield the rounds in which each rank sends another one the block that it has."""

    def after(distance: int, rank: int) -> int:
        return (rank + distance) % ranks

    for distance in range(1, ranks):
        yield Round(partial(after, distance), lambda rank: [rank])


def all_reduce(ranks: int) -> Iterator[Round]:
    """Yield a reduce_scatter and an all_gather."""
    yield from reduce_scatter(ranks)
    yield from all_gather(ranks)


ALGORITHMS = [
    Algorithm("direct", "reduce_scatter", reduce_scatter),
    Algorithm("direct", "all_gather", all_gather),
    Algorithm("direct", "all_reduce", all_reduce),
]
