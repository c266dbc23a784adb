"""The check of a problem's promises on its complete tree, without pruning.

A search is exact only if the problem keeps its promises. A broken promise makes a wrong answer
unnoticed; the check names the node. It visits every node, so it is for small problems.
"""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from collir.search.core.explore import DEEPEST
from collir.search.core.problem import (
    Number,
    Problem,
    SearchError,
    equal_nodes,
    node_text,
    overrides,
    rank_of,
)


@dataclass
class _Open:
    """A node whose subtree is being visited; values are ranks, of which small ones are good."""

    node: Any
    bound: Number
    children: Iterator[Any]
    tightest: "_Open | None" = None
    """The node with the tightest bound among this node and those above it."""
    best: Number = math.inf
    """The rank of the best solution seen at or below the node."""
    last: Number = -math.inf
    """The rank of the bound of the previous child."""


@dataclass
class _States:
    """The best ranks below visited nodes, by state and cost."""

    known: dict[Hashable, list[tuple[tuple[Number, ...], Number, Any]]] = field(
        default_factory=dict[Hashable, list[tuple[tuple[Number, ...], Number, Any]]]
    )


def check(problem: Problem[Any], depth_limit: int | None = None) -> int:
    """Visit all nodes of a problem's tree, and return their number.

    Raises:
        SearchError: a solution is better than the bound of a node above it, children declared as
            sorted by their bounds are not, a dearer node of the same state leads to a better
            solution, an objective or a bound is no number, the children of a node differ between
            two calls, or a node lies below itself.
    """
    bounded, keyed = overrides(problem, "bound"), overrides(problem, "key") and depth_limit is None
    states = _States()
    path: list[_Open] = []
    count = 0

    def enter(node: Any) -> None:
        nonlocal count
        count += 1
        if depth_limit is None:
            _refuse_endless(path, node)
        bound = -math.inf
        if bounded:
            bound = rank_of(problem, "bound", problem.bound(node), node)
            _sorted(problem, path, node, bound)
        children = (
            _children(problem, node) if depth_limit is None or len(path) < depth_limit else []
        )
        new = _Open(node, bound, iter(children))
        above = path[-1].tightest if path else None
        new.tightest = new if above is None or bound > above.bound else above
        path.append(new)
        value = problem.objective(node)
        if value is None:
            return
        new.best = rank_of(problem, "objective", value, node)
        if new.best < new.tightest.bound:
            top = new.tightest.node
            raise SearchError(
                f"the bound of {node_text(top)} is not admissible: it is {problem.bound(top)}, and "
                f"{node_text(node)} below it is worth {value}"
            )

    enter(problem.root())
    while path:
        top = path[-1]
        child = next(top.children, _END)
        if child is not _END:
            enter(child)
            continue
        path.pop()
        if keyed:
            _reached(problem, states, top)
        if path:
            path[-1].best = min(path[-1].best, top.best)
    return count


_END = object()


def _refuse_endless(path: list[_Open], node: Any) -> None:
    """Raise an error if a node lies below itself; depths that are powers of two are checked."""
    depth = len(path)
    if depth and depth & (depth - 1) == 0 and any(equal_nodes(above.node, node) for above in path):
        raise SearchError(f"{node_text(node)} lies below itself: the children lead in a circle")
    if depth > DEEPEST:
        raise SearchError(f"the tree is deeper than {DEEPEST} nodes: give a limit of the depth")


def _children(problem: Problem[Any], node: Any) -> list[Any]:
    first, second = list(problem.children(node)), list(problem.children(node))
    if len(first) != len(second) or not all(
        a is b or equal_nodes(a, b) for a, b in zip(first, second, strict=True)
    ):
        comparable = all(type(a).__eq__ is not object.__eq__ for a in first)
        if len(first) != len(second) or comparable:
            raise SearchError(f"the children of {node_text(node)} are not the same each time")
    return first


def _sorted(problem: Problem[Any], path: list[_Open], node: Any, bound: Number) -> None:
    if not path or not problem.sorted_by_bound:
        return
    parent = path[-1]
    if bound < parent.last:
        raise SearchError(
            f"the children of {node_text(parent.node)} are not sorted by their bounds: "
            f"{node_text(node)} has a better one than the child before it"
        )
    parent.last = bound


def _reached(problem: Problem[Any], states: _States, top: _Open) -> None:
    key = problem.key(top.node)
    if key is None:
        return
    cost = problem.cost(top.node)
    label = cost if isinstance(cost, tuple) else (cost,)
    known = states.known.setdefault(key, [])
    for earlier, best, node in known:
        for cheap, dear in (
            ((earlier, best, node), (label, top.best, top.node)),
            ((label, top.best, top.node), (earlier, best, node)),
        ):
            if all(a <= b for a, b in zip(cheap[0], dear[0], strict=True)) and dear[1] < cheap[1]:
                raise SearchError(
                    f"the key of {node_text(dear[2])} is that of {node_text(cheap[2])}, which "
                    "costs no more, but leads to no solution as good"
                )
    known.append((label, top.best, top.node))
