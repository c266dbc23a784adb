"""The calls of a search: enumerate_tree, decide, optimise and k_best, with options by keyword."""

import math
from typing import Any, Unpack, overload

from collir.search.core.goals import Fold, Solutions, Total
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import (
    Node,
    Number,
    Problem,
    SearchError,
    check_whole,
    rank_of,
    sign,
)
from collir.search.running.coordinator import best_bound
from collir.search.running.options import Options
from collir.search.running.results import Decision, Enumeration, Optimum, Status
from collir.search.running.run import SearchRun


def optimise(
    problem: Problem[Node],
    *,
    better_than: Number | None = None,
    **options: Unpack[Options],
) -> Optimum[Node]:
    """Return the best solution.

    Args:
        problem: the problem to search.
        better_than: a value known in advance; only better solutions are searched for.
        options: see ``Options``.

    Raises:
        SearchError: the problem or an option is wrong, or workers are lost repeatedly.
    """
    return k_best(problem, 1, better_than=better_than, **options)


def k_best(
    problem: Problem[Node],
    k: int,
    *,
    better_than: Number | None = None,
    **options: Unpack[Options],
) -> Optimum[Node]:
    """Return the ``k`` best solutions (nodes), best first, or all if there are fewer.

    Raises:
        SearchError: the problem or an option is wrong, or workers are lost repeatedly.
    """
    check_whole("k", k, 1)
    known = math.inf
    if better_than is not None:
        known = rank_of(problem, "known value", better_than, problem)
    run = SearchRun(SearchPlan(problem, "optimise", k=k, known=known), options)
    return run.search(lambda: _optimum(run))


def _optimum(run: SearchRun) -> Optimum[Any]:
    """Return the best solutions of a search that has ended, or was broken off."""
    known = run.plan.known
    solutions = run.solutions()
    try:
        least = best_bound(run.plan, run.state.open)
    except Exception:
        if run.reason != "error":
            raise
        least = -math.inf  # the bound itself raised the error
    rank = min(least, *(f.rank for f in run.state.solutions), known)
    status: Status = "feasible" if solutions else "interrupted"
    if not run.reason:
        status = "optimal" if solutions else "infeasible"
    bound = None if status == "infeasible" else sign(run.plan.problem) * rank
    return Optimum(status, run.statistics(), run.state.profile, solutions, bound)


def decide(
    problem: Problem[Node],
    *,
    target: Number | None = None,
    **options: Unpack[Options],
) -> Decision[Node]:
    """Return whether a solution reaches the target, and such a solution.

    Args:
        problem: the problem to search.
        target: the objective that the solution must reach; None: the target of the problem.
        options: see ``Options``.

    Raises:
        SearchError: the problem or an option is wrong, or workers are lost repeatedly.
    """
    target = problem.target if target is None else target
    if target is None:
        raise SearchError("decide needs a target: the problem has none of its own")
    rank_of(problem, "target", target, problem)
    run = SearchRun(SearchPlan(problem, "decide", target=target), options)
    return run.search(lambda: _decision(run))


def _decision(run: SearchRun) -> Decision[Any]:
    """Return the decision of a search that has ended, or was broken off."""
    solutions = run.solutions()
    status: Status = "feasible" if solutions else "interrupted" if run.reason else "infeasible"
    solution = solutions[0] if solutions else None
    return Decision(status, run.statistics(), run.state.profile, solution)


@overload
def enumerate_tree(
    problem: Problem[Any], fold: None = None, **options: Unpack[Options]
) -> Enumeration[int]: ...


@overload
def enumerate_tree(
    problem: Problem[Any], fold: Fold[Total], **options: Unpack[Options]
) -> Enumeration[Total]: ...


def enumerate_tree(
    problem: Problem[Any], fold: Fold[Any] | None = None, **options: Unpack[Options]
) -> Enumeration[Any]:
    """Return a fold of all nodes, by default the number of solutions, without bounds or keys.

    Raises:
        SearchError: the problem or an option is wrong, or workers are lost repeatedly.
    """
    if options.get("order", "depth-first") != "depth-first":
        raise SearchError("an enumeration visits all nodes: its order is depth-first")
    if options.get("on_solution") is not None:
        raise SearchError("an enumeration has no best solutions for on_solution: use a fold")
    folded: Fold[Any] = Solutions() if fold is None else fold
    run = SearchRun(SearchPlan(problem, "enumerate", fold=folded), options)
    return run.search(lambda: _enumeration(run))


def _enumeration(run: SearchRun) -> Enumeration[Any]:
    """Return the total of a search that has ended, or was broken off."""
    status: Status = "interrupted" if run.reason else "complete"
    return Enumeration(status, run.statistics(), run.state.profile, run.state.total)
