"""Problems for tests of searches: random trees and graphs, and trees that misbehave."""

import math
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from hypothesis import strategies as st

from collir.search import Optimum, Options, optimise
from collir.search.core.problem import Number, Problem, Sense

BIG = 2**53
"""The number from which on integers lie closer to each other than floats."""

AROUND = list(range(BIG - 2, BIG + 7))
"""Integers around ``BIG``."""


class Tree(Problem[int]):
    """An explicit tree; nodes are numbers, and the parent of a node has a smaller number.

    Args:
        parents: the parents of the nodes 1, 2, ...
        values: the objective of each node.
    """

    def __init__(self, parents: list[int], values: list[Number | None], sense: Sense = "max"):
        self.sense = sense
        self.values = values
        self.below: list[list[int]] = [[] for _ in values]
        self.depths = [0]
        for node, parent in enumerate(parents, 1):
            self.below[parent].append(node)
            self.depths.append(self.depths[parent] + 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.below}, {self.values}, {self.sense})"

    def root(self) -> int:
        return 0

    def children(self, node: int) -> Iterator[int]:
        yield from self.below[node]

    def objective(self, node: int) -> Number | None:
        return self.values[node]


class BoundedTree(Tree):
    """A tree with bounds.

    Args:
        slack: the distance of each node's bound from the best value; None for an infinite bound.
        ordered: True if children are in the order of their bounds.
    """

    def __init__(
        self,
        parents: list[int],
        values: list[Number | None],
        sense: Sense,
        slack: Sequence[Number | None],
        ordered: bool,
    ):
        super().__init__(parents, values, sense)
        self.sorted_by_bound = ordered
        up = 1 if sense == "max" else -1
        best: list[Number] = [-math.inf if value is None else up * value for value in values]
        for node in reversed(range(1, len(values))):
            best[parents[node - 1]] = max(best[parents[node - 1]], best[node])
        self.bounds: list[Number] = []
        for node, more in enumerate(slack):
            nothing = more is None or best[node] == -math.inf
            self.bounds.append(up * (math.inf if nothing else best[node] + (more or 0)))
        if ordered:
            for level in self.below:
                level.sort(key=lambda node: -up * self.bounds[node])

    def bound(self, node: int) -> Number:
        return self.bounds[node]


VALUES: list[st.SearchStrategy[Number]] = [
    st.integers(-3, 3),
    st.integers(0, 1000),
    st.floats(-5, 5, width=16),
    st.sampled_from(AROUND),
    st.sampled_from([-value for value in AROUND]),
    st.sampled_from([10**400, 10**400 + 1, -(10**400), 0]),
    st.one_of(st.integers(-2, 2), st.sampled_from([-0.5, 0.5, 1.5, float(BIG), BIG + 1])),
]


@st.composite
def trees(draw: st.DrawFn, most: int = 24) -> Tree:
    """Draw a random tree, with or without bounds."""
    size = draw(st.integers(1, most))
    parents = [
        draw(st.integers(max(0, i - draw(st.sampled_from([1, 4, 99]))), i)) for i in range(size - 1)
    ]
    value = draw(st.sampled_from(VALUES))
    solutions = st.one_of(st.none(), value) if draw(st.booleans()) else value
    values = draw(st.lists(solutions, min_size=size, max_size=size))
    sense: Sense = draw(st.sampled_from(["min", "max"]))
    if draw(st.integers(0, 3)) == 0:
        return Tree(parents, values, sense)
    slack = draw(st.lists(st.sampled_from([0, 0, 1, 2, None]), min_size=size, max_size=size))
    return BoundedTree(parents, values, sense, slack, draw(st.booleans()))


class Walk(NamedTuple):
    """A walk that ends at a vertex."""

    vertex: int
    cost: tuple[int, ...]
    length: int


Edges = dict[int, list[tuple[int, tuple[int, ...]]]]


class Walks(Problem[Walk]):
    """Walks from vertex 0 to the goal, whose largest cost is minimised.

    If the graph has a cycle, the tree of walks is infinite: only the keys end the search.
    """

    sense = "min"

    def __init__(self, edges: Edges, goal: int, costs: int = 1):
        self.edges, self.goal, self.costs = edges, goal, costs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.edges}, {self.goal}, {self.costs})"

    def root(self) -> Walk:
        return Walk(0, (0,) * self.costs, 0)

    def children(self, node: Walk) -> Iterator[Walk]:
        for vertex, cost in self.edges.get(node.vertex, ()):
            total = tuple(a + b for a, b in zip(node.cost, cost, strict=True))
            yield Walk(vertex, total, node.length + 1)

    def objective(self, node: Walk) -> int | None:
        return max(node.cost) if node.vertex == self.goal else None

    def key(self, node: Walk) -> int:
        return node.vertex

    def cost(self, node: Walk) -> int | tuple[int, ...]:
        return node.cost if self.costs > 1 else node.cost[0]


class BoundedWalks(Walks):
    """Walks with the cost so far as a bound."""

    def bound(self, node: Walk) -> int:
        return max(node.cost)


