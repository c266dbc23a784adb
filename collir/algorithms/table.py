"""The algorithms that are written as rounds of moves, by collective and name."""

from collir.algorithms import binomial, bruck, direct, halving_doubling, ring
from collir.algorithms.moves import Algorithm

ALGORITHMS: dict[tuple[str, str], Algorithm] = {
    (each.collective, each.name): each
    for file in (ring, halving_doubling, bruck, binomial, direct)
    for each in file.ALGORITHMS
}
