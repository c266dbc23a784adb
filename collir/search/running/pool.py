"""The pool of waiting tasks, and their order for each worker."""

import heapq
from collections.abc import Callable, Iterator

from collir.search.core.tasks import SearchTask

Priority = tuple[float, ...]
PoolEntry = tuple[float, ...]


class Pool:
    """Waiting tasks, by the numbers by which reports name them.

    A worker is given the deepest task that it made itself, the oldest of equal depth: it goes on
    where it was, and its solutions prune the waiting tasks. A worker without own tasks is given the
    task of the least rank; if ranks are depths, the task nearest the root, which is likely to be
    large (the workpool of YewPar).

    Args:
        rank: the priority of a task for a worker that has made none of the waiting tasks.
        by_maker: whether a worker is given its own tasks first.
    """

    def __init__(self, rank: Callable[[SearchTask], Priority], by_maker: bool):
        self._rank = rank
        self._by_maker = by_maker
        self._tasks: dict[int, SearchTask] = {}
        # Heaps whose entries end in the number of a task; entries of taken tasks may remain.
        self._all: list[PoolEntry] = []
        self._own: dict[int, list[PoolEntry]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[SearchTask]:
        return iter(self._tasks.values())

    def put(self, ident: int, task: SearchTask, maker: int | None = None) -> None:
        """Add a task; ``maker`` is the worker that made it."""
        self._tasks[ident] = task
        heapq.heappush(self._all, (*self._rank(task), ident))
        if self._by_maker and maker is not None:
            heapq.heappush(self._own.setdefault(maker, []), (-task.depth, ident))
        if len(self._all) > 64 + 4 * len(self._tasks):
            self._forget_taken()

    def first(self, worker: int) -> int:
        """Return the number of the task that a worker is given next."""
        for heap in (self._own.get(worker, []), self._all):
            while heap and heap[0][-1] not in self._tasks:
                heapq.heappop(heap)
            if heap:
                return int(heap[0][-1])
        raise LookupError("there is no task")

    def take(self, ident: int) -> SearchTask:
        """Remove and return a task."""
        return self._tasks.pop(ident)

    def keep(self, needed: Callable[[SearchTask], bool]) -> None:
        """Drop all tasks for which ``needed`` is false."""
        self._tasks = {ident: task for ident, task in self._tasks.items() if needed(task)}

    def _forget_taken(self) -> None:
        """Drop the heap entries of tasks that were taken."""
        for heap in (self._all, *self._own.values()):
            heap[:] = [entry for entry in heap if entry[-1] in self._tasks]
            heapq.heapify(heap)
