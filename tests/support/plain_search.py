"""Plain recursive searches that know only what a problem is: what every engine must agree with.

A node is counted when it is visited: the root, and each child whose bound does not rule it out. A
child ruled out is counted as pruned; where children come sorted by bound its later siblings are not
looked at. States reached again (``key``) are searched again.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from collir.search.core.problem import Number, Problem


@dataclass
class Found:
    """What a search found, and what it took."""

    value: Number | None = None
    node: Any = None
    nodes: int = 0
    pruned: int = 0
    deepest: int = 0
    values: Counter[Number] = field(default_factory=Counter[Number])
    by_depth: Counter[int] = field(default_factory=Counter[int])

    def visit(self, depth: int) -> None:
        self.nodes += 1
        self.deepest = max(self.deepest, depth)
        self.by_depth[depth] += 1


class _Stop(Exception):
    """A node that reaches the target was found."""


def better(problem: Problem[Any], one: Number, other: Number) -> bool:
    """Whether an objective is truly better than another."""
    return one > other if problem.sense == "max" else one < other


def plain_optimise(problem: Problem[Any], known: Number | None = None) -> Found:
    """The first best node; with ``known``, the objective of a solution, only better ones."""
    found = Found(known)

    def needed(value: Number) -> bool:
        return found.value is None or better(problem, value, found.value)

    def visit(node: Any, depth: int) -> None:
        found.visit(depth)
        value = problem.objective(node)
        if value is not None and needed(value):
            found.value, found.node = value, node
        _below(problem, node, depth, found, needed, visit)

    _start(problem, found, needed, visit)
    return found


def plain_decide(problem: Problem[Any], target: Number | None = None) -> Found:
    """The first node whose objective is the target or better; ``node`` is None if none is."""
    found = Found()
    goal = problem.target if target is None else target
    assert goal is not None, "nothing to look for"

    def needed(value: Number) -> bool:
        return not better(problem, goal, value)

    def visit(node: Any, depth: int) -> None:
        found.visit(depth)
        value = problem.objective(node)
        if value is not None and needed(value):
            found.value, found.node = value, node
            raise _Stop
        _below(problem, node, depth, found, needed, visit)

    with suppress(_Stop):
        _start(problem, found, needed, visit)
    return found


def plain_enumerate(problem: Problem[Any]) -> Found:
    """All nodes: how many at each depth (``by_depth``), and of each objective (``values``)."""
    found = Found()

    def visit(node: Any, depth: int) -> None:
        found.visit(depth)
        value = problem.objective(node)
        if value is not None:
            found.values[value] += 1
        for child in problem.children(node):
            visit(child, depth + 1)

    visit(problem.root(), 0)
    return found


def _start(
    problem: Problem[Any],
    found: Found,
    needed: Callable[[Number], bool],
    visit: Callable[[Any, int], None],
) -> None:
    root = problem.root()
    if needed(problem.bound(root)):
        visit(root, 0)
    else:
        found.pruned += 1


def _below(
    problem: Problem[Any],
    node: Any,
    depth: int,
    found: Found,
    needed: Callable[[Number], bool],
    visit: Callable[[Any, int], None],
) -> None:
    for child in problem.children(node):
        if needed(problem.bound(child)):
            visit(child, depth + 1)
            continue
        found.pruned += 1
        if problem.sorted_by_bound:
            return
