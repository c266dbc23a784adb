"""Depth-first search of a task, which can be divided, stopped and resumed between nodes."""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, Protocol

from collir.search.core.board import CUT, Board
from collir.search.core.dominance import Labels
from collir.search.core.goals import BestSolutions, Goal, prunes
from collir.search.core.problem import (
    Dive,
    Kernel,
    Number,
    Problem,
    SearchError,
    equal_nodes,
    explain,
    node_text,
    rank_of,
    sign,
)
from collir.search.core.tasks import Counts, SearchProfile, SearchTask

DEEPEST = 2**17
"""The depth at which a search without a depth limit is taken for an endless one."""

_SUSPECT = 1024
"""The depth from which on each power of two is checked for an endless path."""

_PLAIN = (int, float)
"""The types of a value that needs no check but for NaN."""

_NOBODY = object()
"""Placeholder for the parent of nodes that came with the task."""


class Explorer(Protocol):
    """The search of one task.

    Attributes:
        counts: the work done since the last report.
        given_away: nodes at the depth ``cutoff``, as (depth, node), to become tasks of their own.
    """

    counts: Counts
    profile: SearchProfile | None
    given_away: list[tuple[int, Any]]

    def start(self, task: SearchTask, cutoff: float) -> None:
        """Start a task; nodes at the depth ``cutoff`` are given away instead of visited."""
        ...

    def advance(self, nodes: int, backtracks: float = math.inf, seconds: float = math.inf) -> bool:
        """Visit up to ``nodes`` more nodes; return whether the goal has something to report.

        Args:
            seconds: the time after which no other node is visited, if nodes are visited one by one.
        """
        ...

    def finished(self) -> bool:
        """Return whether no node of the task is left."""
        ...

    def remaining(self) -> SearchTask:
        """Return the part of the task that is left."""
        ...

    def share(self, many: bool) -> list[tuple[int, Any]]:
        """Remove and return nodes for other workers, as (depth, node); keep at least one node."""
        ...


