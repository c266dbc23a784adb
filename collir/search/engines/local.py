"""The engine in this process, without threads.

One worker makes a sequential search. Several workers, whose turns a seed decides, make a
reproducible test of how work is divided.
"""

import random
import time

from collir.search.core.board import Board
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import check_whole
from collir.search.core.tasks import SearchTask
from collir.search.core.worker import Worker
from collir.search.engines.base import Event
from collir.search.engines.memory import resident


class Local:
    """Workers that take turns in this process.

    Args:
        workers: the number of workers.
        seed: the seed of the turns of several workers.
        loss: the probability that a worker is lost at a turn, with all unreported work; for tests.
    """

    def __init__(self, workers: int = 1, seed: int = 0, loss: float = 0.0):
        check_whole("workers", workers, 1)
        self.workers = workers
        self.board = Board(workers)
        self.durable = loss > 0
        self._loss = loss
        self._random = random.Random(seed)

    def start(self, plan: SearchPlan) -> None:
        """Prepare the workers for a search."""
        self.board.reset()
        self._plan = plan
        self._crew = [Worker(plan, self.board, i) for i in range(self.workers)]

    def submit(self, worker: int, tasks: list[tuple[int, SearchTask]]) -> None:
        """Send tasks to a worker."""
        self._crew[worker].add(tasks)

    def wait(self, seconds: float) -> list[Event]:
        """Let workers take turns until one of them has something to report."""
        end = time.monotonic() + seconds
        while busy := [i for i, worker in enumerate(self._crew) if worker.busy]:
            index = busy[0] if len(busy) == 1 else self._random.choice(busy)
            worker = self._crew[index]
            reports = worker.step()
            if self._loss and self._random.random() < self._loss:
                self._crew[index] = Worker(self._plan, self.board, index)
                return [Event(index, lost="by chance")]
            if reports:
                worker.publish()
                return [Event(index, reports)]
            if time.monotonic() > end:
                break
        return []

    def stop(self) -> list[Event]:
        """End the search; return the last events."""
        return [Event(i, worker.stop()) for i, worker in enumerate(self._crew)]

    def close(self) -> None:
        """Do nothing: the engine holds no resources."""

    def memory(self) -> int:
        """Return the bytes of memory of this process."""
        return resident()
