"""What is passed between who divides a search and who does it: tasks and reports.

A task is nodes that nobody has visited yet: their bounds and objectives are looked at by whoever
runs the task, exactly as if he had generated them. So the root of a task is a node like all others.
"""

import math
import traceback
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from collir.search.core.problem import Number, SearchError


class Task(NamedTuple):
    """Nodes still to be visited, with all that lies below them.

    ``levels[i]`` are nodes at depth ``depth + i``; the deepest ones are visited first, those of one
    level in their order. ``order`` is the task's place among all, where the coordination keeps one,
    and ``known`` then the rank of what was found in earlier places: nothing as dear is needed.
    """

    depth: int
    levels: tuple[list[Any], ...]
    order: int = 0
    known: Number = math.inf

    @property
    def size(self) -> int:
        """The number of its nodes."""
        return sum(map(len, self.levels))

    def pieces(self) -> "list[Task]":
        """A task for each node, the deepest first."""
        return [
            Task(self.depth + i, ([node],), self.order)
            for i in reversed(range(len(self.levels)))
            for node in self.levels[i]
        ]


class Found(NamedTuple):
    """A solution: what it is worth (small is good), its place where an order is kept, its node."""

    rank: Number
    order: int
    node: Any


@dataclass
class Counts:
    """What was done, as sums."""

    nodes: int = 0
    """Nodes visited: neither pruned nor dominated."""
    pruned: int = 0
    """Nodes whose bound was no better than what was known (a sorted level counts as one)."""
    dominated: int = 0
    """Nodes whose state had been reached at no greater cost."""
    backtracks: int = 0
    """Nodes whose children were all seen to (depth first: with all below them)."""
    deepest: int = 0
    """The greatest depth of a visited node; the root has depth 0."""

    def add(self, other: "Counts") -> None:
        """Adds what another has done."""
        self.nodes += other.nodes
        self.pruned += other.pruned
        self.dominated += other.dominated
        self.backtracks += other.backtracks
        self.deepest = max(self.deepest, other.deepest)


@dataclass
class Profile:
    """What was done at each depth: lists indexed by it. Their sums are the ``Counts``."""

    nodes: list[int] = field(default_factory=list[int])
    pruned: list[int] = field(default_factory=list[int])
    dominated: list[int] = field(default_factory=list[int])
    backtracks: list[int] = field(default_factory=list[int])
    tasks: list[tuple[int, float, int]] = field(default_factory=list[tuple[int, float, int]])
    """Of each finished task: the depth of its root, its run time in seconds, its nodes."""

    def count(self, what: list[int], depth: int, number: int = 1) -> None:
        """Adds to one of the lists."""
        if depth >= len(what):
            what.extend([0] * (depth + 1 - len(what)))
        what[depth] += number

    def add(self, other: "Profile") -> None:
        """Adds what another has done."""
        for name in ("nodes", "pruned", "dominated", "backtracks"):
            for depth, number in enumerate(getattr(other, name)):
                self.count(getattr(self, name), depth, number)
        self.tasks += other.tasks


State = Literal["running", "done", "returned", "failed"]


class WorkerError(SearchError):
    """What went wrong in another process; the message has the text of the exception there."""


def described(error: BaseException, who: str = "a worker") -> str:
    """Return the text of an exception for another process."""
    if isinstance(error, SearchError):
        return str(error)
    lines = "".join(traceback.format_exception(error))
    return f"{who} raised {type(error).__name__}: {error}\n{lines}"


@dataclass
class Report:
    """What a worker has done of a task since its last report of it.

    ``found`` and ``total`` are solutions and what an enumeration adds; ``given`` are nodes (with
    their depths) that become tasks of their own; ``kept``, if given, is what the worker is still to
    do: with it a lost worker's task is searched again. The state ``returned`` gives back all of
    ``kept`` or, if that is None, the whole task. The state ``failed`` says that ``error`` was
    raised: of what was done since the last report, only solutions are told.
    """

    ident: int
    state: State
    found: list[Found] = field(default_factory=list[Found])
    total: Any = None
    given: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])
    kept: Task | None = None
    counts: Counts = field(default_factory=Counts)
    profile: Profile | None = None
    seconds: float = 0.0
    error: Exception | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pack the report for another process: the text of an exception that is not ours."""
        error = None if self.error is None else WorkerError(described(self.error))
        return {**self.__dict__, "error": error}
