"""Depth-first search of a task, a few nodes at a time: it can be divided, stopped and resumed."""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, Protocol

from collir.search.core.board import CUT, Board
from collir.search.core.dominance import Labels
from collir.search.core.goals import Best, Goal, prunes
from collir.search.core.problem import (
    Dive,
    Kernel,
    Problem,
    SearchError,
    explain,
    rank_of,
    same,
    shown,
    sign,
)
from collir.search.core.tasks import Counts, Profile, Task

DEEPEST = 2**17
"""Without a limit of its own, a search as deep as this is taken for one without an end."""

_SUSPECT = 1024
"""From this depth on, at each power of two, we look whether there is an end."""

_DONE: tuple[Any, ...] = ()
_NOBODY = object()
"""Stands for the parent of nodes that came with the task."""


class Explorer(Protocol):
    """The search of one task.

    Attributes:
        counts: what was done since they were last taken.
        given: nodes at the depth ``cutoff``, with it: tasks for others.
    """

    counts: Counts
    profile: Profile | None
    given: list[tuple[int, Any]]

    def start(self, task: Task, cutoff: float) -> None:
        """Takes a task; its nodes at a depth of ``cutoff`` are not visited but given."""
        ...

    def advance(self, nodes: int, backtracks: float = math.inf) -> bool:
        """Visits up to so many nodes more; True if the goal has something to tell."""
        ...

    def finished(self) -> bool:
        """Whether nothing of the task is left."""
        ...

    def remaining(self) -> Task:
        """What is left of the task."""
        ...

    def share(self, everything: bool) -> list[tuple[int, Any]]:
        """Parts with nodes for others, with their depths; at least one stays, if any is left."""
        ...


