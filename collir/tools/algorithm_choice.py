"""The algorithm that options name, as a chunk program."""

from collir.algorithms.chunks import program_of
from collir.algorithms.program import ChunkProgram
from collir.algorithms.table import ALGORITHMS
from collir.tools.shell import UsageError

MOST_RANKS = 1024
"""The most ranks of a file: each of them is written out."""


def chosen_program(collective: str, algorithm: str, ranks: int) -> ChunkProgram:
    """Return the program of an algorithm.

    Raises:
        UsageError: there is no such algorithm of the collective, or not for as many ranks.
    """
    known = ALGORITHMS.get((collective, algorithm))
    if known is None:
        names = ", ".join(a for c, a in ALGORITHMS if c == collective)
        raise UsageError(f"{collective} has no algorithm '{algorithm}' here, but {names}")
    if not 2 <= ranks <= MOST_RANKS:
        raise UsageError(f"--ranks is from 2 to {MOST_RANKS}")
    if not known.fits(ranks):
        fitting = [n for n in range(2, MOST_RANKS + 1) if known.fits(n)]
        below = [n for n in fitting if n < ranks][-1:]
        above = [n for n in fitting if n > ranks][:1]
        near = " or ".join(map(str, below + above))
        raise UsageError(f"{algorithm} is no {collective} of {ranks} ranks: try {near}")
    return program_of(known, ranks)
