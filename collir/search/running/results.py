"""The outcomes of searches."""

import math
import reprlib
from dataclasses import dataclass, field
from typing import Any, Generic, Literal

from collir.search.core.goals import Total
from collir.search.core.problem import Node, Number
from collir.search.core.tasks import SearchProfile

Status = Literal["optimal", "feasible", "infeasible", "complete", "interrupted"]
"""optimal: proven to be best. feasible: there is a solution (of a decision: it reaches the target),
and a better one is not excluded. infeasible: proven to have no solution. complete: all nodes were
counted. interrupted: a limit or a signal ended the search without an answer."""


@dataclass(frozen=True)
class Solution(Generic[Node]):
    """A node that is a solution, and its value."""

    value: Number
    node: Node
    shown: Any = None
    """The solution as ``Problem.show`` returns it."""


@dataclass
class Statistics:
    """Statistics of a search. Work that was lost with a worker is not counted.

    Attributes:
        nodes: nodes visited, neither pruned nor dominated.
        pruned: nodes whose bound was no better than a known solution; where children are sorted by
            their bounds, a pruned child stands for its later siblings.
        dominated: nodes whose state had been reached at no greater cost.
        backtracks: nodes whose children were all handled (depth first: subtrees searched).
        deepest: the greatest depth of a visited node; the root has depth 0.
        tasks: the number of tasks that the search was divided into.
        lost: the number of workers lost and replaced.
        seconds: wall clock time.
        engine: the name of the engine.
        workers: the number of workers.
        reason: why the search ended early, or "".
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


@dataclass(frozen=True, repr=False)
class SearchOutcome:
    """The outcome of a search; ``profile`` is None unless it was requested."""

    status: Status
    statistics: Statistics
    profile: SearchProfile | None

    def __repr__(self) -> str:
        counts = self.statistics
        parts = [self.status, *self._answer(), f"{counts.nodes} nodes in {counts.seconds:.2f} s"]
        return f"<{type(self).__name__}: {', '.join(parts)}>"

    def _answer(self) -> list[str]:
        """Return the answer in a few words."""
        return []


_SO_FAR = "collir_search_outcome"


def keep_outcome(error: BaseException, outcome: SearchOutcome) -> None:
    """Attach the outcome so far of a search to an exception that it raised."""
    setattr(error, _SO_FAR, outcome)


def so_far(error: BaseException) -> SearchOutcome | None:
    """Return the outcome so far of a search that raised an exception; None if it had not begun.

    On MPI, only rank 0 has the outcome.
    """
    return getattr(error, _SO_FAR, None)


@dataclass(frozen=True, repr=False)
class Optimum(SearchOutcome, Generic[Node]):
    """The best solutions.

    Attributes:
        solutions: the requested number of solutions or fewer, best first.
        bound: a value that no solution exceeds in quality; the best value if ``optimal``.
    """

    solutions: tuple[Solution[Node], ...] = ()
    bound: Number | None = None

    def _answer(self) -> list[str]:
        count = len(self.solutions)
        several = [f"the best of {count} solutions"] if count > 1 else []
        return [f"value {self.best.value}", *several] if self.best else []

    @property
    def best(self) -> Solution[Node] | None:
        """The best solution found."""
        return self.solutions[0] if self.solutions else None

    @property
    def gap(self) -> float | None:
        """The relative distance from the best solution to the bound: 0 if it is optimal.

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
        return max(gap, math.ulp(0.0))  # whole numbers may be greater than any float


@dataclass(frozen=True, repr=False)
class Decision(SearchOutcome, Generic[Node]):
    """The outcome of a decision: a solution that reaches the target, if there is one."""

    solution: Solution[Node] | None = None

    def _answer(self) -> list[str]:
        return [f"value {self.solution.value}"] if self.solution else []


@dataclass(frozen=True, repr=False)
class Enumeration(SearchOutcome, Generic[Total]):
    """The fold of all nodes, or of the nodes visited before an early end."""

    total: Total = field(default=None)  # pyright: ignore[reportAssignmentType]

    def _answer(self) -> list[str]:
        return [f"total {reprlib.repr(self.total)}"]
