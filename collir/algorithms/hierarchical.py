"""Hierarchical algorithms: a ring on every level of a machine, over what the levels inside left.

A reduce_scatter begins on the innermost level, whose ranks are near and have the most to send; on
each level further out a rank has only its part. An all_gather goes the other way.

Cho et al., BlueConnect: decomposing all-reduce for deep learning on heterogeneous network
hierarchy, MLSys 2019.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import product

from collir.algorithms.moves import Algorithm, Round, Waits
from collir.algorithms.patterns import AroundLevel, GroupShape


def _blocks(
    shape: GroupShape, done: frozenset[int], level: int, back: int, turn: int, rank: int, _: int
) -> Sequence[int]:
    """Return the blocks of a part that goes round on a level.

    They are the rank's own blocks on the levels that are done, the part's blocks on this level, and
    all blocks of the other levels.

    Args:
        back: how far behind the rank its first part is.
    """
    own = places_of(shape, rank)
    own[level] = (own[level] - back - turn) % shape.across(level)
    return _blocks_at(shape, tuple((n, own[n]) for n in shape.levels if n in done or n == level))


@lru_cache(maxsize=4096)
def _blocks_at(shape: GroupShape, fixed: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Return the blocks that have given numbers on some levels, in order."""
    known = dict(fixed)
    free = [n for n in shape.levels if n not in known]
    places = product(*(range(shape.across(n)) for n in free))
    return tuple(sorted(rank_at(shape, known | dict(zip(free, at, strict=True))) for at in places))


def _length(shape: GroupShape, fixed: frozenset[int]) -> int:
    """Return how many blocks there are of which the numbers on some levels are known."""
    return math.prod(shape.across(n) for n in shape.levels if n not in fixed)


def places_of(shape: GroupShape, rank: int) -> dict[int, int]:
    """Return the number of a rank on each level, its digits there together."""
    places = dict.fromkeys(shape.levels, 0)
    weights = dict.fromkeys(shape.levels, 1)
    for digit in reversed(shape.digits):
        rank, value = divmod(rank, digit.size)
        if digit.level in places:
            places[digit.level] += value * weights[digit.level]
            weights[digit.level] *= digit.size
    return places


def rank_at(shape: GroupShape, places: dict[int, int]) -> int:
    """Return the rank with a number on each level."""
    rest, rank, weight = dict(places), 0, 1
    for digit in reversed(shape.digits):
        if digit.level in rest:
            rest[digit.level], value = divmod(rest[digit.level], digit.size)
            rank += value * weight
        weight *= digit.size
    return rank


def reduce_scatter(shape: GroupShape) -> Iterator[Round]:
    """Yield rings on all levels, the innermost first, after which rank r has block r of all."""
    done = frozenset[int]()
    for level in reversed(shape.levels):
        blocks = partial(_blocks, shape, done, level, 1)
        times = shape.across(level) - 1
        done |= {level}
        yield Round(
            AroundLevel(level), blocks, reduces=True, times=times, waits=Waits.DATA,
            length=_length(shape, done),
        )  # fmt: skip


def all_gather(shape: GroupShape) -> Iterator[Round]:
    """Yield rings on all levels, the outermost first, after which all ranks have all blocks."""
    done = frozenset(shape.levels)
    for level in shape.levels:
        done -= {level}
        blocks = partial(_blocks, shape, done, level, 0)
        yield Round(
            AroundLevel(level), blocks, times=shape.across(level) - 1, waits=Waits.DATA,
            length=_length(shape, done | {level}),
        )  # fmt: skip


def all_reduce(shape: GroupShape) -> Iterator[Round]:
    """Yield a reduce_scatter and an all_gather."""
    yield from reduce_scatter(shape)
    yield from all_gather(shape)


ALGORITHMS = [
    Algorithm("hierarchical", "all_reduce", all_reduce, composed=True),
    Algorithm("hierarchical", "reduce_scatter", reduce_scatter, composed=True),
    Algorithm("hierarchical", "all_gather", all_gather, composed=True),
]
