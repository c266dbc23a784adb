"""Trees made to measure engines. Workers import this module."""

import time
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from collir.search import Problem


class Flat(Problem[int]):
    """A root and its leaves, numbered from 0; each is a solution and waits for ``seconds``."""

    def __init__(self, leaves: int, seconds: float = 0.0):
        self.leaves = leaves
        self.seconds = seconds

    def root(self) -> int:
        """Return the root, which is no leaf."""
        return -1

    def children(self, node: int) -> range:
        """Return the leaves of the root."""
        return range(self.leaves if node < 0 else 0)

    def objective(self, node: int) -> int | None:
        """Return 1 for a leaf, after waiting."""
        if node < 0:
            return None
        if self.seconds:
            time.sleep(self.seconds)
        return 1


def leaf(node: int) -> int | None:
    """Return the objective of a leaf of a flat tree, as a task of an executor."""
    return Flat(0).objective(node)


class Race(Problem[tuple[int, int]]):
    """A root with two children: a finder, and a busy node whose children never end.

    Below the finder a solution is found after a while; then no child of the busy node is needed.

    ``file`` has two numbers: the times of the solution and of the last bound.
    """

    sorted_by_bound = True

    def __init__(self, file: str, wait: float = 0.05):
        self.file = file
        self.wait = wait

    def root(self) -> tuple[int, int]:
        """Return the root."""
        return 0, 0

    def children(self, node: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Yield the finder (1) and the busy one (2); the solution (3); nodes that are not needed
        (4)."""
        kind, _ = node
        if kind == 0:
            yield 1, 0
            yield 2, 0
        elif kind == 1:
            end = time.perf_counter() + self.wait
            while time.perf_counter() < end:
                pass
            yield 3, 0
        elif kind == 2:
            number = 0
            while True:
                yield 4, number
                number += 1

    def objective(self, node: tuple[int, int]) -> int | None:
        """Return the value of the only solution, and note its time."""
        if node[0] != 3:
            return None
        shared = stamps(self.file)
        shared[0] = time.perf_counter()
        return 10

    def bound(self, node: tuple[int, int]) -> int:
        """Return the bound; note the time for nodes that the solution makes needless."""
        if node[0] != 4:
            return 10
        shared = stamps(self.file)
        shared[1] = time.perf_counter()
        return 5


@lru_cache(maxsize=1)
def stamps(file: str) -> NDArray[np.float64]:
    """Return the numbers of a file, shared by all processes that open it."""
    return np.memmap(file, dtype=np.float64, mode="r+", shape=(2,))
