"""The board: numbers in shared memory, the cut among them, that every worker sees at once."""

import math
import threading
from array import array
from typing import cast

import numpy as np
from numpy.typing import NDArray

from collir.search.core.problem import Number, SearchError

CUT, WANTED, STOP, LAST, COUNTERS = range(5)
"""The cells of a board: the greatest rank that is still needed (the cut); the number of idle
workers; the number of the last search that was stopped; the order of the last task that is needed;
then, for each worker, the number of nodes that it has visited."""

EXACT = 2**53
"""The greatest number up to which a float64 holds every whole number exactly."""


class Board:
    """Cells of shared memory (float64). Only the cut has several writers, and it only falls.

    Two writes of the cut at the same moment may leave the greater value. It stands until the
    coordinator writes the lower one again; until then more nodes are visited, and nothing else.
    """

    def __init__(self, workers: int, memory: "memoryview[float] | None" = None):
        self.cells = cast(
            "memoryview[float]", memoryview(array("d", bytes(8 * cell_count(workers))))
        )
        if memory is not None:
            self.cells = memory
        self._claimed = threading.Lock()
        self.reset()

    def claim(self) -> None:
        """Reserve the workers for one search.

        Raises:
            SearchError: the workers run another search, or one was broken off before they stopped.
        """
        if not self._claimed.acquire(blocking=False):
            raise SearchError(
                "this engine is at another search, or one on it was broken off: make another one"
            )

    def release(self) -> None:
        """End the reservation of the workers, which have stopped: another search may begin."""
        self._claimed.release()

    def array(self) -> NDArray[np.float64]:
        """Return the cells for kernels: shape (cells,), sharing memory with the board."""
        return np.frombuffer(cast("memoryview[int]", self.cells), dtype=np.float64)

    def reset(self) -> None:
        """Set all cells but STOP to their values at the start of a search."""
        self.cells[CUT] = math.inf
        self.cells[WANTED] = 0.0
        self.cells[LAST] = math.inf
        for counter in range(COUNTERS, len(self.cells)):
            self.cells[counter] = 0.0

    def visited(self) -> float:
        """Return the number of nodes that workers have visited since the search began."""
        return sum(self.cells[COUNTERS:])

    def publish(self, cut: float) -> None:
        """Lower the cut of all workers."""
        if cut < self.cells[CUT]:
            self.cells[CUT] = cut

    def set(self, cell: int, value: float) -> None:
        """Write a cell that all workers read."""
        if self.cells[cell] != value:
            self.cells[cell] = value


def cell_count(workers: int) -> int:
    """Return the number of cells of a board for ``workers`` workers."""
    return COUNTERS + workers


def cut_at(rank: Number) -> float:
    """Return the greatest float rank that may lead to a solution no worse than ``rank``."""
    try:
        value = float(rank)
    except OverflowError:
        return math.inf if rank > 0 else -1.7976931348623157e308
    return value if value >= rank else math.nextafter(value, math.inf)


def cut_below(rank: Number) -> float:
    """Return the greatest float rank that may lead to a solution better than ``rank``.

    Beyond 2**53 neighbouring whole numbers share a float, so equal ranks are searched there too.
    """
    if -EXACT < rank <= EXACT:
        return math.nextafter(float(rank), -math.inf)
    return cut_at(rank)
