"""Bruck's algorithms: any number of ranks, in as many rounds as its binary digits.

Bruck et al., Efficient algorithms for all-to-all communications in multiport systems, 1997.
"""

from collections.abc import Iterator
from functools import partial

from collir.algorithms.moves import Algorithm, Cyclic, LocalCopy, Round
from collir.algorithms.patterns import GroupShape, Shift
from collir.algorithms.program import ChunkBuffer

INPUT, OUTPUT, SCRATCH = ChunkBuffer


def powers(ranks: int) -> list[int]:
    """Return the powers of two below a number: 1, 2, 4, ..."""
    return [1 << bit for bit in range((ranks - 1).bit_length())]


def all_gather(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which a rank sends all its blocks to the rank 1, 2, 4... before it."""
    ranks = shape.ranks

    def known(distance: int, turn: int, rank: int, peer: int) -> Cyclic:
        return Cyclic(rank, min(distance, ranks - distance), ranks)

    for distance in powers(ranks):
        yield Round(Shift(ranks - distance), partial(known, distance))


def all_to_all(shape: GroupShape) -> Iterator[Round | LocalCopy]:
    """Yield the rounds in which a block for the n-th rank behind goes 1, 2, 4... ranks on, for each
    digit of n that is 1.

    Blocks lie in the order of how far they have to go, so they are sorted before and behind.
    """
    ranks = shape.ranks

    def moving(distance: int, turn: int, rank: int, peer: int) -> list[int]:
        return [block for block in range(distance, ranks) if block & distance]

    yield LocalCopy(lambda rank: ((_at(rank + n, ranks), n) for n in range(ranks)), INPUT, SCRATCH)
    for distance in powers(ranks):
        blocks = partial(moving, distance)
        yield Round(Shift(distance), blocks, source=SCRATCH, target=SCRATCH)
    yield LocalCopy(lambda rank: ((n, _at(rank - n, ranks)) for n in range(ranks)), SCRATCH, OUTPUT)


def _at(number: int, ranks: int) -> int:
    return number % ranks


ALGORITHMS = [
    Algorithm("bruck", "all_gather", all_gather),
    Algorithm("bruck", "all_to_all", all_to_all, scratch=lambda shape: shape.ranks),
]
