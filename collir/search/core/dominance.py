"""Dominance: a node is dropped if its state has been reached at no greater cost before."""

from collections.abc import Hashable
from typing import Any

from collir.search.core.problem import Cost, Problem, SearchError, node_text


class Labels:
    """The best costs at which each state was reached, for one worker.

    For the ``k`` best solutions, a node is dropped once ``k`` others have reached its state at no
    greater cost. Each worker has its own labels. It drops a node only for nodes that it visited
    itself. Some worker searches the children of these, so no solution is lost.
    """

    def __init__(self, problem: Problem[Any], k: int = 1, with_depth: bool = False):
        self._problem = problem
        self._k = k
        self._with_depth = with_depth
        self._costs: dict[Hashable, list[tuple[Any, ...]]] = {}

    def _label(self, node: Any, depth: int) -> tuple[Any, ...]:
        cost: Cost = self._problem.cost(node)
        label: tuple[Any, ...] = cost if isinstance(cost, tuple) else (cost,)
        if any(part != part for part in label):
            raise SearchError(f"the cost of {node_text(node)} is not a number (NaN)")
        return (*label, depth) if self._with_depth else label

    def dominated(self, node: Any, depth: int, visit: bool = True) -> bool:
        """Return whether a node need not be visited; if it must and ``visit``, keep its label."""
        key = self._problem.key(node)
        if key is None:
            return False
        label = self._label(node, depth)
        known = self._costs.get(key)
        if known is None:
            if visit:
                self._costs[key] = [label]
            return False
        if sum(_no_greater(earlier, label) for earlier in known) >= self._k:
            return True
        if visit:
            known.append(label)
            self._trim(known, label)
        return False

    def _trim(self, known: list[tuple[Any, ...]], label: tuple[Any, ...]) -> None:
        """Drop the labels that the new one makes needless."""
        if self._k == 1:
            known[:] = [kept for kept in known if kept is label or not _no_greater(label, kept)]
        elif len(label) == 1:
            known.sort()
            del known[self._k :]


def _no_greater(label: tuple[Any, ...], bound: tuple[Any, ...]) -> bool:
    if len(label) == 1:
        return label[0] <= bound[0]
    return all(a <= b for a, b in zip(label, bound, strict=True))