class DepthFirst:
    """Depth first, children in their order: a stack of iterators.

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
        self.profile = Profile() if profile else None
        self.given: list[tuple[int, Any]] = []
        self.start(Task(0, ()), math.inf)

    def start(self, task: Task, cutoff: float) -> None:
        """Takes a task; its nodes at a depth of ``cutoff`` are not visited but given."""
        self._first = task.depth
        self._cutoff = cutoff
        self._order = task.order
        self._levels: list[Iterator[Any]] = [iter(level) for level in task.levels]
        self._path: list[Any] = [_NOBODY] * len(self._levels)  # whose children a level holds
        self._nearest = 0  # above this level no node is left

    def finished(self) -> bool:
        """Whether nothing of the task is left."""
        return not self._levels

    def advance(self, nodes: int, backtracks: float = math.inf) -> bool:
        """Visits up to so many nodes more; True if the goal has something to tell."""
        plain = self._labels is None and self._kernel is None and self.profile is None
        if plain and self._cutoff == self._limit == math.inf and isinstance(self._goal, Best):
            return self._advance_plain(self._goal, nodes, backtracks)
        return self._advance(nodes, backtracks)

    def _advance_plain(self, goal: Best, nodes: int, backtracks: float) -> bool:
        """The same as ``_advance`` for the best solutions where there is nothing else to look at:
        without calls but to the problem, and without a look at what it does not have."""
        problem, cells, sign = self._problem, self._cells, self._sign
        bound, children, objective = self._bound, problem.children, problem.objective
        sorted_by_bound, threshold, counts = problem.sorted_by_bound, goal.threshold, self.counts
        levels, path = self._levels, self._path
        if not levels:
            return False
        level = levels.pop()
        push, pop, enter, leave = levels.append, levels.pop, path.append, path.pop
        pruned = backtracked = 0
        left, deepest = nodes, counts.deepest
        depth = self._first + len(levels)
        node: Any = None
        try:
            while True:
                for node in level:
                    if bound is not None:
                        value = bound(node)
                        if type(value) is not int and type(value) is not float:
                            value = sign * rank_of(problem, "bound", value, node)
                        rank = sign * value
                        if rank >= threshold or rank > cells[CUT]:
                            pruned += 1
                            if sorted_by_bound:
                                level = iter(_DONE)
                                break
                            if pruned >= nodes:
                                return False
                            continue
                        if rank != rank:
                            rank_of(problem, "bound", rank, node)
                    left -= 1
                    if depth > deepest:
                        deepest = depth
                    value = objective(node)
                    if value is not None:
                        if type(value) is not int and type(value) is not float:
                            value = sign * rank_of(problem, "objective", value, node)
                        if not sign * value >= threshold:
                            goal.offer(rank_of(problem, "objective", value, node), node)
                    push(level)
                    level = iter(children(node))
                    enter(node)
                    depth += 1
                    if depth >= _SUSPECT and depth & (depth - 1) == 0:
                        self._refuse_endless(node, depth)
                    if left <= 0 or goal.threshold is not threshold:
                        return goal.threshold is not threshold
                    break
                else:
                    if leave() is not _NOBODY:
                        backtracked += 1
                    if not levels:
                        return False
                    level = pop()
                    depth -= 1
                    if backtracked >= backtracks:
                        return False
        except TypeError:
            explain(problem, node, bound is not None)
            raise
        finally:
            if path:
                push(level)
            counts.nodes += nodes - left
            counts.pruned += pruned
            counts.backtracks += backtracked
            counts.deepest = deepest

    def _advance(self, nodes: int, backtracks: float) -> bool:
        goal, cells, labels, kernel = self._goal, self._cells, self._labels, self._kernel
        visit, children, bound = goal.visit, self._problem.children, self._bound
        levels, path, counts, profile = self._levels, self._path, self.counts, self.profile
        sorted_by_bound, sign, cutoff = self._problem.sorted_by_bound, self._sign, self._cutoff
        threshold, limit = goal.threshold, self._limit
        last_node, last_backtrack = counts.nodes + nodes, counts.backtracks + backtracks
        visited, pruned = counts.nodes, counts.pruned
        last_pruned = pruned + nodes  # these take time too
        depth = self._first + len(levels) - 1
        node: Any = None
        try:
            while levels:
                for node in levels[-1]:
                    if bound is not None:
                        value = bound(node)
                        kind = type(value)
                        if kind is int or kind is float:
                            rank = sign * value
                        else:
                            rank = rank_of(self._problem, "bound", value, node)
                        if rank >= threshold or rank > cells[CUT]:
                            pruned += 1
                            if profile is not None:
                                profile.count(profile.pruned, depth)
                            if sorted_by_bound:
                                levels[-1] = iter(_DONE)
                                break
                            if pruned >= last_pruned:
                                return False
                            continue
                        if rank != rank:
                            rank_of(self._problem, "bound", rank, node)
                    if depth >= cutoff:
                        self.given.append((depth, node))
                        goal.order += 1
                        continue
                    if labels is not None and labels.dominated(node, depth):
                        counts.dominated += 1
                        if profile is not None:
                            profile.count(profile.dominated, depth)
                        continue
                    if depth > counts.deepest:
                        counts.deepest = depth
                    if kernel is not None:
                        dive = kernel(node, self._cut, max(last_node - visited, 1))
                        visited, pruned = visited + dive.nodes, pruned + dive.pruned
                        news = self._take(dive, depth)
                        depth = self._first + len(levels) - 1
                    else:
                        visited += 1
                        if profile is not None:
                            profile.count(profile.nodes, depth)
                        news = visit(node, depth)
                        if depth < limit:
                            levels.append(iter(children(node)))
                            path.append(node)
                            depth += 1
                            if depth >= _SUSPECT and depth & (depth - 1) == 0:
                                self._refuse_endless(node, depth)
                    if news or visited >= last_node:
                        return news
                    break
                else:
                    levels.pop()
                    depth -= 1
                    if path.pop() is not _NOBODY:
                        counts.backtracks += 1
                        if profile is not None:
                            profile.count(profile.backtracks, depth)
                        if counts.backtracks >= last_backtrack:
                            return False
            return False
        except TypeError:
            explain(self._problem, node, bound is not None)
            raise
        finally:
            counts.nodes, counts.pruned = visited, pruned

    def _take(self, dive: Dive[Any], depth: int) -> bool:
        """Takes what a kernel has done but for its nodes; what it leaves are levels of ours."""
        counts = self.counts
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

    def remaining(self) -> Task:
        """What is left of the task; children not made yet are made now."""
        rest = [list(level) for level in self._levels]
        self._levels[:] = map(iter, rest)
        return Task(self._first, tuple(rest), self._order)

    def share(self, everything: bool) -> list[tuple[int, Any]]:
        """Parts with the unvisited nodes nearest the root: all at that depth, or the first one.

        Nodes that the bound rules out by now are dropped here rather than given away.
        """
        for i in range(self._nearest, len(self._levels)):
            level = self._unpruned(i)
            self._levels[i] = iter(level)
            if not level:
                self._nearest = i + 1
                continue
            first = 0 if self._any_below(i) else 1  # one stays
            last = len(level) if everything else first + 1
            self._levels[i] = iter(level[:first] + level[last:])
            return [(self._first + i, node) for node in level[first:last]]
        return []

    def _any_below(self, i: int) -> bool:
        """Whether there is an unvisited node below the i-th level of those kept."""
        for j in range(i + 1, len(self._levels)):
            for node in self._levels[j]:
                self._levels[j] = chain((node,), self._levels[j])
                return True
        return False

    def _unpruned(self, i: int) -> list[Any]:
        """The unvisited nodes of the i-th level kept that the bound does not rule out."""
        if self._bound is None:
            return list(self._levels[i])
        level: list[Any] = []
        for node in self._levels[i]:
            rank = rank_of(self._problem, "bound", self._bound(node), node)
            if rank < self._goal.threshold and rank <= self._cells[CUT]:
                level.append(node)
                continue
            self.counts.pruned += 1
            if self.profile is not None:
                self.profile.count(self.profile.pruned, self._first + i)
            if self._problem.sorted_by_bound:
                break
        return level

    def _refuse_endless(self, node: Any, depth: int) -> None:
        """Raises an error if a node is its own ancestor, or too deep for there to be an end."""
        if not self._endless:
            return
        if any(same(ancestor, node) for ancestor in self._path[:-1]):
            raise SearchError(f"{shown(node)} lies below itself: the children lead in a circle")
        if depth >= DEEPEST:
            raise too_deep(node)


def too_deep(node: Any) -> SearchError:
    """The error of a tree in which a node is at depth ``DEEPEST``."""
    return SearchError(
        f"the tree is deeper than {DEEPEST} nodes, as at {shown(node)}: "
        "it may have no end; give a limit of the depth"
    )
