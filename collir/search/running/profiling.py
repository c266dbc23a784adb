"""Analysis of a profile: where nodes are, how long tasks took, how to divide the next search."""

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from collir.search.core.coordination import Budget, Coordination, DepthBounded
from collir.search.core.problem import SearchError
from collir.search.core.tasks import SearchProfile
from collir.search.running.results import SearchOutcome

PER_WORKER = 20
"""Tasks per worker that suffice to share the work evenly."""

SHORTEST = 0.001
"""The least number of seconds for a task, so that its report is comparatively cheap."""

GRAIN = 0.005
"""Seconds between two parts that a task gives away by budget."""


@dataclass(frozen=True)
class Recommendation:
    """A way to divide a search like the profiled one, and the reason for it."""

    coordination: Coordination
    reason: str


def recommend(outcome: SearchOutcome, workers: int) -> Recommendation:
    """Recommend a depth down to which nodes become tasks, or a budget of tasks.

    A depth is recommended if it has enough nodes for the workers, if a subtree takes long enough
    to be worth a task, and if no known subtree exceeds a worker's share. Otherwise a budget is
    recommended, from the measured backtracks per second.

    Raises:
        SearchError: the search was not profiled.
    """
    profile = outcome.profile
    if profile is None:
        raise SearchError("there is no profile: search with profile=True")
    seconds = sum(task[1] for task in profile.tasks) or outcome.statistics.seconds
    total = max(1, sum(profile.nodes))
    rate = sum(profile.backtracks) / max(seconds, 1e-9)
    budget = Budget(max(1, round(GRAIN * rate)))
    below = total
    for depth, nodes in enumerate(profile.nodes):
        below -= profile.nodes[depth - 1] if depth else 0  # nodes at this depth and deeper
        if nodes < PER_WORKER * workers:
            continue
        mean = seconds * below / total / nodes
        if mean < SHORTEST:
            reason = (
                f"depth {depth} is the first with {PER_WORKER} nodes for each worker, and a "
                f"subtree there takes {mean * 1e6:.0f} us, too little for a task"
            )
            return Recommendation(budget, f"{reason}; {_budget(rate)}")
        longest = _longest(profile, depth)
        if longest is not None and longest > seconds / workers / 4:
            reason = f"a task at depth {depth} took {longest:.3g} s of {seconds:.3g} s: uneven"
            return Recommendation(budget, f"{reason}; {_budget(rate)}")
        reason = f"{nodes} tasks at depth {depth} of about {mean * 1e3:.3g} ms"
        return Recommendation(DepthBounded(depth), reason)
    reason = f"no depth has {PER_WORKER} nodes for each of {workers} workers"
    return Recommendation(budget, f"{reason}; {_budget(rate)}")


def _budget(rate: float) -> str:
    return f"{rate:,.0f} backtracks/s make {GRAIN * 1e3:.0f} ms a part"


def _longest(profile: SearchProfile, depth: int) -> float | None:
    """Return the seconds of the longest task that began at a depth; None if no task did."""
    return max((seconds for at, seconds, _ in profile.tasks if at == depth), default=None)


def to_json(outcome: SearchOutcome, workers: int) -> dict[str, Any]:
    """Return the profile as JSON. Times are in seconds; lists are indexed by depth, root at 0.

    Raises:
        SearchError: the search was not profiled.
    """
    advice = recommend(outcome, workers)
    profile = outcome.profile
    assert profile is not None
    times = [seconds for _, seconds, _ in profile.tasks]
    return {
        "nodes": profile.nodes,
        "pruned": profile.pruned,
        "dominated": profile.dominated,
        "backtracks": profile.backtracks,
        "tasks": [
            {"depth": depth, "seconds": seconds, "nodes": nodes}
            for depth, seconds, nodes in profile.tasks
        ],
        "task_seconds": {
            "total": sum(times),
            "median": statistics.median(times) if times else 0.0,
            "longest": max(times, default=0.0),
        },
        "nodes_per_second": sum(profile.nodes) / max(sum(times), 1e-9),
        "recommendation": {
            "coordination": type(advice.coordination).__name__,
            **asdict(advice.coordination),
            "workers": workers,
            "reason": advice.reason,
        },
    }
