"""Limits that end a search early: time, nodes, memory, or a signal."""

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
    """Limits of a search: seconds, number of visited nodes, bytes of memory."""

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
    """A request of the user, by SIGINT, to end the search."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Generator[None]:
        """Catch the signal while the search runs; a second signal has its usual effect.

        Only the main thread can catch signals; in other threads this does nothing.
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
    """A watch over the limits; earlier runs took ``spent`` seconds and ``visited`` nodes."""

    def __init__(self, limits: Limits, interrupt: Interrupt, spent: float = 0.0, visited: int = 0):
        self._limits = limits
        self._visited = visited
        self._interrupt = interrupt
        self._spent = spent
        self._started = time.monotonic()
        self._memory_at = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the search began, including earlier runs."""
        return self._spent + time.monotonic() - self._started

    def until(self, seconds: float) -> "Watch":
        """Return the same watch with a limit of at most ``seconds``."""
        least = seconds if self._limits.seconds is None else min(seconds, self.left())
        watch = Watch(
            replace(self._limits, seconds=least), self._interrupt, self._spent, self._visited
        )
        watch._started = self._started
        return watch

    def left(self) -> float:
        """Return the seconds until the time limit."""
        if self._limits.seconds is None:
            return math.inf
        return max(0.0, self._limits.seconds - (time.monotonic() - self._started))

    def nodes_left(self, visited: float) -> float:
        """Return how many more nodes may be visited after ``visited`` nodes."""
        if self._limits.nodes is None:
            return math.inf
        return self._limits.nodes - (visited - self._visited)

    def memory_due(self) -> bool:
        """Return whether it is time to measure the memory again."""
        if self._limits.memory is None or self.seconds < self._memory_at:
            return False
        self._memory_at = self.seconds + 0.1
        return True

    def reason(self, visited: float, memory: int | None) -> str:
        """Return why the search must end now, or ""."""
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
