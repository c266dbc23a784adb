"""Binomial trees: in each round twice as many ranks have the buffer, or half as many."""

from collections.abc import Iterator
from functools import partial

from collir.algorithms.moves import Algorithm, Round


def _distances(ranks: int) -> list[int]:
    return [1 << bit for bit in range((ranks - 1).bit_length())]


def broadcast(ranks: int) -> Iterator[Round]:
    """Yield the rounds after which all ranks have what rank 0 has."""

    def below(distance: int, rank: int) -> int:
        sends = rank % (2 * distance) == 0 and rank + distance < ranks
        return rank + distance if sends else rank

    for distance in reversed(_distances(ranks)):
        yield Round(partial(below, distance), lambda _: [0])


def reduce(ranks: int) -> Iterator[Round]:
    """Yield the rounds after which rank 0 has the sum of all."""

    def above(distance: int, rank: int) -> int:
        return rank - distance if rank % (2 * distance) == distance else rank

    for distance in _distances(ranks):
        yield Round(partial(above, distance), lambda _: [0], True)


def all_reduce(ranks: int) -> Iterator[Round]:
    """Yield a reduce and a broadcast."""
    yield from reduce(ranks)
    yield from broadcast(ranks)


ALGORITHMS = [
    Algorithm("binomial_tree", "broadcast", broadcast, blocks=lambda _: 1),
    Algorithm("binomial_tree", "reduce", reduce, blocks=lambda _: 1),
    Algorithm("binomial_tree", "all_reduce", all_reduce, blocks=lambda _: 1),
]
