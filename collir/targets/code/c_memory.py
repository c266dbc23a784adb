"""The memory of a function's temporaries as one allocation, in which places are used again."""

from dataclasses import dataclass, field

ALIGNMENT = 64
"""The bytes that the start of a place is a multiple of: a cache line, and the widest vector."""


@dataclass
class Arena:
    """Places in one allocation.

    Attributes:
        size: the bytes of the allocation.
        starts: the start of each place that was taken, in bytes.
    """

    size: int = 0
    starts: dict[str, int] = field(default_factory=dict[str, int])
    _taken: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def take(self, name: str, count: int) -> None:
        """Give a name the smallest gap between the places in use that has a number of bytes, or a
        place behind them."""
        count = -(-count // ALIGNMENT) * ALIGNMENT
        gaps: list[tuple[int, int]] = []
        end = 0
        for start, size in sorted(self._taken.values()):
            if start - end >= count:
                gaps.append((start - end, end))
            end = start + size
        start = min(gaps)[1] if gaps else end
        self.starts[name] = start
        self._taken[name] = start, count
        self.size = max(self.size, start + count)

    def give_back(self, name: str) -> None:
        """Let others use the place of a name from now on."""
        self._taken.pop(name, None)
