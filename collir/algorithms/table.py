"""The algorithms that are written as rounds of moves, by collective and name."""

from collir.algorithms import binomial, bruck, direct, halving_doubling, pairwise, pat, ring
from collir.algorithms.moves import Algorithm

ALGORITHMS: dict[tuple[str, str], Algorithm] = {
    (each.collective, each.name): each
    for file in (ring, halving_doubling, bruck, pat, pairwise, direct, binomial)
    for each in file.ALGORITHMS
}
