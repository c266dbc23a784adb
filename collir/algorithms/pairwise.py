"""Pairwise exchanges: in each round, every rank exchanges with the one at the same offset.

An offset is one of all digits of a rank, so that a round loads every level of a machine alike
(alltoall_intra_pairwise.c and reduce_scatter_block_intra_pairwise.c of MPICH, digit by digit).
"""

from collections.abc import Iterator

from collir.algorithms.moves import Algorithm, LocalCopy, Round
from collir.algorithms.patterns import GroupShape, Offset
from collir.algorithms.program import ChunkBuffer

INPUT, OUTPUT = ChunkBuffer.INPUT, ChunkBuffer.OUTPUT


def offsets(shape: GroupShape) -> Iterator[tuple[Offset, int]]:
    """Yield the patterns of all offsets, each with its number of rounds."""
    for level in shape.levels:
        rounds = shape.below(level)
        if level in shape.wired:  # each of them loads other links
            yield from ((Offset(level, offset), rounds) for offset in range(1, shape.across(level)))
        else:
            yield Offset(level, 1), rounds * (shape.across(level) - 1)


def of_peer(turn: int, rank: int, peer: int) -> list[int]:
    """Return the block of the rank that it goes to."""
    return [peer]


def of_rank(turn: int, rank: int, peer: int) -> list[int]:
    """Return the block of the rank that it comes from."""
    return [rank]


def reduce_scatter(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which each rank sends another one its block."""
    for offset, times in offsets(shape):
        yield Round(offset, of_peer, reduces=True, times=times)


def all_to_all(shape: GroupShape) -> Iterator[Round | LocalCopy]:
    """Yield the rounds in which each rank sends another one the block for it."""
    yield own_block()
    for offset, times in offsets(shape):
        yield Round(offset, of_peer, of_rank, times=times, source=INPUT, target=OUTPUT)


def own_block() -> LocalCopy:
    """Return the copy of what a rank of an all_to_all has for itself."""
    return LocalCopy(lambda rank: [(rank, rank)], INPUT, OUTPUT)


ALGORITHMS = [
    Algorithm("pairwise", "reduce_scatter", reduce_scatter),
    Algorithm("pairwise", "all_to_all", all_to_all),
]
