"""The plan of a search, which all its workers share."""

import math
import pickle
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

from collir.search.core.best_first import BestFirst
from collir.search.core.board import Board
from collir.search.core.coordination import Coordination, Ordered, Sequential
from collir.search.core.dominance import Labels
from collir.search.core.explore import DepthFirst, Explorer
from collir.search.core.goals import BestSolutions, Fold, Folding, Goal, TargetSolution
from collir.search.core.problem import Kernel, Kind, Number, Problem, SearchError, overrides

Order = Literal["depth-first", "best-first"]
ORDERS: tuple[Order, ...] = ("depth-first", "best-first")


@dataclass(frozen=True)
class SearchPlan:
    """A search: the problem, the goal, and the strategy.

    Attributes:
        known: the rank of a value known in advance; only better solutions are searched for.
        target: the objective that a decision must reach.
        every: seconds after which a running task is reported, so that little work is lost with a
            worker; None: a task is reported when it ends.
        slice: nodes visited between two looks at the clock; None: about 2 ms of them.
        most: the maximum number of nodes that one worker visits.
    """

    problem: Problem[Any]
    kind: Kind
    order: Order = "depth-first"
    coordination: Coordination = field(default_factory=Sequential)
    k: int = 1
    known: Number = math.inf
    target: Number | None = None
    fold: Fold[Any] | None = None
    depth_limit: int | None = None
    profile: bool = False
    every: float | None = None
    slice: int | None = None
    most: float = math.inf

    def goal(self) -> Goal:
        """Return a new goal for a worker."""
        if self.kind == "decide":
            assert self.target is not None
            return TargetSolution(self.problem, self.target)
        if self.kind == "enumerate":
            assert self.fold is not None
            return Folding(self.problem, self.fold)
        return BestSolutions(self.problem, self.k, self.known)

    def kernel(self) -> Kernel[Any] | None:
        """Return the problem's compiled search, if it has one for this kind of search."""
        if self.k > 1 or self.depth_limit is not None or self.order != "depth-first":
            return None
        return self.problem.kernel(self.kind, self.fold)

    def explorer(self, goal: Goal, board: Board, kernel: Kernel[Any] | None) -> Explorer:
        """Return a new search of tasks for a worker."""
        labels = None
        if self.kind != "enumerate" and self.problem.dominance and overrides(self.problem, "key"):
            labels = Labels(self.problem, self.k, with_depth=self.depth_limit is not None)
        if self.order == "best-first":
            return BestFirst(self.problem, goal, board, labels, self.depth_limit, self.profile)
        return DepthFirst(self.problem, goal, board, labels, kernel, self.depth_limit, self.profile)

    @property
    def counts(self) -> bool:
        """Return whether searching a node twice, after the loss of a worker, changes the answer.

        The single best solution does not change; then a report that gives nodes away need not list
        the rest of the task.
        """
        return self.kind == "enumerate" or self.k > 1

    @property
    def ordered(self) -> bool:
        """Return whether the place of a solution in the search decides between equal solutions."""
        return isinstance(self.coordination, Ordered)

    def packed(self) -> bytes:
        """Return the plan as bytes for other processes.

        Raises:
            SearchError: the problem or the fold cannot be pickled.
        """
        return self._pickled(self)

    def packed_fold(self) -> bytes:
        """Return the fold as bytes; a resumed search must have the same."""
        return self._pickled(self.fold)

    def identity(self) -> Hashable:
        """Return the identity of the problem; a resumed search must have the same."""
        named = self.problem.identity()
        return (
            self._pickled(self.problem) if named is None else (type(self.problem).__name__, named)
        )

    def _pickled(self, what: object) -> bytes:
        try:
            return pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            what = type(self.problem).__name__
            raise SearchError(
                f"{what} cannot be sent to other processes: {error}; define it at the top of a "
                "module and keep open files, locks and lambdas out of it, or use workers=1"
            ) from error
