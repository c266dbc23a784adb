"""Best-first search of a task: the open node with the best bound is next (A*)."""

import heapq
import math
import time
from typing import Any

from collir.search.core.board import CUT, Board
from collir.search.core.dominance import Labels
from collir.search.core.explore import DEEPEST, too_deep
from collir.search.core.goals import Goal, prunes
from collir.search.core.problem import Problem, explain, rank_of, sign
from collir.search.core.tasks import Counts, SearchProfile, SearchTask

OpenNode = tuple[float, int, int, Any]
"""An open node: the rank of its bound, its negated depth, a unique number, and the node."""

SHARED = 64
"""The maximum number of nodes given away at once."""


class BestFirst:
    """Best-first search; among equal bounds the deepest node is next, then the oldest.

    With an admissible bound, the first solution taken from the queue whose objective is its bound
    is the best one; the search goes on until no open node can be better. The queue is kept in
    memory: a problem without a ``key`` may fill it.
    """

    def __init__(
        self,
        problem: Problem[Any],
        goal: Goal,
        board: Board,
        labels: Labels | None = None,
        depth_limit: int | None = None,
        profile: bool = False,
    ):
        self._problem = problem
        self._goal = goal
        self._cells = board.cells
        self._labels = labels
        self._limit = DEEPEST if depth_limit is None else depth_limit
        self._endless = depth_limit is None
        self._sign = sign(problem)
        self._bound = problem.bound if prunes(problem, goal.kind) else None
        self._made = 0
        self._node: Any = None
        self.counts = Counts()
        self.profile = SearchProfile() if profile else None
        self.given_away: list[tuple[int, Any]] = []
        self.start(SearchTask(0, ()), math.inf)

    def start(self, task: SearchTask, cutoff: float) -> None:
        """Start a task; nodes at the depth ``cutoff`` are given away instead of visited."""
        self._cutoff = cutoff
        self._order = task.order
        self._open: list[OpenNode] = []
        for i, level in enumerate(task.levels):
            for node in level:
                self._node = node
                self._push(self._rank(node), task.depth + i, node)

    def _rank(self, node: Any) -> float:
        """Return the rank of a node's bound."""
        if self._bound is None:
            return -math.inf
        value = self._bound(node)
        if type(value) is int or (type(value) is float and value == value):
            return self._sign * value
        return rank_of(self._problem, "bound", value, node)

    def _ruled_out(self, rank: float) -> bool:
        """Return whether a node is not needed, by the rank of its bound."""
        return rank >= self._goal.threshold or rank > self._cells[CUT]

    def _push(self, rank: float, depth: int, node: Any) -> None:
        self._made += 1
        heapq.heappush(self._open, (rank, -depth, self._made, node))

    def finished(self) -> bool:
        """Return whether no node of the task is left."""
        return not self._open

    def advance(self, nodes: int, backtracks: float = math.inf, seconds: float = math.inf) -> bool:
        """Visit up to ``nodes`` more nodes, none after some seconds; return whether the goal has
        something to report."""
        try:
            return self._advance(nodes, backtracks, time.perf_counter() + seconds)
        except TypeError:
            explain(self._problem, self._node, self._bound is not None)
            raise

    def _advance(self, nodes: int, backtracks: float, end: float) -> bool:
        counts, goal = self.counts, self._goal
        last_node = counts.nodes + nodes
        last_backtrack = counts.backtracks + backtracks
        while self._open:
            if self._ruled_out(self._open[0][0]):
                self._prune_all()
                return False
            _, depth, _, node = heapq.heappop(self._open)
            depth = -depth
            self._node = node
            if depth >= self._cutoff:
                self.given_away.append((depth, node))
                goal.order += 1
                continue
            if self._labels is not None and self._labels.dominated(node, depth):
                self._count("dominated", depth)
                continue
            self._count("nodes", depth)
            counts.deepest = max(counts.deepest, depth)
            news = goal.visit(node, depth)
            self._expand(node, depth)
            self._count("backtracks", depth)
            if news or counts.nodes >= last_node or counts.backtracks >= last_backtrack:
                return news
            if time.perf_counter() > end:  # some nodes take much longer than others
                return False
        return False

    def _expand(self, node: Any, depth: int) -> None:
        """Put the children of a node that may be needed into the queue."""
        if depth >= self._limit:
            if self._endless:
                raise too_deep(node)
            return
        for child in self._problem.children(node):
            rank = self._rank(child)
            if self._ruled_out(rank):
                self._count("pruned", depth + 1)
                if self._problem.sorted_by_bound:
                    break
            elif self._labels is not None and self._labels.dominated(child, depth + 1, visit=False):
                self._count("dominated", depth + 1)
            else:
                self._push(rank, depth + 1, child)

    def _count(self, what: str, depth: int) -> None:
        setattr(self.counts, what, getattr(self.counts, what) + 1)
        if self.profile is not None:
            self.profile.count(getattr(self.profile, what), depth)

    def _prune_all(self) -> None:
        """Empty the queue: its best node is not needed, so none is."""
        for _, depth, _, _ in self._open:
            self._count("pruned", -depth)
        self._open.clear()

    def remaining(self) -> SearchTask:
        """Return the part of the task that is left."""
        entries = sorted(self._open)
        if not entries:
            return SearchTask(0, (), self._order)
        depths = [-entry[1] for entry in entries]
        first = min(depths)
        levels: list[list[Any]] = [[] for _ in range(max(depths) - first + 1)]
        for depth, entry in zip(depths, entries, strict=True):
            levels[depth - first].append(entry[3])
        return SearchTask(first, tuple(levels), self._order)

    def share(self, many: bool) -> list[tuple[int, Any]]:
        """Return every second one of the best open nodes, or only the second best."""
        count = 2 * SHARED if many else 2
        best: list[OpenNode] = []
        while self._open and len(best) < count:
            if self._ruled_out(self._open[0][0]):
                self._prune_all()
            else:
                best.append(heapq.heappop(self._open))
        for entry in best[0::2]:
            heapq.heappush(self._open, entry)
        return [(-entry[1], entry[3]) for entry in best[1::2]]
