"""The algorithms of all collectives, by collective and name."""

from collir.algorithms import (
    binomial,
    bruck,
    direct,
    halving_doubling,
    hierarchical,
    pairwise,
    pat,
    pipelines,
    ring,
)
from collir.algorithms.moves import Algorithm

ALGORITHMS: dict[tuple[str, str], Algorithm] = {
    (each.collective, each.name): each
    for file in (ring, hierarchical, binomial, halving_doubling, pat, pairwise, bruck, direct)
    for each in file.ALGORITHMS
}
"""The algorithms with the price of their rounds."""

PIPELINES: dict[tuple[str, str], Algorithm] = {
    (each.collective, each.name): each for each in pipelines.ALGORITHMS
}
"""The algorithms that cut a buffer into pieces: code has their rounds, prices a closed form."""


def names_of(collective: str) -> tuple[str, ...]:
    """Return the names of the algorithms of a collective, which may stand behind ``using``."""
    return tuple(name for of, name in (*ALGORITHMS, *PIPELINES) if of == collective)
