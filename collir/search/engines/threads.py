"""The engine on threads of this process, useful where a kernel releases the interpreter lock."""

import queue
import threading

from collir.search.core.board import STOP, Board
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import check_whole
from collir.search.core.tasks import Report, SearchTask
from collir.search.core.worker import Worker
from collir.search.engines.base import Event
from collir.search.engines.memory import resident

Message = list[tuple[int, SearchTask]] | None


class Threads:
    """Workers that are threads, started for each search.

    Args:
        workers: the number of threads.
    """

    durable = False

    def __init__(self, workers: int):
        check_whole("workers", workers, 1)
        self.workers = workers
        self.board = Board(workers)
        self._search = 0
        self._threads: list[threading.Thread] = []

    def start(self, plan: SearchPlan) -> None:
        """Start the threads for a search."""
        self.board.reset()
        self._search += 1
        self._inboxes: list[queue.SimpleQueue[Message]] = []
        self._outbox: queue.SimpleQueue[tuple[int, list[Report] | BaseException]]
        self._outbox = queue.SimpleQueue()
        self._threads = []
        for index in range(self.workers):
            self._inboxes.append(queue.SimpleQueue())
            thread = threading.Thread(target=self._serve, args=(plan, index), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, plan: SearchPlan, index: int) -> None:
        """Run a worker in a thread until the search ends."""
        try:
            worker = Worker(plan, self.board, index)
            search = self._search
            while self.board.cells[STOP] < search:
                if not worker.busy or not self._inboxes[index].empty():
                    tasks = self._inboxes[index].get()
                    if tasks is None:
                        break
                    worker.add(tasks)
                if reports := worker.step():
                    self._outbox.put((index, reports))
                    worker.publish()
            self._outbox.put((index, worker.stop()))
        except BaseException as error:
            self._outbox.put((index, error))

    def submit(self, worker: int, tasks: list[tuple[int, SearchTask]]) -> None:
        """Send tasks to a worker."""
        self._inboxes[worker].put(tasks)

    def wait(self, seconds: float) -> list[Event]:
        """Return the events that have come from the workers."""
        events: list[Event] = []
        try:
            index, content = self._outbox.get(timeout=seconds)
            while True:
                if isinstance(content, BaseException):
                    raise content
                events.append(Event(index, content))
                index, content = self._outbox.get_nowait()
        except queue.Empty:
            return events

    def stop(self) -> list[Event]:
        """End the search; wait for the current nodes, since threads cannot be killed."""
        self.board.cells[STOP] = self._search
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()
        events: list[Event] = []
        while not self._outbox.empty():
            index, content = self._outbox.get()
            if not isinstance(content, BaseException):
                events.append(Event(index, content))
        return events

    def close(self) -> None:
        """Do nothing: the threads have ended with the search."""

    def memory(self) -> int:
        """Return the bytes of memory of this process."""
        return resident()
