"""Parallelism matrices: all placements of axes on a hierarchy (P², Xie et al., MLSys 2022).

A matrix has a row per axis and a column per level; column j multiplies to the size of level j, row
i to the size of axis i. Primes do not meet: for each of them the exponents form a table of natural
numbers with given row and column sums. Such a table exists whenever the sums agree in total, so
axes fit exactly if they multiply to the number of devices, and filling a matrix entry by entry
never runs into a dead end.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import gcd, prod

from collir.layout.numbers import divisors, factorised

Matrix = tuple[tuple[int, ...], ...]
"""Rows: axes as declared; columns: levels, outermost first."""


class MatrixError(ValueError):
    """Sizes of levels or axes that have no parallelism matrix."""


def check_fit(hierarchy: Sequence[int], axes: Sequence[int]) -> None:
    """Nothing, if there is a matrix.

    Raises:
        MatrixError: a size below 1, or axes that do not multiply to the number of devices.
    """
    _check_sizes(hierarchy, axes)
    if prod(axes) != prod(hierarchy):
        raise MatrixError(
            f"the axes multiply to {prod(axes)}, the levels to {prod(hierarchy)} devices"
        )


def _check_sizes(hierarchy: Sequence[int], axes: Sequence[int]) -> None:
    if any(size < 1 for size in (*hierarchy, *axes)):
        raise MatrixError("levels and axes need sizes of at least 1")


def matrices(hierarchy: Sequence[int], axes: Sequence[int]) -> Iterator[Matrix]:
    """All matrices, one at a time: row by row, the largest factors outermost first.

    The first comes at once however many there are.

    Raises:
        MatrixError: there is none (before the first is asked for).
    """
    check_fit(hierarchy, axes)
    return _matrices(tuple(hierarchy), tuple(axes))


def _matrices(columns: tuple[int, ...], axes: tuple[int, ...]) -> Iterator[Matrix]:
    if not axes:
        yield ()
        return
    if len(axes) == 1:
        yield (columns,)
        return
    for row in rows(columns, axes[0]):
        left = tuple(column // factor for column, factor in zip(columns, row, strict=True))
        for rest in _matrices(left, axes[1:]):
            yield (row, *rest)


def rows(columns: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """Rows of a matrix: factors that divide the columns and multiply to a size, falling."""
    if not columns:
        yield ()  # of size 1: the caller only leaves what the columns to the right can take
        return
    inner = prod(columns[1:])
    for factor in reversed(divisors(gcd(columns[0], size))):
        if inner % (size // factor) == 0:
            for rest in rows(columns[1:], size // factor):
                yield (factor, *rest)


def count(hierarchy: Sequence[int], axes: Sequence[int]) -> int:
    """The number of matrices, without listing them; 0 if the axes do not fit.

    Raises:
        MatrixError: a size below 1.
    """
    _check_sizes(hierarchy, axes)
    if prod(axes) != prod(hierarchy):
        return 0
    columns = [factorised(size) for size in hierarchy]
    rows = [factorised(size) for size in axes]
    return prod(
        _tables([row.get(prime, 0) for row in rows], [column.get(prime, 0) for column in columns])
        for prime in {prime for column in columns for prime in column}
    )


def _tables(one: list[int], other: list[int]) -> int:
    """The number of tables of natural numbers with these row and column sums."""
    columns, rows = sorted((sorted(filter(None, one)), sorted(filter(None, other))), key=len)
    # What the columns have left, in any order, and in how many ways that came about.
    left = Counter({tuple(columns): 1})
    for row in rows:
        after: Counter[tuple[int, ...]] = Counter()
        for state, ways in left.items():
            for rest in _taken(state, row):
                after[tuple(sorted(rest))] += ways
        left = after
    return left.total()


def _taken(columns: tuple[int, ...], amount: int) -> Iterator[tuple[int, ...]]:
    """What is left of the columns, for all ways of taking an amount from them."""
    room = list(accumulate(reversed(columns), initial=0))[::-1]

    def take(place: int, amount: int) -> Iterator[tuple[int, ...]]:
        if place == len(columns):
            yield ()
            return
        for own in range(max(0, amount - room[place + 1]), min(columns[place], amount) + 1):
            for rest in take(place + 1, amount - own):
                yield (columns[place] - own, *rest)

    return take(0, amount)
