"""Binomial trees from and to rank 0: in each round twice as many ranks have data, or half as many.

bcast_intra_binomial.c, reduce_intra_binomial.c, gather_intra_binomial.c, scatter_intra_binomial.c
and bcast_intra_scatter_ring_allgather.c of MPICH.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from collir.algorithms import ring
from collir.algorithms.bruck import powers
from collir.algorithms.moves import Algorithm, Round
from collir.algorithms.patterns import Binomial, GroupShape, Ranks


def _whole(turn: int, rank: int, peer: int) -> range:
    return range(1)


def broadcast(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds that bring the blocks of rank 0 to all ranks, far ranks first."""
    for distance in reversed(powers(shape.ranks)):
        yield Round(Binomial(distance), _whole)


def reduce(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds after which rank 0 has the sum of all, from near ranks first."""
    for distance in powers(shape.ranks):
        yield Round(Binomial(distance, to_root=True), _whole, reduces=True)


def gather(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which a rank passes on the blocks of its subtree."""

    def own(distance: int, turn: int, rank: int, peer: int) -> range:
        return _subtree(rank, distance, shape.ranks)

    for distance in powers(shape.ranks):
        counts = partial(_counts, distance, shape.ranks, 0)
        yield Round(Binomial(distance, to_root=True), partial(own, distance), counts=counts)


def scatter(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which a rank sends the blocks of a subtree to its first rank."""

    def theirs(distance: int, turn: int, rank: int, peer: int) -> range:
        return _subtree(peer, distance, shape.ranks)

    for distance in reversed(powers(shape.ranks)):
        counts = partial(_counts, distance, shape.ranks, distance)
        yield Round(Binomial(distance), partial(theirs, distance), counts=counts)


def scatter_all_gather(shape: GroupShape) -> Iterator[Round]:
    """Yield a scatter and a ring all_gather, which are a broadcast."""
    halves = ring.blocks(shape) // shape.ranks
    for each in scatter(shape):
        yield each if halves == 1 else _in_halves(each)
    yield from ring.all_gather(shape)


def _in_halves(each: Round) -> Round:
    """Return a round of blocks that are cut in two."""

    def blocks(turn: int, rank: int, peer: int) -> range:
        whole = each.blocks(turn, rank, peer)
        return range(2 * whole[0], 2 * whole[0] + 2 * len(whole))

    counts = each.counts
    return Round(each.pattern, blocks, counts=counts and (lambda ranks: 2 * counts(ranks)))


def _subtree(rank: int, distance: int, ranks: int) -> range:
    return range(rank, min(rank + distance, ranks))


def _counts(distance: int, ranks: int, ahead: int, senders: Ranks) -> Ranks:
    """Return the sizes of the subtrees of ranks that are so far ahead of senders."""
    return np.minimum(distance, ranks - senders - ahead)


ALGORITHMS = [
    Algorithm("binomial", "broadcast", broadcast, blocks=lambda _: 1),
    Algorithm("scatter_all_gather", "broadcast", scatter_all_gather, blocks=ring.blocks),
    Algorithm("binomial", "reduce", reduce, blocks=lambda _: 1),
    Algorithm("binomial", "gather", gather),
    Algorithm("binomial", "scatter", scatter),
]
