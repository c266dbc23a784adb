"""What ends a search early: time, nodes, memory, or a signal."""

import math
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from collir.search.core.problem import SearchError


@dataclass(frozen=True)
class Limits:
    """Where a search ends, with the best so far: seconds, nodes visited, bytes of memory held."""

    seconds: float | None = None
    nodes: int | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        for what, value in (
            ("time", self.seconds),
            ("node", self.nodes),
            ("memory", self.memory),
        ):
            if value is not None and (math.isnan(value) or value < 0):
                raise SearchError(f"the {what} limit must not be below 0, as {value} is")


class Interrupt:
    """Whether the user has asked, by SIGINT, that the search end."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Generator[None]:
        """Takes the signal while the search runs; a second one is an exception as ever.

        Signals can be taken in the main thread only; elsewhere this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)

        def take(number: int, frame: FrameType | None) -> None:
            self.asked = True
            signal.signal(signal.SIGINT, before)

        if before is None or before == signal.SIG_IGN:
            yield
            return
        signal.signal(signal.SIGINT, take)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


class Watch:
    """Says when a limit is reached; ``spent`` seconds and ``visited`` nodes came before."""

    def __init__(self, limits: Limits, interrupt: Interrupt, spent: float = 0.0, visited: int = 0):
        self._limits = limits
        self._visited = visited
        self._interrupt = interrupt
        self._spent = spent
        self._started = time.monotonic()
        self._memory_at = 0.0

    @property
    def seconds(self) -> float:
        """Since the search began, in earlier runs too."""
        return self._spent + time.monotonic() - self._started

    def until(self, seconds: float) -> "Watch":
        """The same watch, with so many seconds at most."""
        least = seconds if self._limits.seconds is None else min(seconds, self.left())
        watch = Watch(
            replace(self._limits, seconds=least), self._interrupt, self._spent, self._visited
        )
        watch._started = self._started
        return watch

    def left(self) -> float:
        """Seconds until the time is up."""
        if self._limits.seconds is None:
            return math.inf
        return max(0.0, self._limits.seconds - (time.monotonic() - self._started))

    def nodes_left(self, visited: float) -> float:
        """How many more nodes may be visited, of so many visited in all."""
        if self._limits.nodes is None:
            return math.inf
        return self._limits.nodes - (visited - self._visited)

    def memory_due(self) -> bool:
        """Whether it is time to look at the memory again."""
        if self._limits.memory is None or self.seconds < self._memory_at:
            return False
        self._memory_at = self.seconds + 0.1
        return True

    def reason(self, visited: float, memory: int | None) -> str:
        """Why the search must end now, or ""."""
        if self._interrupt.asked:
            return "interrupted"
        if self.left() <= 0:
            return "time limit"
        if self.nodes_left(visited) <= 0:
            return "node limit"
        most = self._limits.memory
        if memory is not None and most is not None and memory > most:
            return "memory limit"
        return ""
