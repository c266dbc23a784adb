"""Searches as passes and targets run them: with workers, limits, interrupts and remarks.

A search that takes long shows progress, and a remark says if a search was cut off by its limit or
by Ctrl-C.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from xdsl.ir import Operation

from collir.ir.remarks import remark

if TYPE_CHECKING:
    from collir.search import Optimum, Problem
    from collir.search.core.plan import Order

Node = TypeVar("Node")

TIME = "time limit"
"""The reason for the end of a search that reached its limit."""

INTERRUPTED = "interrupted"
"""The reason for the end of a search that the user interrupted."""

TIMED = "programs timed"
"""The reason for the end of a search that has timed as many programs as it may."""

MOST_PROGRAMS = 64
"""The most programs of a change of a layout that are timed as a whole."""

_GRACE = 0.1
"""Maximum seconds of every search after an interrupt, so that it finds a first solution."""


@dataclass
class Session:
    """The state that the searches of one command share.

    Attributes:
        workers: number of workers that each search may use.
        interrupted: whether the user has interrupted a search.
        under_way: number of searches that run, each inside the one before.
        cut: reason and limit in seconds of the searches cut off inside ``grouped_remarks``; None
            outside of it.
    """

    workers: int = 1
    interrupted: bool = False
    under_way: int = 0
    cut: list[tuple[str, float | None]] | None = field(default=None)


class TimeUp(Exception):
    """The time for some work is over."""


@dataclass(frozen=True)
class Limit:
    """The end of the time for a search.

    It is a time of this thread's own clock, so that results do not depend on the load of the
    machine.

    Attributes:
        end: seconds by the clock.
    """

    end: float = math.inf
    clock: Callable[[], float] = time.thread_time

    @staticmethod
    def of(seconds: float | None) -> "Limit":
        """Return the limit some seconds from now; None: no limit."""
        return Limit() if seconds is None else Limit(time.thread_time() + seconds)

    @property
    def left(self) -> float | None:
        """The seconds that are left; None without a limit."""
        return None if self.end == math.inf else max(0.0, self.end - self.clock())

    @property
    def is_over(self) -> bool:
        """True if no time is left."""
        return self.clock() > self.end


_limit: ContextVar[Limit | None] = ContextVar("_limit", default=None)


@contextmanager
def within(limit: Limit) -> Generator[None]:
    """Let ``check_time`` inside raise ``TimeUp`` once a limit is over."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)


def check_time() -> None:
    """Check that there is time left, in work that may take long.

    Raises:
        TimeUp: there is none.
    """
    limit = _limit.get()
    if limit is not None and limit.is_over:
        raise TimeUp


_session: ContextVar[Session | None] = ContextVar("_session", default=None)


@contextmanager
def session() -> Generator[None]:
    """On Ctrl-C, end the search inside and all later searches with the best so far."""
    token = _session.set(Session())
    try:
        yield
    finally:
        _session.reset(token)


@contextmanager
def search_workers(workers: int) -> Generator[None]:
    """Let each long search inside use a number of workers."""
    shared = _session.get() or Session()
    before, shared.workers = shared.workers, workers
    token = _session.set(shared)
    try:
        yield
    finally:
        _session.reset(token)
        shared.workers = before


def best_of(
    problem: "Problem[Node]",
    k: int,
    seconds: float | None = None,
    better_than: float | None = None,
    order: "Order" = "depth-first",
) -> "Optimum[Node]":
    """Return the ``k`` best solutions; after a time limit or an interrupt, the best so far.

    A search inside another one uses one worker, and shows no progress. So does one in a program
    with threads, where processes cannot be forked.
    """
    from collir.search import k_best  # imported here because it is slow and the tools start fast

    shared = _session.get() or Session()
    if shared.interrupted:
        seconds = _GRACE if seconds is None else min(seconds, _GRACE)
    inside = shared.under_way > 0
    shared.under_way += 1
    token = _session.set(shared)
    try:
        outcome = k_best(
            problem,
            k,
            better_than=better_than,
            order=order,
            time_limit=seconds,
            workers=1 if inside or threading.active_count() > 1 else shared.workers,
            progress=False if inside else None,
        )
    finally:
        _session.reset(token)
        shared.under_way -= 1
    if outcome.statistics.reason == INTERRUPTED:
        shared.interrupted = True
        if inside:  # interrupt the search around this one, too
            signal.raise_signal(signal.SIGINT)
    elif outcome.statistics.reason and shared.interrupted:
        outcome.statistics.reason = INTERRUPTED
    return outcome


def workers() -> int:
    """Return the number of workers that a search may use."""
    shared = _session.get()
    return 1 if shared is None else shared.workers


def under_way() -> bool:
    """Return whether a search is running."""
    shared = _session.get()
    return shared is not None and shared.under_way > 0


def interrupted() -> bool:
    """Return whether the user has interrupted a search."""
    shared = _session.get()
    return shared is not None and shared.interrupted


def interrupt() -> None:
    """Let the searches of the command end with the best so far."""
    if (shared := _session.get()) is not None:
        shared.interrupted = True


def gap_of(best: float | None, bound: float | None) -> float | None:
    """Return the largest relative saving of the optimum over the best; None if it is not known."""
    if best is None or not bound or not 0 < best < math.inf or math.isinf(bound):
        return None
    return max(0.0, 1 - bound / best)


def remark_cut_off(
    item: Operation, subject: str, ended: str, seconds: float | None, gap: float | None = None
) -> None:
    """Make a remark that a search was cut off, or leave that to ``grouped_remarks``.

    Args:
        item: the operation that the search was for.
        subject: the goal of the search in words.
        ended: reason for the end, as in ``Statistics.reason``.
        seconds: limit of the search.
        gap: result of ``gap_of``.
    """
    if record_cut_off(ended, seconds):
        return
    limit = "" if gap is None else f", which none is better than by more than {100 * gap:.2g} %"
    text = f"the search for {subject} was {_cut(ended, seconds)}: the best so far is taken{limit}"
    remark(item, text + _again(ended))


def record_cut_off(ended: str, seconds: float | None) -> bool:
    """Let ``grouped_remarks`` remark that a search was cut off; return whether it will."""
    shared = _session.get()
    if shared is None or shared.cut is None:
        return False
    shared.cut.append((ended, seconds))
    return True


@contextmanager
def grouped_remarks(item: Operation, subject: str) -> Generator[None]:
    """Make one remark for all searches inside that were cut off."""
    shared = _session.get() or Session()
    outer, shared.cut = shared.cut, []
    token = _session.set(shared)
    try:
        yield
        cut = shared.cut
    finally:
        _session.reset(token)
        shared.cut = outer
    if not cut:
        return
    if outer is not None:
        outer += cut
        return
    reasons = [reason for reason, _ in cut]
    ended = INTERRUPTED if INTERRUPTED in reasons else reasons[0]
    searches = "1 search" if len(cut) == 1 else f"{len(cut)} searches"
    was = "was" if len(cut) == 1 else "were"
    text = f"{searches} for {subject} {was} {_cut(ended, cut[0][1])}: the best so far is taken"
    remark(item, text + _again(ended))


def _cut(ended: str, seconds: float | None) -> str:
    if ended == INTERRUPTED:
        return "interrupted"
    if ended == TIMED:
        return f"ended after {MOST_PROGRAMS} programs were timed"
    return "cut off by the limit" + ("" if seconds is None else f" of {seconds:.3g} s")


def _again(ended: str) -> str:
    """Return advice for a search that reached its limit of time; "" for others."""
    if ended != TIME:
        return ""
    return "; another run may find another, a greater limit a better one"
