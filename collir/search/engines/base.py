"""What the coordinator asks of an engine."""

from dataclasses import dataclass, field
from typing import Protocol

from collir.search.core.board import Board
from collir.search.core.plan import Plan
from collir.search.core.tasks import Report, Task


@dataclass
class Event:
    """What has come from a worker: reports in their order; or that it is lost with all it had."""

    worker: int
    reports: list[Report] = field(default_factory=list[Report])
    lost: str | None = None
    """Why, if it is lost; another worker has taken its place."""


class Engine(Protocol):
    """Workers, and the way to them.

    Attributes:
        workers: how many there are.
        board: what all of them see.
        durable: whether workers can be lost, so that they must say what is left of a long task.
    """

    workers: int
    board: Board
    durable: bool

    def start(self, plan: Plan) -> None:
        """Makes the workers ready for a search."""
        ...

    def submit(self, worker: int, tasks: list[tuple[int, Task]]) -> None:
        """Gives tasks, with the numbers that reports name them by, to a worker."""
        ...

    def wait(self, seconds: float) -> list[Event]:
        """What has come, waiting up to so long for something."""
        ...

    def stop(self) -> list[Event]:
        """Ends the search: what was still done, and what is left of the tasks."""
        ...

    def close(self) -> None:
        """Lets the workers go; none is left behind."""
        ...

    def memory(self) -> int:
        """Bytes of memory that this process and the workers hold."""
        ...
