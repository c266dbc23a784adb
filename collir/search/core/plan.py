"""What all workers of one search know."""

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
from collir.search.core.goals import Best, Fold, Folding, Goal, Reach
from collir.search.core.problem import Kernel, Kind, Number, Problem, SearchError, has

Order = Literal["depth-first", "best-first"]
ORDERS: tuple[Order, ...] = ("depth-first", "best-first")


@dataclass(frozen=True)
class Plan:
    """A search: the problem, what is looked for, and how.

    Attributes:
        known: the rank of a value known before: only better solutions are looked for.
        target: the objective that decides.
        every: seconds after which a task that goes on is reported, so that little is lost; None:
            only when it ends.
        slice: nodes visited between two looks at the clock, None: as many as take about 2 ms.
        most: nodes that one worker visits at most.
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
        """What a worker looks for."""
        if self.kind == "decide":
            assert self.target is not None
            return Reach(self.problem, self.target)
        if self.kind == "enumerate":
            assert self.fold is not None
            return Folding(self.problem, self.fold)
        return Best(self.problem, self.k, self.known)

    def kernel(self) -> Kernel[Any] | None:
        """The problem's compiled search, if it has one for this."""
        if self.k > 1 or self.depth_limit is not None or self.order != "depth-first":
            return None
        return self.problem.kernel(self.kind, self.fold)

    def explorer(self, goal: Goal, board: Board, kernel: Kernel[Any] | None) -> Explorer:
        """How a worker goes through a task."""
        labels = None
        if self.kind != "enumerate" and self.problem.dominance and has(self.problem, "key"):
            labels = Labels(self.problem, self.k, with_depth=self.depth_limit is not None)
        if self.order == "best-first":
            return BestFirst(self.problem, goal, board, labels, self.depth_limit, self.profile)
        return DepthFirst(self.problem, goal, board, labels, kernel, self.depth_limit, self.profile)

    @property
    def counts(self) -> bool:
        """Whether a node that is searched twice, when a worker is lost, would spoil the answer.

        One that is does no harm to the best solution: then what is left of a task need not be said
        each time that parts of it are given away.
        """
        return self.kind == "enumerate" or self.k > 1

    @property
    def ordered(self) -> bool:
        """Whether the place of a solution in the search decides between equal ones."""
        return isinstance(self.coordination, Ordered)

    def packed(self) -> bytes:
        """The plan as bytes, for other processes.

        Raises:
            SearchError: the problem or the fold cannot be pickled.
        """
        return self._pickled(self)

    def packed_fold(self) -> bytes:
        """The fold as bytes, by which a later search is known to compute the same."""
        return self._pickled(self.fold)

    def identity(self) -> Hashable:
        """What a later search is known by to be of the same problem."""
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
