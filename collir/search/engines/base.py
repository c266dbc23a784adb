"""The interface between the coordinator and an engine."""

from dataclasses import dataclass, field
from typing import Protocol

from collir.search.core.board import Board
from collir.search.core.plan import SearchPlan
from collir.search.core.tasks import Report, SearchTask


@dataclass
class Event:
    """News from a worker: its reports in order, or its loss together with all its tasks."""

    worker: int
    reports: list[Report] = field(default_factory=list[Report])
    lost: str | None = None
    """The reason, if the worker is lost and another has taken its place."""


class SearchEngine(Protocol):
    """A set of workers and the connections to them.

    Attributes:
        workers: the number of workers.
        board: the cells that all workers share.
        durable: whether a search survives the loss of a worker: workers then report what is left of
            a long task.
    """

    workers: int
    board: Board
    durable: bool

    def start(self, plan: SearchPlan) -> None:
        """Prepare the workers for a search."""
        ...

    def submit(self, worker: int, tasks: list[tuple[int, SearchTask]]) -> None:
        """Send tasks to a worker, each with the number by which reports name it."""
        ...

    def wait(self, seconds: float) -> list[Event]:
        """Return the events that have come, waiting up to ``seconds`` for the first."""
        ...

    def stop(self) -> list[Event]:
        """End the search; return the last events, with the rest of the tasks."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...

    def memory(self) -> int:
        """Return the bytes of memory that this process and the workers hold."""
        ...
