"""Recursive halving and doubling: exchanges with the rank that differs in one bit.

An all_reduce of any number of ranks first folds those beyond 2^k into others (allreduce_intra_
recursive_doubling.c and allreduce_intra_reduce_scatter_allgather.c of MPICH).

Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.
"""

from collections.abc import Callable, Iterator
from functools import partial

from collir.algorithms.moves import Algorithm, Round
from collir.algorithms.patterns import (
    Binomial,
    Exchange,
    FoldedExchange,
    FoldPairs,
    GroupShape,
    folded,
)


def reduce_scatter(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which each rank gives away half of the blocks that it still has.

    The first one gives away the most, to the farthest rank.
    """

    def given(bit: int, turn: int, rank: int, peer: int) -> range:
        """Return the blocks whose numbers are the peer's in this bit and those above."""
        first = peer >> bit << bit
        return range(first, first + (1 << bit))

    for bit in reversed(range(_bits(shape))):
        yield Round(Exchange(bit), partial(given, bit), reduces=True)


def all_gather(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which each rank doubles the blocks that it has."""

    def known(bit: int, turn: int, rank: int, peer: int) -> range:
        first = rank >> bit << bit
        return range(first, first + (1 << bit))

    for bit in range(_bits(shape)):
        yield Round(Exchange(bit), partial(known, bit))


def all_reduce(shape: GroupShape) -> Iterator[Round]:
    """Yield Rabenseifner's rounds: halving, nearest rank first, and the same exchanges back."""
    bits = _bits(shape)

    def given(bit: int, turn: int, rank: int, peer: int) -> range:
        return _half(_number(shape, peer), bit, bits)

    def known(bit: int, turn: int, rank: int, peer: int) -> range:
        return _half(_number(shape, rank), bit, bits)

    yield from _fold(shape, 1 << bits)
    for bit in range(bits):
        yield Round(_exchange(shape, bit), partial(given, bit), reduces=True)
    for bit in reversed(range(bits)):
        yield Round(_exchange(shape, bit), partial(known, bit))
    yield from _fold(shape, 1 << bits, back=True)


def reduce(shape: GroupShape) -> Iterator[Round]:
    """Yield halving, nearest rank first, and a gather of the parts to rank 0."""
    bits = _bits(shape)

    def given(bit: int, turn: int, rank: int, peer: int) -> range:
        return _half(peer, bit, bits)

    def known(bit: int, turn: int, rank: int, peer: int) -> range:
        return _half(rank, bit, bits)

    for bit in range(bits):
        yield Round(Exchange(bit), partial(given, bit), reduces=True)
    for bit in reversed(range(bits)):
        yield Round(Binomial(1 << bit, to_root=True, leading=True), partial(known, bit))


def whole(shape: GroupShape) -> Iterator[Round]:
    """Yield the rounds in which ranks exchange whole buffers: fewer, with more bytes."""
    yield from _fold(shape, 1)
    for bit in range(_bits(shape)):
        yield Round(_exchange(shape, bit), _all(1), reduces=True)
    yield from _fold(shape, 1, back=True)


def _bits(shape: GroupShape) -> int:
    """Return k for the largest 2^k ranks of a group."""
    return shape.ranks.bit_length() - 1


def _half(number: int, bit: int, bits: int) -> range:
    """Return the half that a rank keeps of its blocks in the exchange of a bit.

    Its bits say, from the lowest on, whether it is the first or the second half.
    """
    first = sum((number >> b & 1) << bits - 1 - b for b in range(bit + 1))
    return range(first, first + (1 << bits - 1 - bit))


def _number(shape: GroupShape, rank: int) -> int:
    """Return the number of a rank among those left after folding."""
    extra = folded(shape)
    return rank // 2 if rank < 2 * extra else rank - extra


def _exchange(shape: GroupShape, bit: int) -> Exchange | FoldedExchange:
    return FoldedExchange(bit) if folded(shape) else Exchange(bit)


def _fold(shape: GroupShape, count: int, back: bool = False) -> Iterator[Round]:
    if folded(shape):
        yield Round(FoldPairs(back), _all(count), reduces=not back)


def _all(count: int) -> Callable[[int, int, int], range]:
    return lambda turn, rank, peer: range(count)


def _core(shape: GroupShape) -> int:
    """Return the blocks of an all_reduce: as many as ranks that are left by folding."""
    return 1 << _bits(shape)


ALGORITHMS = [
    Algorithm("recursive_doubling", "all_reduce", whole, blocks=lambda _: 1),
    Algorithm("halving_doubling", "all_reduce", all_reduce, blocks=_core),
    Algorithm("recursive_halving", "reduce_scatter", reduce_scatter, True, "pairwise, pat or ring"),
    Algorithm("recursive_doubling", "all_gather", all_gather, True, "bruck or ring"),
    Algorithm("halving_doubling", "reduce", reduce, True, "binomial or chain"),
]
