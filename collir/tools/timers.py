"""A handler that a timer of the process calls repeatedly while work goes on."""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


def has_timers() -> bool:
    """Return whether there are timers: in the main thread of a process, where signals have some."""
    main = threading.current_thread() is threading.main_thread()
    return main and hasattr(signal, "setitimer")


@contextmanager
def called_every(
    seconds: float, handle: Callable[[int, FrameType | None], None], of_processor: bool = False
) -> Generator[None]:
    """Call a handler every so many seconds while the block runs.

    Args:
        of_processor: whether they are seconds that the process computes; else of the clock.
    """
    number = signal.SIGVTALRM if of_processor else signal.SIGALRM
    timer = signal.ITIMER_VIRTUAL if of_processor else signal.ITIMER_REAL
    before = signal.signal(number, handle)
    signal.setitimer(timer, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
