"""A search that takes as long as a test wants it to, in some processes and not in others."""

import time
from typing import ClassVar

from search_problems import Heap


class Slow(Heap):
    """A full tree whose nodes take longer to expand where ``pause`` was set: no pickle has it."""

    pause: ClassVar[float] = 0.0

    def children(self, node: int) -> range:
        if self.pause:
            time.sleep(self.pause)
        first = node * self.arity + 1
        return range(first, min(first + self.arity, self.size))


LASTING = Slow(6000, 3)
"""The same search for who starts it and for who goes on with it."""
