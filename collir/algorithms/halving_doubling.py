"""Recursive halving and doubling: exchanges with the rank that differs in one bit.

Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.
"""

from collections.abc import Iterator
from functools import partial

from collir.algorithms.moves import Algorithm, Round


def _is_power(ranks: int) -> bool:
    return ranks > 1 and ranks & (ranks - 1) == 0


def reduce_scatter(ranks: int) -> Iterator[Round]:
    """Yield the rounds in which each rank gives away half of the blocks that it still has."""

    def given(bit: int, rank: int) -> list[int]:
        """Return the blocks that are the rank's in all higher bits and the peer's in this one."""
        peer = rank ^ bit
        return [block for block in range(ranks) if (block ^ peer) // bit == 0]

    bit = ranks // 2
    while bit:
        yield Round(partial(_other, bit), partial(given, bit), True)
        bit //= 2


def all_gather(ranks: int) -> Iterator[Round]:
    """Yield the rounds in which each rank doubles the blocks that it has."""

    def known(bit: int, rank: int) -> list[int]:
        return [block for block in range(ranks) if (block ^ rank) < bit]

    bit = 1
    while bit < ranks:
        yield Round(partial(_other, bit), partial(known, bit))
        bit *= 2


def all_reduce(ranks: int) -> Iterator[Round]:
    """Yield a reduce_scatter and an all_gather."""
    yield from reduce_scatter(ranks)
    yield from all_gather(ranks)


def whole(ranks: int) -> Iterator[Round]:
    """Yield the rounds in which ranks exchange whole buffers: fewer, with more bytes."""
    bit = 1
    while bit < ranks:
        yield Round(partial(_other, bit), lambda _: [0], True)
        bit *= 2


def _other(bit: int, rank: int) -> int:
    return rank ^ bit


ALGORITHMS = [
    Algorithm("recursive_halving", "reduce_scatter", reduce_scatter, _is_power),
    Algorithm("recursive_doubling", "all_gather", all_gather, _is_power),
    Algorithm("halving_doubling", "all_reduce", all_reduce, _is_power),
    Algorithm("recursive_doubling", "all_reduce", whole, _is_power, lambda _: 1),
]
