"""The patience of tests with processes and searches that may hang.

No test asserts how long something takes, because the machine may be slow, or have other work. What
hangs is given up after a time that nothing takes that works.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

HANG = 600.0
"""Seconds after which a test takes something for hanging."""


class Hung(BaseException):
    """The error of a test that takes so long that it counts as hung."""


@contextmanager
def within(seconds: float = HANG) -> Generator[None]:
    """Interrupt the body after some seconds, and again if it hangs while it is interrupted."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Hung(f"still not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds, 2.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
