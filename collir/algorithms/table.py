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

MOST_RANKS = 64
"""The largest group for which the rounds of an algorithm are written out."""


def reason_for_library(ranks: int, *, is_async: bool, is_uneven: bool, joins_booleans: bool) -> str:
    """Return why a collective with an algorithm is left to a library, and not written as rounds.

    Args:
        ranks: the number of ranks of a group.
        is_uneven: whether its buffers or blocks differ in size between ranks.
        joins_booleans: whether it reduces truth values.

    Returns:
        The reason; empty if it is written as rounds.
    """
    if ranks > MOST_RANKS:
        return f"rounds are written out for {MOST_RANKS} ranks at most, and this group has {ranks}"
    if is_uneven:
        return "sizes differ between ranks, or are open"
    if is_async:
        return "it is async"
    if joins_booleans:
        return "there is no step that joins two blocks of truth values"
    return ""


def names_of(collective: str) -> tuple[str, ...]:
    """Return the names of the algorithms of a collective, which may stand behind ``using``."""
    return tuple(name for of, name in (*ALGORITHMS, *PIPELINES) if of == collective)
