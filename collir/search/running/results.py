"""What a search returns."""

import math
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from collir.search.core.problem import Node, Number
from collir.search.core.tasks import Profile

Total = TypeVar("Total")

Status = Literal["optimal", "feasible", "infeasible", "complete", "interrupted"]
"""optimal: proven to be best. feasible: there is a solution (when deciding, it reaches the target);
a better one is not excluded. infeasible: there is none, proven. complete: all nodes were counted.
interrupted: a limit or a signal ended the search before it knew."""


@dataclass(frozen=True)
class Solution(Generic[Node]):
    """A node that is a solution, and what it is worth."""

    value: Number
    node: Node
    shown: Any = None
    """The solution as ``Problem.show`` gives it."""


@dataclass
class Statistics:
    """What a search took. Work that was lost with a worker is not counted.

    Attributes:
        nodes: visited, neither pruned nor dominated.
        pruned: whose bound was no better than what was known; where children are sorted by their
            bounds and one is pruned, it stands for its later siblings.
        dominated: whose state had been reached at no greater cost.
        backtracks: nodes whose children were all seen to (depth first: with all below them).
        deepest: the greatest depth of a visited node; the root has depth 0.
        tasks: parts the search was divided into.
        lost: workers lost and replaced.
        seconds: of wall clock time.
        engine: where it ran.
        workers: how many took part.
        reason: why it ended early, or "".
    """

    nodes: int = 0
    pruned: int = 0
    dominated: int = 0
    backtracks: int = 0
    deepest: int = 0
    tasks: int = 0
    lost: int = 0
    seconds: float = 0.0
    engine: str = ""
    workers: int = 1
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a search ended.

    ``profile`` is there if it was asked for.
    """

    status: Status
    statistics: Statistics
    profile: Profile | None


_SO_FAR = "collir_search_outcome"


def keep_outcome(error: BaseException, outcome: Outcome) -> None:
    """Keep with an exception what a search had found when it was raised."""
    setattr(error, _SO_FAR, outcome)


def so_far(error: BaseException) -> Outcome | None:
    """Return what a search had found when it raised an exception; None if it had not begun.

    On MPI, rank 0 has it.
    """
    return getattr(error, _SO_FAR, None)


@dataclass(frozen=True)
class Optimum(Outcome, Generic[Node]):
    """The best solutions.

    Attributes:
        solutions: best first; as many as were asked for, or as there are.
        bound: no solution is better than this: the value of the best one if ``optimal``.
    """

    solutions: tuple[Solution[Node], ...] = ()
    bound: Number | None = None

    @property
    def best(self) -> Solution[Node] | None:
        """The best solution found."""
        return self.solutions[0] if self.solutions else None

    @property
    def gap(self) -> float | None:
        """How far the optimum may be from the best solution, relative to it: 0 if it is optimal.

        None if no solution or no bound is known.
        """
        if self.best is None or self.bound is None or self.bound in (math.inf, -math.inf):
            return None
        if self.best.value == self.bound:
            return 0.0
        try:
            gap = abs(self.best.value - self.bound) / abs(self.best.value)
        except (ZeroDivisionError, OverflowError):
            return math.inf
        return max(gap, math.ulp(0.0))  # of whole numbers that are greater than any float


@dataclass(frozen=True)
class Decision(Outcome, Generic[Node]):
    """Whether there is a solution that reaches the target, and one."""

    solution: Solution[Node] | None = None


@dataclass(frozen=True)
class Enumeration(Outcome, Generic[Total]):
    """The fold of all nodes; of those visited so far, if the search was ended early."""

    total: Total = field(default=None)  # pyright: ignore[reportAssignmentType]
