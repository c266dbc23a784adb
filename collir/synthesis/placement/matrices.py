"""Parallelism matrices: all placements of axes on a hierarchy (P², Xie et al., MLSys 2022).

A matrix has a row per axis and a column per level; column j multiplies to the size of level j, row
i to the size of axis i. Each prime can be treated alone: its exponents form a table of natural
numbers with certain row and column sums. Such a table exists whenever both sums have the same
total. So axes fit exactly if they multiply to the number of devices, and filling a matrix entry by
entry never reaches a dead end.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import gcd, prod

from collir.layout.numbers import divisors, factorised

Matrix = tuple[tuple[int, ...], ...]
"""Factors; a row per axis in the order of declaration, a column per level, outermost first."""


class MatrixError(ValueError):
    """An error of sizes of levels or axes that have no parallelism matrix."""


def check_fit(hierarchy: Sequence[int], axes: Sequence[int]) -> None:
    """Check that axes have a matrix on a hierarchy.

    Raises:
        MatrixError: a size is below 1, or the axes do not multiply to the number of devices.
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
    """Yield all matrices lazily: row by row, the largest factors outermost first.

    Raises:
        MatrixError: there is no matrix; raised before the first is asked for.
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
    """Yield the rows of a size whose factors divide the columns, in decreasing order."""
    if not columns:
        yield ()  # the size is 1 here: the caller leaves only what the remaining columns can take
        return
    inner = prod(columns[1:])
    for factor in reversed(divisors(gcd(columns[0], size))):
        if inner % (size // factor) == 0:
            for rest in rows(columns[1:], size // factor):
                yield (factor, *rest)


def count(hierarchy: Sequence[int], axes: Sequence[int]) -> int:
    """Return the number of matrices, without listing them; 0 if the axes do not fit.

    Raises:
        MatrixError: a size is below 1.
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


def _tables(row_sums: list[int], column_sums: list[int]) -> int:
    """Return the number of tables of natural numbers with some row and column sums."""
    # The number of tables is that of the transposed tables, so the shorter list is the columns.
    columns, rows = sorted(
        (sorted(filter(None, row_sums)), sorted(filter(None, column_sums))), key=len
    )
    # Sums that the columns have left, sorted, with the number of ways to fill the rows above.
    left = Counter({tuple(columns): 1})
    for row in rows:
        after: Counter[tuple[int, ...]] = Counter()
        for sums, ways in left.items():
            for rest in _rests(sums, row):
                after[tuple(sorted(rest))] += ways
        left = after
    return left.total()


def _rests(sums: tuple[int, ...], amount: int) -> Iterator[tuple[int, ...]]:
    """Yield the column sums that are left after each way to subtract a row of a certain sum."""
    behind = list(accumulate(reversed(sums), initial=0))[::-1]

    def rests_from(place: int, amount: int) -> Iterator[tuple[int, ...]]:
        if place == len(sums):
            yield ()
            return
        for entry in range(max(0, amount - behind[place + 1]), min(sums[place], amount) + 1):
            for rest in rests_from(place + 1, amount - entry):
                yield (sums[place] - entry, *rest)

    return rests_from(0, amount)
