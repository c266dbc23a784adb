"""A progress line of a command on stderr, written over each second if stderr is a terminal."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from collir.synthesis.searching import under_way
from collir.tools.timers import called_every, has_timers

EVERY = 1.0
"""Seconds until the first line, and between two lines."""


class Ticker:
    """A progress line, written every second by a timer of the process, so that work goes on.

    A search that is under way writes a line of its own.
    """

    def __init__(self, doing: Callable[[], str]):
        self.doing = doing
        self._started = time.monotonic()
        self._width = 0

    @contextmanager
    def ticking(self) -> Generator[None]:
        """Show the line while the block runs; only on a terminal, in the main thread."""
        if not (sys.stderr.isatty() and has_timers()):
            yield
            return
        try:
            with called_every(EVERY, self.tick):
                yield
        finally:
            self.clear()

    def tick(self, number: int, frame: FrameType | None) -> None:
        """Write the line anew."""
        if under_way():
            return
        line = f"{time.monotonic() - self._started:.0f} s  {self.doing()}"
        sys.stderr.write(f"\r{line.ljust(self._width)}")
        sys.stderr.flush()
        self._width = len(line)

    def clear(self) -> None:
        """Clear the line."""
        if self._width:
            sys.stderr.write(f"\r{' ' * self._width}\r")
            self._width = 0
