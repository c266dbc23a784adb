"""The goals of a search: the best solutions, a solution that reaches a target, or a fold."""

import heapq
import math
from typing import Any, Generic, Protocol, TypeVar

from collir.search.core.board import cut_below
from collir.search.core.problem import Kind, Number, Problem, overrides, rank_of, sign
from collir.search.core.tasks import RankedSolution

Total = TypeVar("Total")


class Fold(Protocol[Total]):
    """A monoid over nodes: ``merge`` is associative and commutative, ``empty`` its unit."""

    def empty(self) -> Total:
        """Return the total of no nodes."""
        ...

    def add(self, total: Total, problem: Problem[Any], node: Any, depth: int) -> Total:
        """Return the total with one more node; ``total`` may be changed in place."""
        ...

    def merge(self, total: Total, other: Total) -> Total:
        """Return the sum of two totals; ``total`` may be changed in place."""
        ...


class Solutions(Fold[int]):
    """The number of nodes that are solutions (have an objective)."""

    def empty(self) -> int:
        return 0

    def add(self, total: int, problem: Problem[Any], node: Any, depth: int) -> int:
        return total if problem.objective(node) is None else total + 1

    def merge(self, total: int, other: int) -> int:
        return total + other


class Nodes(Fold[int]):
    """The number of nodes, including the root."""

    def empty(self) -> int:
        return 0

    def add(self, total: int, problem: Problem[Any], node: Any, depth: int) -> int:
        return total + 1

    def merge(self, total: int, other: int) -> int:
        return total + other


class NodesByDepth(Fold[list[int]]):
    """The number of nodes at each depth; the root is alone at depth 0."""

    def empty(self) -> list[int]:
        return []

    def add(self, total: list[int], problem: Problem[Any], node: Any, depth: int) -> list[int]:
        if depth >= len(total):
            total.extend([0] * (depth + 1 - len(total)))
        total[depth] += 1
        return total

    def merge(self, total: list[int], other: list[int]) -> list[int]:
        longer, shorter = (total, other) if len(total) >= len(other) else (other, total)
        for depth, number in enumerate(shorter):
            longer[depth] += number
        return longer


class Collect(Fold[list[Any]]):
    """A list of all solutions, as ``show`` returns them, in no specified order."""

    def empty(self) -> list[Any]:
        return []

    def add(self, total: list[Any], problem: Problem[Any], node: Any, depth: int) -> list[Any]:
        if problem.objective(node) is not None:
            total.append(problem.show(node))
        return total

    def merge(self, total: list[Any], other: list[Any]) -> list[Any]:
        total += other
        return total


class Goal(Protocol):
    """The result that a worker computes from the nodes it visits.

    Attributes:
        kind: the kind of search.
        threshold: nodes whose bounds have this rank or a later one are pruned.
        solutions: the solutions since the last report.
        order: the place of the next solution in the order of the search.
    """

    kind: Kind
    threshold: Number
    solutions: list[RankedSolution]
    order: int

    def visit(self, node: Any, depth: int) -> bool:
        """Process a node; return whether other workers should learn of the result."""
        ...

    def offer(self, rank: Number, node: Any) -> bool:
        """Process a solution that a kernel has found; return the same as ``visit``."""
        ...

    def merge(self, total: Any) -> None:
        """Add the total of a kernel."""
        ...

    def take(self) -> Any:
        """Return the total since the last call and start again; None if this is no fold."""
        ...

    def cut(self) -> float:
        """Return the greatest rank still needed, by the solutions that this worker has found."""
        ...


class _NoFold:
    """The methods for totals of a goal that is no fold."""

    def merge(self, total: Any) -> None:
        """Do nothing."""

    def take(self) -> Any:
        """Return None: there is no total."""
        return None


class BestSolutions(_NoFold):
    """The ``k`` best solutions, or those better than a value known before."""

    kind: Kind = "optimise"

    def __init__(self, problem: Problem[Any], k: int = 1, known: Number = math.inf):
        self._problem = problem
        self._objective = problem.objective
        self._k = k
        self._ranks: list[Number] = []  # of the k best found here, negated: a heap
        self._sign = sign(problem)
        self.threshold: Number = known
        self.solutions: list[RankedSolution] = []
        self.order = 0

    def visit(self, node: Any, depth: int) -> bool:
        """Keep a solution that is among the best; return whether it is."""
        value = self._objective(node)
        if value is None:
            return False
        kind = type(value)
        if (kind is int or kind is float) and self._sign * value >= self.threshold:
            return False
        return self.offer(rank_of(self._problem, "objective", value, node), node)

    def offer(self, rank: Number, node: Any) -> bool:
        """Keep a solution that is among the best; return whether it is."""
        if rank >= self.threshold:
            return False
        self.solutions.append(RankedSolution(rank, self.order, node))
        if self._k == 1:
            self.threshold = rank
            return True
        heapq.heappush(self._ranks, -rank)
        if len(self._ranks) > self._k:
            heapq.heappop(self._ranks)
        if len(self._ranks) == self._k:
            self.threshold = min(self.threshold, -self._ranks[0])
        return True

    def cut(self) -> float:
        """Return the greatest rank that is better than the worst of the ``k`` best found here."""
        return cut_below(self.threshold)


class TargetSolution(_NoFold):
    """A solution at least as good as a target."""

    kind: Kind = "decide"

    def __init__(self, problem: Problem[Any], target: Number):
        self._problem = problem
        self._target = rank_of(problem, "target", target, problem.root())
        self.threshold: Number = math.inf
        self.solutions: list[RankedSolution] = []
        self.order = 0

    def visit(self, node: Any, depth: int) -> bool:
        """Keep a solution that reaches the target; return whether it does."""
        value = self._problem.objective(node)
        return value is not None and self.offer(
            rank_of(self._problem, "objective", value, node), node
        )

    def offer(self, rank: Number, node: Any) -> bool:
        """Keep a solution that reaches the target; return whether it does."""
        if rank > self._target:
            return False
        self.solutions.append(RankedSolution(rank, self.order, node))
        return True

    def cut(self) -> float:
        """Return infinity: the coordinator sets the cut to the target, and no solution moves it."""
        return math.inf


class Folding(Generic[Total]):
    """The fold of all nodes."""

    kind: Kind = "enumerate"

    def __init__(self, problem: Problem[Any], fold: Fold[Total]):
        self._problem = problem
        self._fold = fold
        self._add = fold.add
        self.total: Total = fold.empty()
        self.threshold: Number = math.inf
        self.solutions: list[RankedSolution] = []
        self.order = 0

    def visit(self, node: Any, depth: int) -> bool:
        """Add a node to the total."""
        self.total = self._add(self.total, self._problem, node, depth)
        return False

    def merge(self, total: Total) -> None:
        """Add the total of a kernel."""
        self.total = self._fold.merge(self.total, total)

    def take(self) -> Total:
        """Return the total since the last call and start again."""
        total, self.total = self.total, self._fold.empty()
        return total

    def offer(self, rank: Number, node: Any) -> bool:
        """Ignore a solution: a fold needs none."""
        return False

    def cut(self) -> float:
        """Return infinity: all nodes are needed."""
        return math.inf


def prunes(problem: Problem[Any], kind: Kind) -> bool:
    """Return whether a search of this kind uses the problem's bound."""
    return kind != "enumerate" and overrides(problem, "bound")