class SlowWalks(Walks):
    """Walks that take some milliseconds to continue from a vertex."""

    def children(self, node: Walk) -> Iterator[Walk]:
        time.sleep(0.003)
        return super().children(node)


@st.composite
def walks(draw: st.DrawFn, costs: int = 1) -> Walks:
    """Draw a random graph of a few vertices, with cycles, some of which cost nothing."""
    size = draw(st.integers(1, 6))
    vertex = st.integers(0, size - 1)
    weight = st.tuples(*[st.integers(0, 4)] * costs)
    edges: Edges = {}
    for source, target, cost in draw(st.lists(st.tuples(vertex, vertex, weight), max_size=14)):
        edges.setdefault(source, []).append((target, cost))
    kind = draw(st.sampled_from([Walks, BoundedWalks]))
    return kind(edges, draw(vertex), costs)


def shortest(problem: Walks, k: int = 1, length: int | None = None) -> list[int]:
    """Return the costs of the ``k`` shortest walks of at most ``length`` edges, by dynamic
    programming."""
    vertices = {0, problem.goal, *problem.edges}
    vertices |= {target for edges in problem.edges.values() for target, _ in edges}
    best: dict[int, list[int]] = {vertex: [] for vertex in vertices}
    best[0] = [0]
    for _ in range(len(vertices) * k if length is None else length):
        longer: dict[int, list[int]] = {vertex: [] for vertex in vertices}
        longer[0] = [0]
        for vertex, edges in problem.edges.items():
            for target, cost in edges:
                longer[target] += [before + cost[0] for before in best[vertex]]
        best = {vertex: sorted(costs)[:k] for vertex, costs in longer.items()}
    return best[problem.goal]


def least(problem: Walks, cap: int = 40) -> int | None:
    """Return the optimum of a problem of walks, by visiting all states of costs up to ``cap``."""
    todo = [problem.root()]
    seen = {todo[0][:2]}
    best: int | None = None
    while todo:
        walk = todo.pop()
        if (value := problem.objective(walk)) is not None and (best is None or value < best):
            best = value
        for longer in problem.children(walk):
            if longer[:2] not in seen and max(longer.cost) <= cap:
                seen.add(longer[:2])
                todo.append(longer)
    return best


class Heap(Problem[int]):
    """A full tree of ``size`` nodes, 0 to ``size`` - 1, each with up to ``arity`` children.

    Args:
        seconds: the time to expand a node.
    """

    def __init__(self, size: int, arity: int = 2, seconds: float = 0.0):
        self.size, self.arity, self.seconds = size, arity, seconds

    def root(self) -> int:
        return 0

    def children(self, node: int) -> Iterable[int]:
        if self.seconds:
            time.sleep(self.seconds)
        first = node * self.arity + 1
        return range(first, min(first + self.arity, self.size))

    def objective(self, node: int) -> int:
        return node * 7919 % 1009

    def bound(self, node: int) -> int:
        return 2000

    def most(self, k: int = 1) -> list[int]:
        """Return the ``k`` best values."""
        return sorted((node * 7919 % 1009 for node in range(self.size)), reverse=True)[:k]


class Deadly(Heap):
    """A tree with nodes that kill the process which expands them, except the process that made it.

    Args:
        nodes: the nodes that kill.
        folder: the folder that records which nodes have killed, so that each kills only once; None
            if they kill every time.
    """

    def __init__(
        self,
        size: int,
        nodes: Iterable[int],
        folder: Path | None,
        arity: int = 2,
        seconds: float = 0.0,
    ):
        super().__init__(size, arity, seconds)
        self.nodes, self.folder, self.parent = frozenset(nodes), folder, os.getpid()

    def children(self, node: int) -> Iterable[int]:
        if node in self.nodes and os.getpid() != self.parent and self._first(node):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().children(node)

    def _first(self, node: int) -> bool:
        if self.folder is None:
            return True
        try:
            (self.folder / str(node)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class Endless(Problem[tuple[int, int]]):
    """A tree that takes longer than any test, with ever better solutions and a distant bound.

    Args:
        folder: a folder in which each process that expands a node leaves a file named by its pid.
        padding: the number of extra bytes in each node.
    """

    def __init__(self, folder: Path | None = None, padding: int = 0):
        self.folder, self.padding = folder, padding

    def root(self) -> tuple[int, int]:
        return (0, 0)

    def children(self, node: Any) -> Iterator[Any]:
        if self.folder is not None:
            (self.folder / str(os.getpid())).touch()
        depth, number = node[:2]
        if depth < 200:
            for i in range(2):
                child = (depth + 1, (number * 31 + i * 17) % 10007)
                yield (*child, bytes(self.padding)) if self.padding else child

    def objective(self, node: Any) -> int:
        return node[1]

    def bound(self, node: Any) -> int:
        return 20000


def seen_in_time(**options: Unpack[Options]) -> Optimum[Any]:
    """Return the outcome of the endless search at a limit of time in which it finds a solution."""
    options["time_limit"] = limit = 0.2
    while (outcome := optimise(Endless(), **options)).best is None:
        options["time_limit"] = limit = 4 * limit
    return outcome
