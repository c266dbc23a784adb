"""Tasks and reports: the messages between the coordinator and the workers of a search.

A task is a list of unvisited nodes. The worker that runs the task asks for their bounds and
objectives, as if it had generated them itself: the root of a task is a node like any other.
"""

import math
import traceback
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from collir.search.core.problem import Number, SearchError


class SearchTask(NamedTuple):
    """Unvisited nodes, which stand for the subtrees below them.

    ``levels[i]`` are nodes at depth ``depth + i``; the deepest are visited first, and nodes of one
    level in their order. Where the coordination keeps an order, ``order`` is the task's place and
    ``known`` the rank of the solutions in earlier places: only smaller ranks are needed.
    """

    depth: int
    levels: tuple[list[Any], ...]
    order: int = 0
    known: Number = math.inf

    @property
    def size(self) -> int:
        """The number of its nodes."""
        return sum(map(len, self.levels))

    def pieces(self) -> "list[SearchTask]":
        """Return a task for each node, the deepest first."""
        return [
            SearchTask(self.depth + i, ([node],), self.order)
            for i in reversed(range(len(self.levels)))
            for node in self.levels[i]
        ]


class RankedSolution(NamedTuple):
    """A solution: its rank (small is good), its place where an order is kept, and its node."""

    rank: Number
    order: int
    node: Any


@dataclass
class Counts:
    """The number of nodes visited, pruned, dominated and completed."""

    nodes: int = 0
    """Nodes visited: neither pruned nor dominated."""
    pruned: int = 0
    """Nodes whose bound was no better than a known solution (a sorted level counts as one)."""
    dominated: int = 0
    """Nodes whose state had been reached at no greater cost."""
    backtracks: int = 0
    """Nodes whose children were all handled (depth first: whose subtrees were searched)."""
    deepest: int = 0
    """The greatest depth of a visited node; the root has depth 0."""

    def add(self, other: "Counts") -> None:
        """Add the numbers of another worker or report."""
        self.nodes += other.nodes
        self.pruned += other.pruned
        self.dominated += other.dominated
        self.backtracks += other.backtracks
        self.deepest = max(self.deepest, other.deepest)


@dataclass
class SearchProfile:
    """The ``Counts`` of each depth: lists indexed by depth."""

    nodes: list[int] = field(default_factory=list[int])
    pruned: list[int] = field(default_factory=list[int])
    dominated: list[int] = field(default_factory=list[int])
    backtracks: list[int] = field(default_factory=list[int])
    tasks: list[tuple[int, float, int]] = field(default_factory=list[tuple[int, float, int]])
    """For each finished task: the depth of its root, its run time in seconds, its nodes."""

    def count(self, what: list[int], depth: int, number: int = 1) -> None:
        """Add ``number`` to one of the lists at a depth."""
        if depth >= len(what):
            what.extend([0] * (depth + 1 - len(what)))
        what[depth] += number

    def add(self, other: "SearchProfile") -> None:
        """Add the numbers of another worker or report."""
        for name in ("nodes", "pruned", "dominated", "backtracks"):
            for depth, number in enumerate(getattr(other, name)):
                self.count(getattr(self, name), depth, number)
        self.tasks += other.tasks


ReportState = Literal["running", "done", "returned", "failed"]


class WorkerError(SearchError):
    """An error in another process; the message holds the text of the exception there."""


def exception_text(error: BaseException, who: str = "a worker") -> str:
    """Return the text of an exception for another process."""
    if isinstance(error, SearchError):
        return str(error)
    lines = "".join(traceback.format_exception(error))
    return f"{who} raised {type(error).__name__}: {error}\n{lines}"


@dataclass
class Report:
    """The work of a worker on a task since its last report of that task.

    ``total`` is the fold of an enumeration. ``given_away`` are nodes, as (depth, node), that become
    tasks of their own. ``kept``, if not None, is the part of the task that is left: if the worker
    is lost, that part is searched again. The state ``returned`` gives back ``kept`` or, if that is
    None, the whole task. The state ``failed`` says that ``error`` was raised: of the work since the
    last report, only solutions are reported.
    """

    ident: int
    state: ReportState
    solutions: list[RankedSolution] = field(default_factory=list[RankedSolution])
    total: Any = None
    given_away: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])
    kept: SearchTask | None = None
    counts: Counts = field(default_factory=Counts)
    profile: SearchProfile | None = None
    seconds: float = 0.0
    error: Exception | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pack the report for another process: the text of an exception that is not ours."""
        error = None if self.error is None else WorkerError(exception_text(self.error))
        return {**self.__dict__, "error": error}
