"""Parallel aggregated trees (PAT): every block has a binomial tree, and messages hold several.

Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale, 2025 (arXiv
2506.20252).
"""

from collections.abc import Iterator
from functools import partial

from collir.algorithms.bruck import powers
from collir.algorithms.moves import Algorithm, Cyclic, Round
from collir.algorithms.patterns import GroupShape, Shift


def _count(ranks: int, distance: int) -> int:
    """Return how many ranks of a tree send in a round."""
    return -(-(ranks - distance) // (2 * distance))


def all_gather(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds of all trees, to far ranks first: block b has reached b, b + 2 d, ..."""
    ranks = shape.ranks

    def passed(distance: int, turn: int, rank: int, peer: int) -> Cyclic:
        return Cyclic(rank, _count(ranks, distance), ranks, -2 * distance)

    for distance in reversed(powers(ranks)):
        yield Round(Shift(distance), partial(passed, distance))


def reduce_scatter(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds of all trees in reverse: near ranks first, towards rank b for block b."""
    ranks = shape.ranks

    def passed(distance: int, turn: int, rank: int, peer: int) -> Cyclic:
        return Cyclic(peer, _count(ranks, distance), ranks, 2 * distance)

    for distance in powers(ranks):
        yield Round(Shift(distance), partial(passed, distance), reduces=True)


ALGORITHMS = [
    Algorithm("pat", "reduce_scatter", reduce_scatter),
    Algorithm("pat", "all_gather", all_gather),
]
