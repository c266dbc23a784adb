"""A time limit, which also ends what runs when it is over."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from collir.tools.timers import called_every, has_timers

_EVERY = 0.05
"""Seconds of a processor after which the clock is read again."""


class Deadline:
    """A time limit that counts from now; None: none."""

    def __init__(self, seconds: float | None):
        self.seconds, self._start = seconds, time.monotonic()

    @staticmethod
    def never() -> "Deadline":
        """Return no limit."""
        return Deadline(None)

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._start

    def left(self) -> float | None:
        """Return the seconds that are left, at least a moment; None: no limit."""
        return None if self.seconds is None else max(1e-3, self.seconds - self._passed)

    def is_over(self, share: float = 1.0) -> bool:
        """Return whether a part of the time is over."""
        return self.seconds is not None and self._passed > share * self.seconds

    @contextmanager
    def ends(self) -> Generator[None]:
        """End what runs inside when the time is over, where signals can: in the main thread of a
        process.

        Raises:
            TimeoutError: the time was over.
        """
        if self.seconds is None or not has_timers():
            yield
            return

        def check(number: int, frame: FrameType | None) -> None:
            if self.is_over():
                raise TimeoutError

        with called_every(_EVERY, check, of_processor=True):
            yield
