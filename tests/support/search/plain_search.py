"""Plain recursive searches that know only the interface of a problem, as oracles for all engines.

A node is counted when it is visited: the root, and each child whose bound does not rule it out. A
child that is ruled out is counted as pruned; if children are sorted by bound, its later siblings
are not visited. States that are reached again (``key``) are searched again.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from collir.search.core.problem import Number, Problem


@dataclass
class Found:
    """The result of a search.

    Attributes:
        value, node: objective of the best node, and the node.
        nodes, pruned: numbers of nodes visited and pruned.
        deepest: largest depth of a visited node.
        values: number of nodes of each objective, for an enumeration.
        by_depth: number of visited nodes at each depth.
    """

    value: Number | None = None
    node: Any = None
    nodes: int = 0
    pruned: int = 0
    deepest: int = 0
    values: Counter[Number] = field(default_factory=Counter[Number])
    by_depth: Counter[int] = field(default_factory=Counter[int])

    def visit(self, depth: int) -> None:
        """Count a node."""
        self.nodes += 1
        self.deepest = max(self.deepest, depth)
        self.by_depth[depth] += 1


class _Stop(Exception):
    """A signal that a node reaches the target."""


def better(problem: Problem[Any], value: Number, than: Number) -> bool:
    """Return whether an objective is strictly better than another."""
    return value > than if problem.sense == "max" else value < than


def plain_optimise(problem: Problem[Any], known: Number | None = None) -> Found:
    """Return the first best node; only a better one than ``known``, the objective of a solution."""
    result = Found(known)

    def promising(value: Number) -> bool:
        return result.value is None or better(problem, value, result.value)

    def visit(node: Any, depth: int) -> None:
        result.visit(depth)
        value = problem.objective(node)
        if value is not None and promising(value):
            result.value, result.node = value, node
        _visit_children(problem, node, depth, result, promising, visit)

    _visit_root(problem, result, promising, visit)
    return result


def plain_decide(problem: Problem[Any], target: Number | None = None) -> Found:
    """Return the first node whose objective is the target or better; its ``node`` may be None."""
    result = Found()
    goal = problem.target if target is None else target
    assert goal is not None, "nothing to look for"

    def promising(value: Number) -> bool:
        return not better(problem, goal, value)

    def visit(node: Any, depth: int) -> None:
        result.visit(depth)
        value = problem.objective(node)
        if value is not None and promising(value):
            result.value, result.node = value, node
            raise _Stop
        _visit_children(problem, node, depth, result, promising, visit)

    with suppress(_Stop):
        _visit_root(problem, result, promising, visit)
    return result


def plain_enumerate(problem: Problem[Any]) -> Found:
    """Count all nodes by their depth (``by_depth``) and by their objective (``values``)."""
    result = Found()

    def visit(node: Any, depth: int) -> None:
        result.visit(depth)
        value = problem.objective(node)
        if value is not None:
            result.values[value] += 1
        for child in problem.children(node):
            visit(child, depth + 1)

    visit(problem.root(), 0)
    return result


def _visit_root(
    problem: Problem[Any],
    result: Found,
    promising: Callable[[Number], bool],
    visit: Callable[[Any, int], None],
) -> None:
    root = problem.root()
    if promising(problem.bound(root)):
        visit(root, 0)
    else:
        result.pruned += 1


def _visit_children(
    problem: Problem[Any],
    node: Any,
    depth: int,
    result: Found,
    promising: Callable[[Number], bool],
    visit: Callable[[Any, int], None],
) -> None:
    for child in problem.children(node):
        if promising(problem.bound(child)):
            visit(child, depth + 1)
            continue
        result.pruned += 1
        if problem.sorted_by_bound:
            return
