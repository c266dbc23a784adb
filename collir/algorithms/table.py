"""The algorithms of all collectives, by collective and name."""

from collir.algorithms import (
    binomial,
    bruck,
    direct,
    halving_doubling,
    hierarchical,
    pairwise,
    pat,
    ring,
)
from collir.algorithms.moves import Algorithm

ALGORITHMS: dict[tuple[str, str], Algorithm] = {
    (each.collective, each.name): each
    for file in (ring, hierarchical, binomial, halving_doubling, pat, pairwise, bruck, direct)
    for each in file.ALGORITHMS
}
"""Those that are written as rounds of moves."""

_TREES = ("binary_tree", "double_binary_tree")

SEGMENTED: dict[str, tuple[str, ...]] = {
    "all_reduce": _TREES,
    "broadcast": ("chain", *_TREES),
    "reduce": ("chain", *_TREES),
}
"""The names of those that are priced alone: pipelines of segments, whose number is chosen."""


def names_of(collective: str) -> tuple[str, ...]:
    """Return the names of the algorithms of a collective, which may stand behind ``using``."""
    rounds = (name for of, name in ALGORITHMS if of == collective)
    return (*rounds, *SEGMENTED.get(collective, ()))
