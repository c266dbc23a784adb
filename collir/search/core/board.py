"""Numbers that every worker sees at once: the cut, and what the coordinator wants of all."""

import math
import threading
from array import array
from typing import cast

import numpy as np
from numpy.typing import NDArray

from collir.search.core.problem import Number, SearchError

CUT, WANTED, STOP, LAST, COUNTERS = range(5)
"""The cells of a board: nothing of a greater rank than the cut is needed; how many workers have
nothing to do; the number of the last search that was stopped; the order of the last task needed;
then, for each worker, the nodes it has visited."""

EXACT = 2**53
"""Up to here every whole number is a float."""


class Board:
    """Cells of shared memory (float64). Only the cut is written by many, and it only falls.

    A write of the cut may be undone by another at the same moment: then a cut that is not the
    lowest stands until the coordinator writes it again, which costs nodes and nothing else.
    """

    def __init__(self, workers: int, memory: "memoryview[float] | None" = None):
        self.cells = cast("memoryview[float]", memoryview(array("d", bytes(8 * size(workers)))))
        if memory is not None:
            self.cells = memory
        self._claimed = threading.Lock()
        self.reset()

    def claim(self) -> None:
        """Takes the workers for one search.

        Raises:
            SearchError: they are at another search, or one was broken off before they had stopped.
        """
        if not self._claimed.acquire(blocking=False):
            raise SearchError(
                "this engine is at another search, or one on it was broken off: make another one"
            )

    def release(self) -> None:
        """The workers have stopped: another search may begin."""
        self._claimed.release()

    def array(self) -> NDArray[np.float64]:
        """The cells, for kernels: shape (cells,), not a copy."""
        return np.frombuffer(cast("memoryview[int]", self.cells), dtype=np.float64)

    def reset(self) -> None:
        """As at the start of a search."""
        self.cells[CUT] = math.inf
        self.cells[WANTED] = 0.0
        self.cells[LAST] = math.inf
        for counter in range(COUNTERS, len(self.cells)):
            self.cells[counter] = 0.0

    def visited(self) -> float:
        """The nodes that workers have visited since the search began."""
        return sum(self.cells[COUNTERS:])

    def publish(self, cut: float) -> None:
        """Lowers the cut for all."""
        if cut < self.cells[CUT]:
            self.cells[CUT] = cut

    def set(self, cell: int, value: float) -> None:
        """Tells all workers something."""
        if self.cells[cell] != value:
            self.cells[cell] = value


def size(workers: int) -> int:
    """The cells that a board for so many workers has."""
    return COUNTERS + workers


def cut_at(rank: Number) -> float:
    """The greatest float rank worth looking at when a solution no worse than ``rank`` is wanted."""
    try:
        value = float(rank)
    except OverflowError:
        return math.inf if rank > 0 else -1.7976931348623157e308
    return value if value >= rank else math.nextafter(value, math.inf)


def cut_below(rank: Number) -> float:
    """The greatest float rank worth looking at when a solution better than ``rank`` is wanted.

    Whole numbers beyond 2**53 lie closer than floats do: there, equal ranks are looked at too.
    """
    if -EXACT < rank <= EXACT:
        return math.nextafter(float(rank), -math.inf)
    return cut_at(rank)
