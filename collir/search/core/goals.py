"""What a worker looks for: solutions better than it knows, one that is good enough, or a fold."""

import heapq
import math
from typing import Any, Generic, Protocol, TypeVar

from collir.search.core.board import cut_below
from collir.search.core.problem import Kind, Number, Problem, has, rank_of, sign
from collir.search.core.tasks import Found

Total = TypeVar("Total")


class Fold(Protocol[Total]):
    """A monoid over nodes: ``merge`` is associative and commutative, ``empty`` its unit."""

    def empty(self) -> Total:
        """The total of no nodes."""
        ...

    def add(self, total: Total, problem: Problem[Any], node: Any, depth: int) -> Total:
        """The total with one node more; ``total`` may be changed in place."""
        ...

    def merge(self, total: Total, other: Total) -> Total:
        """The total of both; ``total`` may be changed in place."""
        ...


class Solutions(Fold[int]):
    """How many nodes are solutions (have an objective)."""

    def empty(self) -> int:
        return 0

    def add(self, total: int, problem: Problem[Any], node: Any, depth: int) -> int:
        return total if problem.objective(node) is None else total + 1

    def merge(self, total: int, other: int) -> int:
        return total + other


class Nodes(Fold[int]):
    """How many nodes there are, the root among them."""

    def empty(self) -> int:
        return 0

    def add(self, total: int, problem: Problem[Any], node: Any, depth: int) -> int:
        return total + 1

    def merge(self, total: int, other: int) -> int:
        return total + other


class NodesByDepth(Fold[list[int]]):
    """How many nodes there are at each depth, the root alone at depth 0."""

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
    """All solutions, as ``show`` gives them; in no order that can be relied on."""

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
    """What a worker does with each node that it visits.

    Attributes:
        kind: the kind of search.
        threshold: nodes whose bound has this rank or a greater one are not needed.
        found: the solutions since the last report.
        order: the place, in the order of the search, of what is found now.
    """

    kind: Kind
    threshold: Number
    found: list[Found]
    order: int

    def visit(self, node: Any, depth: int) -> bool:
        """Looks at a node; True if there is something that others should know."""
        ...

    def offer(self, rank: Number, node: Any) -> bool:
        """Takes a solution that a kernel has found; True as for ``visit``."""
        ...

    def merge(self, total: Any) -> None:
        """Adds what a kernel has folded."""
        ...

    def take(self) -> Any:
        """What was folded since the last time; None if this is no fold."""
        ...

    def cut(self) -> float:
        """The greatest rank still worth looking at, by what this worker has found."""
        ...


class _NoFold:
    """The part of a goal that is for folds, where there is none."""

    def merge(self, total: Any) -> None:
        """Nothing."""

    def take(self) -> Any:
        """Nothing."""
        return None


class Best(_NoFold):
    """The ``k`` best solutions, or those better than a value known before."""

    kind: Kind = "optimise"

    def __init__(self, problem: Problem[Any], k: int = 1, known: Number = math.inf):
        self._problem = problem
        self._objective = problem.objective
        self._k = k
        self._ranks: list[Number] = []  # of the k best found here, negated: a heap
        self._sign = sign(problem)
        self.threshold: Number = known
        self.found: list[Found] = []
        self.order = 0

    def visit(self, node: Any, depth: int) -> bool:
        """Keeps a solution that is among the best."""
        value = self._objective(node)
        if value is None:
            return False
        kind = type(value)
        if (kind is int or kind is float) and self._sign * value >= self.threshold:
            return False
        return self.offer(rank_of(self._problem, "objective", value, node), node)

    def offer(self, rank: Number, node: Any) -> bool:
        """Keeps a solution that is among the best."""
        if rank >= self.threshold:
            return False
        self.found.append(Found(rank, self.order, node))
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
        """Better than the worst of the ``k`` best found here."""
        return cut_below(self.threshold)


class Reach(_NoFold):
    """One solution that is as good as a target, or better."""

    kind: Kind = "decide"

    def __init__(self, problem: Problem[Any], target: Number):
        self._problem = problem
        self._target = rank_of(problem, "target", target, problem.root())
        self.threshold: Number = math.inf
        self.found: list[Found] = []
        self.order = 0

    def visit(self, node: Any, depth: int) -> bool:
        """Keeps a solution that reaches the target."""
        value = self._problem.objective(node)
        return value is not None and self.offer(
            rank_of(self._problem, "objective", value, node), node
        )

    def offer(self, rank: Number, node: Any) -> bool:
        """Keeps a solution that reaches the target."""
        if rank > self._target:
            return False
        self.found.append(Found(rank, self.order, node))
        return True

    def cut(self) -> float:
        """The cut is the target, from the beginning: nothing found moves it."""
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
        self.found: list[Found] = []
        self.order = 0

    def visit(self, node: Any, depth: int) -> bool:
        """Adds a node."""
        self.total = self._add(self.total, self._problem, node, depth)
        return False

    def merge(self, total: Total) -> None:
        """Adds what a kernel has folded."""
        self.total = self._fold.merge(self.total, total)

    def take(self) -> Total:
        """The total since the last time."""
        total, self.total = self.total, self._fold.empty()
        return total

    def offer(self, rank: Number, node: Any) -> bool:
        """There are no solutions to offer."""
        return False

    def cut(self) -> float:
        """All nodes are needed."""
        return math.inf


def prunes(problem: Problem[Any], kind: Kind) -> bool:
    """Whether a search of this kind uses the problem's bound."""
    return kind != "enumerate" and has(problem, "bound")
