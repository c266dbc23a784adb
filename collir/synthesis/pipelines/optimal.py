"""The best schedule of a pipeline for given times and memory, with a lower bound."""

import math
from dataclasses import dataclass
from time import monotonic

from collir.layout.pipelines.schedule import Schedule
from collir.synthesis.pipelines.candidates import ScheduleCandidate, candidates
from collir.synthesis.pipelines.improve import improved_schedule
from collir.synthesis.pipelines.problem import SLACK, SchedulingProblem, schedule_of
from collir.synthesis.pipelines.work import PipelineWork
from collir.synthesis.searching import INTERRUPTED, best_of, gap_of

MOST_TASKS = 2**14
"""The number of tasks above which a work is not searched: a state would take too long."""

MOST_TRIALS = 500
"""The number of exchanges that are tried before a search, in each round."""

MOST_STARTS = 2**18
"""The number of tasks that the exchanges of a round may start together: about half a second."""


@dataclass(frozen=True)
class BestSchedule:
    """The best schedule that a search has found.

    Attributes:
        origin: the rule that it is from, "exchanges" or "search".
        time: its seconds without contention.
        bound: no schedule of the same work takes less, in seconds.
        reason: why the search ended early, as in ``Statistics.reason``; "" if it did not.
        nodes: number of states that the search visited.
    """

    schedule: Schedule
    origin: str
    time: float
    bound: float
    reason: str = ""
    nodes: int = 0

    @property
    def proven(self) -> bool:
        """True if no schedule is faster."""
        return self.bound >= self.time * (1 - 2 * SLACK)

    @property
    def gap(self) -> float:
        """The largest relative saving of the best schedule over this one."""
        return 0.0 if self.proven else gap_of(self.time, self.bound) or 0.0


class NoScheduleError(Exception):
    """No schedule fits the memory, or none was found before the search was cut off.

    Attributes:
        proven: whether there is none.
    """

    def __init__(self, proven: bool):
        super().__init__(
            "no schedule fits the memory"
            if proven
            else "no schedule was found that fits the memory"
        )
        self.proven = proven


def best_candidate(work: PipelineWork) -> ScheduleCandidate | None:
    """Return the fastest schedule of a rule that fits; of several the one that keeps the least."""
    known = list(candidates(work))
    least = min((candidate.time for candidate in known), default=0.0)
    fastest = [candidate for candidate in known if candidate.time <= least * (1 + SLACK)]

    def total(candidate: ScheduleCandidate) -> float:
        run = work.run(candidate.schedule)
        return sum(run.peak(place, work.kept) for place in range(work.places))

    return min(fastest, key=total, default=None)


def best_schedule(work: PipelineWork, seconds: float | None = None) -> BestSchedule:
    """Return the fastest schedule that fits the memory.

    The best schedule of the named rules and of some priorities is first improved by exchanges of
    tasks. Then a search looks for faster ones. At its limit, or after an interrupt, the best so
    far is returned. Works of more than ``MOST_TASKS`` tasks are not searched.

    Args:
        seconds: limit for exchanges and search together; the candidates take what they take.

    Raises:
        NoScheduleError: no schedule fits the memory, or none was found.
    """
    began = monotonic()
    first, stopped = best_candidate(work), False
    problem = SchedulingProblem(work)
    lower = problem.root().bound
    if first is not None and lower < first.time * (1 - SLACK):
        limit = math.inf if seconds is None else seconds / 4
        first, stopped = _improved(work, first, lower * (1 + SLACK), limit)
    if first is not None and lower >= first.time * (1 - SLACK):
        return BestSchedule(first.schedule, first.name, first.time, first.time)
    tasks = len(work.graph.places) * work.microbatches
    if stopped or tasks > MOST_TASKS:
        return _so_far(first, lower, INTERRUPTED if stopped else f"more than {MOST_TASKS} tasks")
    left = None if seconds is None else max(0.0, seconds - (monotonic() - began))
    outcome = best_of(problem, 1, left, better_than=None if first is None else first.time)
    reason = outcome.statistics.reason
    if outcome.best is not None:
        schedule = schedule_of(work, outcome.best.node)
        first = ScheduleCandidate("search", schedule, work.run(schedule).time)
    if not reason:
        lower = math.inf
    elif outcome.bound is not None:
        lower = max(lower, outcome.bound)
    return _so_far(first, lower, reason, outcome.statistics.nodes)


def _improved(
    work: PipelineWork, first: ScheduleCandidate, enough: float, seconds: float
) -> tuple[ScheduleCandidate, bool]:
    """Return a candidate improved by exchanges, and whether the user interrupted them."""
    trials = min(MOST_TRIALS, MOST_STARTS // (len(work.graph.places) * work.microbatches))
    schedule, stopped = improved_schedule(work, first.schedule, trials, enough, seconds)
    time = work.run(schedule).time
    if time < first.time * (1 - SLACK):
        first = ScheduleCandidate("exchanges", schedule, time)
    return first, stopped


def _so_far(
    first: ScheduleCandidate | None, lower: float, reason: str, nodes: int = 0
) -> BestSchedule:
    if first is None:
        raise NoScheduleError(proven=not reason)
    bound = min(first.time, lower)
    return BestSchedule(first.schedule, first.name, first.time, bound, reason, nodes)
