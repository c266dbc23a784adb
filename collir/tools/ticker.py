"""What a command is doing, on one line of stderr that is written over, where somebody looks."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from collir.synthesis.searching import under_way

EVERY = 1.0
"""Seconds until the first line, and between two."""


class Ticker:
    """Writes what is being done every second, by a timer of the process: work goes on as it would
    without. A search that is under way has a line of its own."""

    def __init__(self, doing: Callable[[], str]):
        self.doing = doing
        self._started = time.monotonic()
        self._width = 0

    @contextmanager
    def ticking(self) -> Generator[None]:
        """Shows a line while work is done in here; only on a terminal, in the main thread."""
        main = threading.current_thread() is threading.main_thread()
        if not (main and sys.stderr.isatty() and hasattr(signal, "setitimer")):
            yield
            return
        before = signal.signal(signal.SIGALRM, self.tick)
        signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self.clear()

    def tick(self, number: int, frame: FrameType | None) -> None:
        """Writes the line anew."""
        if under_way():
            return
        line = f"{time.monotonic() - self._started:.0f} s  {self.doing()}"
        sys.stderr.write(f"\r{line.ljust(self._width)}")
        sys.stderr.flush()
        self._width = len(line)

    def clear(self) -> None:
        """Takes the line away."""
        if self._width:
            sys.stderr.write(f"\r{' ' * self._width}\r")
            self._width = 0
