"""The contributions to each chunk of an output that each collective makes."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from collir.algorithms.program import ChunkBuffer, ChunkProgram


class Contributions(NamedTuple):
    """The same chunk of the inputs of some ranks, reduced: what a chunk of a buffer holds.

    Attributes:
        chunk: its number in these inputs.
        ranks: a bit for each rank.
    """

    chunk: int
    ranks: int


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
               "gather", "scatter")  # fmt: skip
"""The collectives that a program can be checked against."""

TWO_BUFFERS = ("all_to_all",)
"""The collectives whose blocks lie in two buffers, as one row of blocks is not enough."""


def sizes_of(collective: str, ranks: int, chunks: int) -> tuple[int, int]:
    """Return the chunks of the input and of the output of a rank."""
    every = ranks * chunks
    match collective:
        case "all_gather":
            return chunks, every
        case "reduce_scatter":
            return every, chunks
        case "all_to_all":
            return every, every
        case "gather":
            return chunks, every
        case "scatter":
            return every, chunks
        case _:
            return chunks, chunks


def divisions(collective: str, ranks: int) -> int:
    """Return into how many parts of as many chunks the full buffer is divided: as many as ranks, or
    one where the full buffer is that of a rank."""
    return 1 if collective in ("all_reduce", "reduce", "broadcast") else ranks


def has_one_input(collective: str) -> bool:
    """Return whether only the root has an input."""
    return collective in ("broadcast", "scatter")


def expected_outputs(
    collective: str, ranks: int, chunks: int, root: int
) -> Iterator[tuple[int, int, Contributions]]:
    """Yield each chunk of an output that a collective makes: rank, number, and its value.

    Raises:
        KeyError: there is no such collective.
    """
    all_ranks = (1 << ranks) - 1
    if collective not in COLLECTIVES:
        raise KeyError(collective)
    for rank in range(ranks):
        match collective:
            case "all_reduce":
                made = ((n, Contributions(n, all_ranks)) for n in range(chunks))
            case "reduce":
                made = (
                    (n, Contributions(n, all_ranks)) for n in range(chunks if rank == root else 0)
                )
            case "broadcast":
                made = ((n, Contributions(n, 1 << root)) for n in range(chunks))
            case "reduce_scatter":
                made = ((n, Contributions(rank * chunks + n, all_ranks)) for n in range(chunks))
            case "all_gather" | "gather":
                takes = ranks if collective == "all_gather" or rank == root else 0
                made = (
                    (source * chunks + n, Contributions(n, 1 << source))
                    for source in range(takes) for n in range(chunks)
                )  # fmt: skip
            case "scatter":
                made = ((n, Contributions(rank * chunks + n, 1 << root)) for n in range(chunks))
            case _:
                made = (
                    (source * chunks + n, Contributions(rank * chunks + n, 1 << source))
                    for source in range(ranks) for n in range(chunks)
                )  # fmt: skip
        for number, value in made:
            yield rank, number, value


def aliases(program: ChunkProgram) -> Mapping[int, tuple[ChunkBuffer, int]]:
    """Return of each rank which buffer lies in which, from where on: the inner one begins at an
    offset of the other, where a program is in place.

    The input lies in the output of an all_gather or gather; else the output lies in the input.
    """
    if not program.in_place:
        return {}
    chunks = program.chunks
    match program.collective:
        case "all_gather" | "gather":
            return {rank: (ChunkBuffer.INPUT, rank * chunks) for rank in range(len(program.ranks))}
        case "reduce_scatter" | "scatter":
            return {rank: (ChunkBuffer.OUTPUT, rank * chunks) for rank in range(len(program.ranks))}
        case _:
            return dict.fromkeys(range(len(program.ranks)), (ChunkBuffer.INPUT, 0))
