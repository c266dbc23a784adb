"""Rings through all vertices of a small graph that use no link twice."""

from collections.abc import Sequence
from itertools import pairwise

MAX_VERTICES = 16
_STEPS = 100_000
_MOST = 24


def edge_disjoint_rings(links: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """As many rings as a bounded search finds; ``links`` counts those between every two vertices.

    None are found in graphs of more than ``MAX_VERTICES`` or fewer than three vertices.
    """
    n = len(links)
    if not 3 <= n <= MAX_VERTICES:
        return []
    return _Search([list(row) for row in links]).run()


class _Search:
    def __init__(self, left: list[list[int]]):
        self.left = left
        self.n = len(left)
        self.steps = _STEPS
        self.most = min(_MOST, min(map(sum, left)) // 2)
        self.found: list[tuple[int, ...]] = []
        self.best: list[tuple[int, ...]] = []

    def run(self) -> list[tuple[int, ...]]:
        self.extend([0], {0})
        return self.best

    def extend(self, path: list[int], used: set[int]) -> bool:
        """Lengthens a path; true when the search is to end."""
        self.steps -= 1
        if self.steps < 0:
            return True
        last = path[-1]
        if len(path) == self.n:
            return self.left[last][0] > 0 and self.close(tuple(path))
        for other in range(1, self.n):
            if other not in used and self.left[last][other]:
                path.append(other)
                used.add(other)
                if self.extend(path, used):
                    return True
                path.pop()
                used.remove(other)
        return False

    def close(self, ring: tuple[int, ...]) -> bool:
        """Takes a ring's links away, and looks for the next."""
        self.found.append(ring)
        self.take(ring, -1)
        if len(self.found) > len(self.best):
            self.best = list(self.found)
        done = len(self.best) == self.most or self.extend([0], {0})
        self.take(ring, 1)
        self.found.pop()
        return done

    def take(self, ring: tuple[int, ...], change: int) -> None:
        for a, b in pairwise((*ring, ring[0])):
            self.left[a][b] += change
            self.left[b][a] += change
