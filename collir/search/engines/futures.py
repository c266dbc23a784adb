"""The engine on any ``concurrent.futures.Executor``: each future runs a few tasks for a while.

A future gives back the rest of its tasks. No memory is shared: a worker sees the board as it was
when its future was submitted.
"""

import pickle
import threading
import time
import uuid
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait

from collir.search.core.board import CUT, LAST, WANTED, Board
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import SearchError
from collir.search.core.tasks import Report, SearchTask
from collir.search.core.worker import Worker
from collir.search.engines.base import Event
from collir.search.engines.memory import resident

RUN = 0.05
"""Seconds that a future runs before it gives back the rest of its tasks."""


class Futures:
    """Workers as futures of an executor, which the caller shuts down.

    Args:
        executor: the executor.
        workers: the number of futures at once; None: the number of the executor's workers.
    """

    durable = False

    def __init__(self, executor: Executor, workers: int | None = None):
        self._executor = executor
        self.workers = workers or int(getattr(executor, "_max_workers", 0)) or 1
        self.board = Board(self.workers)
        self._futures: dict[Future[list[Report]], int] = {}

    def start(self, plan: SearchPlan) -> None:
        """Pickle the plan, which is sent with each future."""
        self.board.reset()
        self._plan = plan.packed()
        self._name = uuid.uuid4().hex
        self._waiting: dict[int, list[tuple[int, SearchTask]]] = {}

    def submit(self, worker: int, tasks: list[tuple[int, SearchTask]]) -> None:
        """Send tasks to a worker; start a future for it if it has none."""
        if worker in self._futures.values():
            self._waiting.setdefault(worker, []).extend(tasks)
            return
        cells = self.board.cells
        board = (cells[CUT], cells[WANTED], cells[LAST])
        future = self._executor.submit(_run, self._name, self._plan, tasks, board, RUN)
        self._futures[future] = worker

    def wait(self, seconds: float) -> list[Event]:
        """Return the events that have come from the workers."""
        done, _ = wait(self._futures, seconds, FIRST_COMPLETED)
        events: list[Event] = []
        for future in done:
            worker = self._futures.pop(future)
            events.append(Event(worker, _result(future)))
            if tasks := self._waiting.pop(worker, None):
                self.submit(worker, tasks)
        return events

    def stop(self) -> list[Event]:
        """End the search; running futures end when their time is up."""
        self._waiting.clear()
        events: list[Event] = []
        for future, worker in self._futures.items():
            if not future.cancel() and future.exception() is None:
                events.append(Event(worker, future.result()))
        self._futures.clear()
        return events

    def close(self) -> None:
        """Do nothing: the caller shuts the executor down."""

    def memory(self) -> int:
        """Return the bytes of memory of this process; those of the executor are not known."""
        return resident()


_HERE = threading.local()
"""The worker of this thread, and the name of the worker's search."""


def _result(future: Future[list[Report]]) -> list[Report]:
    try:
        return future.result()
    except BrokenExecutor as error:
        raise SearchError(f"the executor has lost its workers: {error}") from error


def _run(
    name: str,
    data: bytes,
    tasks: list[tuple[int, SearchTask]],
    told: tuple[float, float, float],
    seconds: float,
) -> list[Report]:
    """Run tasks for a while; return reports, which end with the rest of the tasks.

    The worker is kept for the next future of the same search, with the states it has reached.
    """
    if getattr(_HERE, "name", None) != name:
        _HERE.board = Board(1)
        _HERE.worker = Worker(pickle.loads(data), _HERE.board)
        _HERE.name = name
    worker: Worker = _HERE.worker
    board: Board = _HERE.board
    for cell, value in zip((CUT, WANTED, LAST), told, strict=True):
        board.cells[cell] = value
    worker.add(tasks)
    reports: list[Report] = []
    end = time.perf_counter() + seconds
    while worker.busy and time.perf_counter() < end:
        reports += worker.step()
        worker.publish()
    return reports + worker.stop()
