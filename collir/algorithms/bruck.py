"""Bruck's all_gather: any number of ranks, in as many rounds as its binary digits.

Bruck et al., Efficient algorithms for all-to-all communications in multiport systems, 1997.
"""

from collections.abc import Iterator
from functools import partial

from collir.algorithms.moves import Algorithm, Round


def all_gather(ranks: int) -> Iterator[Round]:
    """Yield the rounds in which a rank sends all that it has to one that is 1, 2, 4... before."""

    def before(distance: int, rank: int) -> int:
        return (rank - distance) % ranks

    def known(distance: int, rank: int) -> list[int]:
        count = min(distance, ranks - distance)
        return [(rank + n) % ranks for n in range(count)]

    distance = 1
    while distance < ranks:
        yield Round(partial(before, distance), partial(known, distance))
        distance *= 2


ALGORITHMS = [Algorithm("bruck", "all_gather", all_gather)]
