"""The n queens: a queen in each row of a board, none attacking another."""

from collections.abc import Iterator
from typing import NamedTuple

from collir.search.core.problem import Problem, SearchError

MAX_QUEENS = 1000


class PartialBoard(NamedTuple):
    """Queens in the rows above ``row``, and masks of the columns of ``row`` that they attack.

    Attributes:
        row: the next row to fill, from 0.
        columns: the columns that have a queen, bit i for column i.
        diagonals: the columns of ``row`` attacked along diagonals that run down to the right.
        antidiagonals: the columns attacked along diagonals that run down to the left.
        placed: the column of the queen of each row so far.
    """

    row: int
    columns: int
    diagonals: int
    antidiagonals: int
    placed: tuple[int, ...]


class Queens(Problem[PartialBoard]):
    """The ways to place ``n`` queens on a board of ``n`` by ``n``, row by row.

    A full board is a solution of value ``n``: an enumeration counts the ways (OEIS A000170), and a
    decision finds one of them.
    """

    def __init__(self, n: int):
        if not 1 <= n <= MAX_QUEENS:
            raise SearchError(f"there must be from 1 to {MAX_QUEENS} queens, not {n}")
        self.n = n
        self.target = n
        self._full = (1 << n) - 1

    def root(self) -> PartialBoard:
        """Return the empty board."""
        return PartialBoard(0, 0, 0, 0, ())

    def children(self, node: PartialBoard) -> Iterator[PartialBoard]:
        """Yield the boards with one more queen, from the left."""
        row, columns, diagonals, antidiagonals, placed = node
        if row == self.n:
            return
        free = self._full & ~(columns | diagonals | antidiagonals)
        while free:
            queen = free & -free
            free ^= queen
            yield PartialBoard(
                row + 1,
                columns | queen,
                (diagonals | queen) << 1 & self._full,
                (antidiagonals | queen) >> 1,
                (*placed, queen.bit_length() - 1),
            )

    def objective(self, node: PartialBoard) -> int | None:
        """Return ``n`` for a full board."""
        return self.n if node.row == self.n else None

    def bound(self, node: PartialBoard) -> int:
        """Return ``n``: all full boards are equally good."""
        return self.n

    def show(self, node: PartialBoard) -> list[int]:
        """Return the column of the queen of each row, from 0."""
        return list(node.placed)
