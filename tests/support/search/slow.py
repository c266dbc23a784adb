"""A search whose duration tests choose, for each process separately."""

import time
from typing import ClassVar

from support.search.problems import Heap


class Slow(Heap):
    """A full tree whose nodes take ``pause`` seconds longer to expand; ``pause`` is not pickled."""

    pause: ClassVar[float] = 0.0

    def children(self, node: int) -> range:
        if self.pause:
            time.sleep(self.pause)
        first = node * self.arity + 1
        return range(first, min(first + self.arity, self.size))


LASTING = Slow(6000, 3)
"""One search, for the processes that start it and those that resume it."""
