"""Searches as passes and targets run them.

They show progress while they take long, and a remark says where one was cut off, by its limit or by
Ctrl-C.
"""

import math
import signal
import threading
from collections.abc import Generator
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
"""Why a search has ended, if it has taken as long as it may."""

INTERRUPTED = "interrupted"
"""Why a search has ended, if the user has asked for it."""

_GRACE = 0.1
"""Seconds at most of every search behind one that was interrupted: to find something at all."""


@dataclass
class Session:
    """The state that searches of one command share.

    Attributes:
        workers: how many each may use.
        interrupted: whether the user has asked that they end.
        under_way: how many have begun, each inside the one before.
        cut: of searches that are told about together, why each ended that was cut off, and after
            how many seconds at most; None: each is told about.
    """

    workers: int = 1
    interrupted: bool = False
    under_way: int = 0
    cut: list[tuple[str, float | None]] | None = field(default=None)


_session: ContextVar[Session | None] = ContextVar("_session", default=None)


@contextmanager
def session() -> Generator[None]:
    """End a search inside, and all later ones, with the best so far on Ctrl-C."""
    token = _session.set(Session())
    try:
        yield
    finally:
        _session.reset(token)


@contextmanager
def search_workers(workers: int) -> Generator[None]:
    """Give each long search inside so many workers."""
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
    from collir.search import k_best  # which takes long to import, and the tools import this

    shared = _session.get() or Session()
    if shared.interrupted:
        seconds = _GRACE if seconds is None else min(seconds, _GRACE)
    inside = shared.under_way > 0
    shared.under_way += 1
    token = _session.set(shared)
    try:
        found = k_best(
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
    if found.statistics.reason == INTERRUPTED:
        shared.interrupted = True
        if inside:  # the one around it has not heard of it
            signal.raise_signal(signal.SIGINT)
    elif found.statistics.reason and shared.interrupted:
        found.statistics.reason = INTERRUPTED
    return found


def workers() -> int:
    """Return how many workers a search may use."""
    shared = _session.get()
    return 1 if shared is None else shared.workers


def under_way() -> bool:
    """Return whether a search has begun and not ended."""
    shared = _session.get()
    return shared is not None and shared.under_way > 0


def interrupted() -> bool:
    """Return whether the user has asked that searches end."""
    shared = _session.get()
    return shared is not None and shared.interrupted


def gap_of(best: float | None, bound: float | None) -> float | None:
    """Return the most that the optimum may be below the best, relative to it; None: not known."""
    if best is None or not bound or not 0 < best < math.inf or math.isinf(bound):
        return None
    return max(0.0, 1 - bound / best)


def remark_cut_off(
    item: Operation, what: str, ended: str, seconds: float | None, gap: float | None = None
) -> None:
    """Make a remark that a search was cut off, or leave that to ``grouped_remarks``.

    Args:
        item: what it was for, and ``what`` that is in words.
        ended: why, as in ``Statistics.reason``.
        seconds: the limit.
        gap: as of ``gap_of``.
    """
    shared = _session.get()
    if shared is not None and shared.cut is not None:
        shared.cut.append((ended, seconds))
        return
    near = "" if gap is None else f", which none is better than by more than {100 * gap:.2g} %"
    text = f"the search for {what} was {_cut(ended, seconds)}: the best so far is taken{near}"
    remark(item, text + _again(ended))


def record_cut_off(ended: str, seconds: float | None) -> None:
    """Leave it to ``grouped_remarks`` to say that a search was cut off."""
    shared = _session.get()
    if shared is not None and shared.cut is not None:
        shared.cut.append((ended, seconds))


@contextmanager
def grouped_remarks(item: Operation, what: str) -> Generator[None]:
    """Make one remark for all searches inside that were cut off."""
    shared = _session.get() or Session()
    around, shared.cut = shared.cut, []
    token = _session.set(shared)
    try:
        yield
        cut = shared.cut
    finally:
        _session.reset(token)
        shared.cut = around
    if not cut:
        return
    if around is not None:
        around += cut
        return
    ended = next((one for one, _ in cut if one == INTERRUPTED), cut[0][0])
    many = "1 search" if len(cut) == 1 else f"{len(cut)} searches"
    was = "was" if len(cut) == 1 else "were"
    text = f"{many} for {what} {was} {_cut(ended, cut[0][1])}: the best so far is taken"
    remark(item, text + _again(ended))


def _cut(ended: str, seconds: float | None) -> str:
    if ended == INTERRUPTED:
        return "interrupted"
    return "cut off by the limit" + ("" if seconds is None else f" of {seconds:.3g} s")


def _again(ended: str) -> str:
    """Return what the user may do about a limit, and that another run may differ."""
    if ended == INTERRUPTED:
        return ""
    return "; another run may find another, a greater limit a better one"
