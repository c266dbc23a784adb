"""The progress of a search, on one line of stderr that is overwritten."""

import sys
import time
from collections import Counter
from typing import TextIO

from collir.search.core.problem import sign
from collir.search.running.coordinator import Coordinator, best_bound

EVERY = 0.5
"""Seconds between two lines."""

SHOWN = 6
"""The maximum number of depths shown."""

MANY = 5000
"""The maximum number of open nodes whose bounds are computed for the gap."""


class Progress:
    """An observer that shows nodes, nodes per second, tasks by depth, the best value and bound."""

    def __init__(self, stream: TextIO | None = None):
        self._stream = stream or sys.stderr
        self._next = time.monotonic() + EVERY
        self._last = (time.monotonic(), 0.0)
        self._width = 0

    def look(self, coordinator: Coordinator) -> None:
        """Write a line, if it is time."""
        now = time.monotonic()
        if now < self._next:
            return
        visited = coordinator.visited()
        speed = (visited - self._last[1]) / max(now - self._last[0], 1e-9)
        self._last = now, visited
        self._next = now + EVERY
        parts = [f"{coordinator.watch.seconds:.0f} s", f"{visited:,.0f} nodes", f"{speed:,.0f}/s"]
        parts += self._known(coordinator)
        self._write("  ".join(parts))

    def _known(self, coordinator: Coordinator) -> list[str]:
        state, plan = coordinator.snapshot(), coordinator.plan
        depths = sorted(Counter(task.depth for task in state.open).items())
        shown = " ".join(f"{depth}:{number}" for depth, number in depths[:SHOWN])
        parts = [f"tasks by depth {shown}{' ...' if len(depths) > SHOWN else ''}"]
        if plan.kind == "optimise" and state.solutions:
            best = state.solutions[0].rank
            parts.append(f"best {sign(plan.problem) * best:g}")
            if sum(task.size for task in state.open) <= MANY:
                bound = min(best_bound(plan, state.open), best)
                parts.append(f"bound {sign(plan.problem) * bound:g}")
        return parts

    def _write(self, line: str) -> None:
        self._stream.write(f"\r{line.ljust(self._width)}")
        self._stream.flush()
        self._width = len(line)

    def close(self) -> None:
        """Erase the line."""
        if self._width:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._stream.flush()


def progress_enabled(asked: bool | None) -> bool:
    """Return whether to show progress: as requested, or if stderr is a terminal."""
    return sys.stderr.isatty() if asked is None else asked
