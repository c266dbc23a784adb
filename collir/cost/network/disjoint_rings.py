"""A search for edge-disjoint rings through all vertices of a small graph."""

from collections.abc import Sequence
from itertools import pairwise

MAX_VERTICES = 16
_MAX_STEPS = 100_000
_MAX_RINGS = 24


def edge_disjoint_rings(links: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return as many rings as a bounded search finds; ``links`` counts links between vertices.

    In graphs of more than ``MAX_VERTICES`` or fewer than three vertices it finds none.
    """
    n = len(links)
    if not 3 <= n <= MAX_VERTICES:
        return []
    return _Search([list(row) for row in links]).run()


class _Search:
    """A depth-first search for rings, one after the other; ``left`` are the unused links."""

    def __init__(self, left: list[list[int]]):
        self.left = left
        self.n = len(left)
        self.steps = _MAX_STEPS
        self.limit = min(_MAX_RINGS, min(map(sum, left)) // 2)
        self.rings: list[tuple[int, ...]] = []
        self.best: list[tuple[int, ...]] = []

    def run(self) -> list[tuple[int, ...]]:
        self.extend([0], {0})
        return self.best

    def extend(self, path: list[int], used: set[int]) -> bool:
        """Extend a path in all ways, and return True if the search is to end."""
        self.steps -= 1
        if self.steps < 0:
            return True
        last = path[-1]
        if len(path) == self.n:
            return self.left[last][0] > 0 and self.close(tuple(path))
        for vertex in range(1, self.n):
            if vertex not in used and self.left[last][vertex]:
                path.append(vertex)
                used.add(vertex)
                if self.extend(path, used):
                    return True
                path.pop()
                used.remove(vertex)
        return False

    def close(self, ring: tuple[int, ...]) -> bool:
        """Search for more rings without the links of ``ring``; return True if the search ends."""
        self.rings.append(ring)
        self.add_links(ring, -1)
        if len(self.rings) > len(self.best):
            self.best = list(self.rings)
        done = len(self.best) == self.limit or self.extend([0], {0})
        self.add_links(ring, 1)
        self.rings.pop()
        return done

    def add_links(self, ring: tuple[int, ...], change: int) -> None:
        for a, b in pairwise((*ring, ring[0])):
            self.left[a][b] += change
            self.left[b][a] += change
