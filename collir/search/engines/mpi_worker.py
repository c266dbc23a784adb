"""The worker on a rank of MPI other than rank 0: it runs tasks until the search has ended."""

import pickle
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from collir.search.core.board import COUNTERS, STOP, Board
from collir.search.core.tasks import exception_text
from collir.search.core.worker import Worker
from collir.search.engines.mpi_link import Link, LostRankError, Pause

ENDINGS = ("done", "failed", "lost")
"""The kinds of message that end a search: with its outcome, or with an error."""


class RankWorker:
    """The worker on this rank."""

    def __init__(self, link: Link, board: Board):
        self._link = link
        self._board = board
        self._index = link.rank - 1
        self._worker: Worker | None = None
        self._search = 0

    def serve(self) -> tuple[str, Any]:
        """Obey the messages of rank 0; return the one that ends the search: its kind and content.

        Raises:
            LostRankError: rank 0 is lost.
        """
        link, pause = self._link, Pause()
        while True:
            link.look(silence=self._worker is not None)
            self._beat()
            if (message := link.receive()) is not None:
                kind, number, content = message[1]
                if kind in ENDINGS:
                    return kind, content
                self._guarded(self._take, kind, number, content)
                pause.reset()
            elif self._working:
                self._guarded(self._work)
                pause.reset()
            else:
                link.sent()
                pause()

    def _beat(self, due: bool = False) -> None:
        """Tell rank 0 the number of visited nodes."""
        searching = self._worker is not None and self._board.cells[STOP] < self._search
        self._link.beat((0,), COUNTERS + self._index if searching else None, due)

    @property
    def _working(self) -> bool:
        """Return whether there is work; a stopped search waits for the message that says so."""
        worker = self._worker
        return worker is not None and worker.busy and self._board.cells[STOP] < self._search

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call a method; on an exception, drop the worker and send the error to rank 0."""
        try:
            call(*arguments)
        except LostRankError:
            raise
        except BaseException as error:
            self._worker = None
            text = exception_text(error, f"rank {self._link.rank}")
            self._link.send((0,), ("error", self._search, text))

    def _take(self, kind: str, number: int, content: Any) -> None:
        """Obey a message."""
        if kind == "plan":
            self._search, self._worker = number, None
            self._worker = Worker(pickle.loads(content), self._board, self._index)
            self._link.listen()
        elif kind == "tasks" and self._worker is not None and number == self._search:
            self._worker.add(content)
        elif kind == "stop":
            worker, self._worker = self._worker, None
            reports = worker.stop() if worker is not None else []
            self._link.written()  # no cut of this search may arrive during the next one
            self._link.send((0,), ("stopped", number, reports))

    def _work(self) -> None:
        """Run tasks until there is something to report, and report it."""
        worker = self._worker
        assert worker is not None
        reports = worker.burst(self._search)
        if not worker.busy:
            self._beat(due=True)
        if not reports:
            return
        started = time.perf_counter()
        self._link.send((0,), ("reports", self._search, reports))
        self._link.settle()
        worker.publish()
        worker.cost((time.perf_counter() - started) / len(reports))


@contextmanager
def ignored_interrupts() -> Generator[None]:
    """Ignore SIGINT, which launchers send to all ranks: rank 0 decides what it means."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