class DepthFirst:
    """Depth-first search, children in their order, by a stack of iterators.

    Args:
        depth_limit: nodes at this depth are not expanded.
    """

    def __init__(
        self,
        problem: Problem[Any],
        goal: Goal,
        board: Board,
        labels: Labels | None = None,
        kernel: Kernel[Any] | None = None,
        depth_limit: int | None = None,
        profile: bool = False,
    ):
        self._problem = problem
        self._goal = goal
        self._cells = board.cells
        self._labels = labels
        self._kernel = kernel
        self._cut = board.array()
        self._limit = math.inf if depth_limit is None else depth_limit
        self._endless = depth_limit is None
        self._sign = sign(problem)
        self._bound = problem.bound if prunes(problem, goal.kind) else None
        self.counts = Counts()
        self.profile = SearchProfile() if profile else None
        self.given_away: list[tuple[int, Any]] = []
        self._node: Any = None
        self.start(SearchTask(0, ()), math.inf)

    def start(self, task: SearchTask, cutoff: float) -> None:
        """Start a task; nodes at the depth ``cutoff`` are given away instead of visited."""
        self._first = task.depth
        self._cutoff = cutoff
        self._order = task.order
        self._levels: list[Iterator[Any]] = [iter(level) for level in task.levels]
        self._path: list[Any] = [_NOBODY] * len(self._levels)  # the parent of each level
        self._nearest = 0  # no node is left above this level

    def finished(self) -> bool:
        """Return whether no node of the task is left."""
        return not self._levels

    def advance(self, nodes: int, backtracks: float = math.inf, seconds: float = math.inf) -> bool:
        """Visit up to ``nodes`` more nodes, whatever their time; return whether the goal has
        something to report."""
        plain = self._labels is None and self._kernel is None and self.profile is None
        plain = plain and self._cutoff == self._limit == math.inf
        if plain and self._levels and isinstance(self._goal, BestSolutions):
            return self._advance_plain(self._goal, nodes, backtracks)
        try:
            return self._advance(nodes, backtracks)
        except TypeError:
            explain(self._problem, self._node, self._bound is not None)
            raise

    # This loop stands beside the one of ``_advance`` because the tests for options and the call of
    # the goal that it leaves out take a tenth of the run time of a search for a clique.
    def _advance_plain(self, goal: BestSolutions, nodes: int, backtracks: float) -> bool:
        """Do what ``_advance`` does, for the best solutions and where no option is set."""
        problem, cells, sign, threshold = self._problem, self._cells, self._sign, goal.threshold
        bound, children, objective = problem.bound, problem.children, problem.objective
        sorted_by_bound, levels, path = problem.sorted_by_bound, self._levels, self._path
        push, pop, enter, leave = levels.append, levels.pop, path.append, path.pop
        left, pruned, backtracked, deepest = nodes, 0, 0, 0
        level = pop()
        depth = self._first + len(levels)
        going = True
        while going:
            for node in level:
                value = bound(node)
                rank = sign * value if type(value) in _PLAIN else self._rank(value, node)
                if rank >= threshold or rank > cells[CUT]:
                    pruned += 1
                    if sorted_by_bound:
                        level = iter(())
                    elif pruned < nodes:
                        continue
                    else:
                        going = False
                    break
                if rank != rank:
                    self._rank(value, node)  # raises an error, because this is NaN
                left -= 1
                if depth > deepest:
                    deepest = depth
                value = objective(node)
                if value is not None and not (type(value) in _PLAIN and sign * value >= threshold):
                    goal.offer(rank_of(problem, "objective", value, node), node)
                push(level)
                level = iter(children(node))
                enter(node)
                depth += 1
                if depth >= _SUSPECT and depth & (depth - 1) == 0:
                    self._refuse_endless(node, depth)
                going = left > 0 and goal.threshold is threshold
                break
            else:
                if leave() is not _NOBODY:
                    backtracked += 1
                if not levels:
                    break
                level = pop()
                depth -= 1
                if backtracked >= backtracks:
                    break
        if path:
            push(level)
        self.counts.add(Counts(nodes - left, pruned, 0, backtracked, deepest))
        return goal.threshold is not threshold

    def _advance(self, nodes: int, backtracks: float) -> bool:
        """Do what ``advance`` does, whatever the goal and the options."""
        goal, cells, labels, kernel = self._goal, self._cells, self._labels, self._kernel
        visit, children, bound = goal.visit, self._problem.children, self._bound
        levels, path, counts, profile = self._levels, self._path, self.counts, self.profile
        sorted_by_bound, sign, threshold = self._problem.sorted_by_bound, self._sign, goal.threshold
        cutoff, limit, depth = self._cutoff, self._limit, self._first + len(levels) - 1
        last_backtrack, last_pruned = counts.backtracks + backtracks, counts.pruned + nodes
        left, rank, news, going = nodes, 0, False, True
        while going and levels:
            for node in levels[-1]:
                if bound is not None:
                    value = bound(node)
                    rank = sign * value if type(value) in _PLAIN else self._rank(value, node)
                if bound is not None and not (rank < threshold and rank <= cells[CUT]):
                    self._prune(rank, node, depth)
                    if sorted_by_bound:
                        levels[-1] = iter(())
                    elif counts.pruned < last_pruned:
                        continue
                    else:  # a pruned node takes time too
                        going = False
                    break
                if (depth >= cutoff or labels is not None) and self._passed_over(node, depth):
                    continue
                if depth > counts.deepest:
                    counts.deepest = depth
                self._node = node
                if kernel is not None:
                    dive = kernel(node, self._cut, left)
                    left -= dive.nodes
                    news = self._take(dive, depth)
                    depth = self._first + len(levels) - 1
                else:
                    left -= 1
                    if profile is not None:
                        profile.count(profile.nodes, depth)
                    news = visit(node, depth)
                    if depth < limit:
                        levels.append(iter(children(node)))
                        path.append(node)
                        depth += 1
                    if depth >= _SUSPECT and depth & (depth - 1) == 0:
                        self._refuse_endless(node, depth)
                going = left > 0 and not news
                break
            else:
                levels.pop()
                depth -= 1
                if path.pop() is not _NOBODY:
                    counts.backtracks += 1
                    if profile is not None:
                        profile.count(profile.backtracks, depth)
                    if counts.backtracks >= last_backtrack:
                        break
        counts.nodes += nodes - left
        return news

    def _rank(self, value: Any, node: Any) -> Number:
        """Return the rank of a bound that is not a plain number.

        Raises:
            SearchError: the bound is no number, or NaN.
        """
        return rank_of(self._problem, "bound", value, node)

    def _prune(self, rank: Number, node: Any, depth: int) -> None:
        """Count a node as pruned.

        Raises:
            SearchError: the rank of its bound is NaN.
        """
        if rank != rank:
            self._rank(rank, node)
        self.counts.pruned += 1
        if self.profile is not None:
            self.profile.count(self.profile.pruned, depth)

    def _passed_over(self, node: Any, depth: int) -> bool:
        """Return whether a node is not visited here: given away at the cutoff, or dominated."""
        if depth >= self._cutoff:
            self.given_away.append((depth, node))
            self._goal.order += 1
            return True
        if self._labels is None or not self._labels.dominated(node, depth):
            return False
        self.counts.dominated += 1
        if self.profile is not None:
            self.profile.count(self.profile.dominated, depth)
        return True

    def _take(self, dive: Dive[Any], depth: int) -> bool:
        """Take over the results of a kernel, except its number of nodes; adopt its levels."""
        counts = self.counts
        counts.pruned += dive.pruned
        counts.backtracks += dive.backtracks
        counts.deepest = max(counts.deepest, depth + dive.deepest)
        if (profile := self.profile) is not None:
            profile.count(profile.nodes, depth, dive.nodes)
            profile.count(profile.pruned, depth, dive.pruned)
            profile.count(profile.backtracks, depth, dive.backtracks)
        for level in dive.rest:
            self._levels.append(iter(level))
            self._path.append(_NOBODY)
        if dive.total is not None:
            self._goal.merge(dive.total)
        news = False
        for value, solution in dive.solutions:
            news |= self._goal.offer(self._sign * value, solution)
        return news

    def remaining(self) -> SearchTask:
        """Return the part of the task that is left; the remaining children are generated."""
        rest = [list(level) for level in self._levels]
        self._levels[:] = map(iter, rest)
        return SearchTask(self._first, tuple(rest), self._order)

    def share(self, many: bool) -> list[tuple[int, Any]]:
        """Remove and return the unvisited nodes nearest the root: all at their depth, or the first.

        Nodes that the bound rules out by now are dropped instead of given away.
        """
        for i in range(self._nearest, len(self._levels)):
            level = self._unpruned(i)
            self._levels[i] = iter(level)
            if not level:
                self._nearest = i + 1
                continue
            first = 0 if self._any_below(i) else 1  # one stays
            last = len(level) if many else first + 1
            self._levels[i] = iter(level[:first] + level[last:])
            return [(self._first + i, node) for node in level[first:last]]
        return []

    def _any_below(self, i: int) -> bool:
        """Return whether there is an unvisited node below the i-th level of the stack."""
        for j in range(i + 1, len(self._levels)):
            for node in self._levels[j]:
                self._levels[j] = chain((node,), self._levels[j])
                return True
        return False

    def _unpruned(self, i: int) -> list[Any]:
        """Return the unvisited nodes of the i-th level that the bound does not rule out."""
        if self._bound is None:
            return list(self._levels[i])
        level: list[Any] = []
        for node in self._levels[i]:
            rank = self._rank(self._bound(node), node)
            if rank < self._goal.threshold and rank <= self._cells[CUT]:
                level.append(node)
                continue
            self._prune(rank, node, self._first + i)
            if self._problem.sorted_by_bound:
                break
        return level

    def _refuse_endless(self, node: Any, depth: int) -> None:
        """Raise an error if a node is its own ancestor, or so deep that the tree may be endless."""
        if not self._endless:
            return
        if any(equal_nodes(ancestor, node) for ancestor in self._path[:-1]):
            raise SearchError(f"{node_text(node)} lies below itself: the children lead in a circle")
        if depth >= DEEPEST:
            raise too_deep(node)


def too_deep(node: Any) -> SearchError:
    """Return the error of a tree with a node at depth ``DEEPEST``."""
    return SearchError(
        f"the tree is deeper than {DEEPEST} nodes, as at {node_text(node)}: "
        "it may have no end; give a limit of the depth"
    )
