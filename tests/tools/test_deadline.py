"""A time limit ends what runs when it is over, and leaves no trace."""

import signal
import time

import pytest

from collir.tools.deadline import Deadline


def test_what_runs_too_long_is_ended() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    deadline = Deadline(0.05)
    with pytest.raises(TimeoutError), deadline.ends():
        while True:
            pass
    assert deadline.is_over()
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_what_ends_in_time_is_left_alone() -> None:
    for deadline in (Deadline(3600), Deadline.never()):
        with deadline.ends():
            start = time.process_time()
            while time.process_time() < start + 0.12:  # the clock was read
                pass
        assert not deadline.is_over()
    assert Deadline.never().left() is None
