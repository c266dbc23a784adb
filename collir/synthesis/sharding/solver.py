"""The values of variables for which a sum is least, by exact search.

A node is the sum restricted to some values of each variable. Where rounds of bounds (``rounds.py``)
leave a gap, the children of a node are the values of one variable, the best bound first (A*).
Messages between tables give an admissible bound: ``messages.py`` proves it.
"""

import math
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from collir.search import Problem
from collir.synthesis.searching import TIME, Limit, best_of, search_workers, within, workers
from collir.synthesis.sharding.factors import FactorSum, Numbers, Values
from collir.synthesis.sharding.rounds import SAME, Judge, SumRounds


@dataclass(frozen=True)
class VariableValues:
    """Values of all variables.

    Attributes:
        values: the value of each variable.
        sum: the sum.
        bound: a lower bound of the sum for all values; the sum itself if it is proven.
        ended: why the search ended before a proof, or "".
        nodes: the number of nodes that were expanded.
    """

    values: Values
    sum: float
    bound: float
    ended: str = ""
    nodes: int = 1


@dataclass(frozen=True, eq=False)
class SolutionNode:
    """Some of the solutions of a sum: a node.

    Attributes:
        left: the sum over some values of each variable.
        kept: these values.
        bound: a lower bound of the sum over them.
        least: the least sum that is known.
        values: the values of a single solution; else None.
        is_root: whether it is the root.
    """

    left: FactorSum
    kept: tuple[Numbers, ...]
    bound: float
    least: float
    values: Values | None = None
    is_root: bool = False


class Least(Problem[SolutionNode]):
    """The values of variables for which a sum is least."""

    sense = "min"
    sorted_by_bound = True
    dominance = False

    def __init__(self, first: SumRounds, until: float | None = None):
        """Prepare the search.

        Args:
            first: the rounds of the root, which have run.
            until: the time of ``time.monotonic()`` when rounds end.
        """
        self.first, self.until = first, until

    def root(self) -> SolutionNode:
        """Return the node of all values that are left."""
        first = self.first
        return SolutionNode(first.left, tuple(first.kept), first.bound, first.least, is_root=True)

    def children(self, node: SolutionNode) -> Iterator[SolutionNode]:
        """Yield the best solution that rounds find and, if it is not proven, a part for each value
        of a variable, the best bound first."""
        if node.values is not None:
            return
        rounds = self.first
        if not node.is_root:
            rounds = SumRounds(node.left, node.kept, node.least, self.first.judge)
            with within(Limit(math.inf if self.until is None else self.until, time.monotonic)):
                rounds.run(self.until)
        variables = [rounds.best] if rounds.best is not None else []
        solutions = [
            SolutionNode(node.left, node.kept, rounds.least, rounds.least, v) for v in variables
        ]
        if rounds.is_proven:
            yield from solutions
            return
        kept, left = tuple(rounds.kept), rounds.left
        several = [v for v, size in enumerate(left.sizes) if size > 1]
        if not several:
            yield from solutions
            return
        variable = max(several, key=lambda v: (len({u for p in left.of[v] for u in p.scope}), -v))
        bounds = np.full(left.sizes[variable], max(rounds.bound, node.bound))
        if variable in rounds.above:
            bounds = np.maximum(bounds, rounds.floor + rounds.above[variable])
        parts: list[SolutionNode] = []
        for value in np.argsort(bounds, kind="stable").tolist():
            own = np.array([value])
            fewer = tuple(x[own] if v == variable else x for v, x in enumerate(kept))
            part = left.restricted({variable: own})
            parts.append(SolutionNode(part, fewer, float(bounds[value]), rounds.least))
        yield from sorted([*parts, *solutions], key=lambda part: part.bound)

    def objective(self, node: SolutionNode) -> float | None:
        """Return the sum of a single solution."""
        return None if node.values is None else node.bound

    def bound(self, node: SolutionNode) -> float:
        """Return a lower bound of the sum over the values of a node."""
        return node.bound

    def identity(self) -> Hashable:
        """Return a key that no other run has: such a search is never checkpointed."""
        return id(self)


def least_sum(
    whole: FactorSum,
    seconds: float | None = None,
    judge: Judge | None = None,
    known: tuple[Values, float] | None = None,
    branch: bool = True,
) -> VariableValues:
    """Return values of all variables with the least sum, or the best known after some seconds.

    Args:
        judge: a function from values and their sum to the sum that counts, which is no less;
            infinity for values that are no solution.
        known: known values, and the sum that counts for them.
        branch: whether to search on where rounds leave a gap.
    """
    until = None if seconds is None else time.monotonic() + seconds
    limit = Limit.of(seconds)
    start = known[1] if known else float("inf")
    rounds = SumRounds(whole, tuple(np.arange(size) for size in whole.sizes), start, judge)
    with within(limit):
        rounds.run(until)
    values, total = (
        (rounds.best, rounds.least) if rounds.best is not None else (known or ({}, start))
    )
    if rounds.is_proven or limit.is_over or not branch:
        ended = "" if rounds.is_proven else TIME if limit.is_over else "gap"
        return VariableValues(values, total, min(rounds.bound, total), ended)
    left = None if until is None else max(0.1, until - time.monotonic())
    better_than = None if total == float("inf") else total * (1 - SAME)
    with search_workers(workers() if judge is None else 1):  # a judge keeps solutions that it saw
        outcome = best_of(Least(rounds, until), 1, left, better_than, order="best-first")
    for solution in outcome.solutions:
        if solution.node.values is not None:
            values, total = solution.node.values, solution.node.bound
    bound = rounds.bound if outcome.bound is None else max(rounds.bound, outcome.bound)
    ended, nodes = outcome.statistics.reason, 1 + outcome.statistics.nodes
    return VariableValues(values, total, min(bound, total) if ended else total, ended, nodes)
