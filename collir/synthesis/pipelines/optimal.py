"""The best schedule of a pipeline for given times and memory, with a lower bound."""

from dataclasses import dataclass

from collir.layout.pipelines.schedule import Schedule
from collir.synthesis.pipelines.candidates import Candidate, candidates
from collir.synthesis.pipelines.problem import SLACK, SchedulingProblem, schedule_of
from collir.synthesis.pipelines.work import PipelineWork
from collir.synthesis.searching import best_of, gap_of


@dataclass(frozen=True)
class BestSchedule:
    """The best schedule that a search has found.

    Attributes:
        origin: the rule that it is from, or "search".
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
        """Whether no schedule is faster."""
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


def best_candidate(work: PipelineWork) -> Candidate | None:
    """Return the fastest schedule of a rule that fits; of several the one that keeps the least."""
    known = list(candidates(work))
    least = min((candidate.time for candidate in known), default=0.0)
    fastest = [candidate for candidate in known if candidate.time <= least * (1 + SLACK)]

    def total(candidate: Candidate) -> float:
        run = work.run(candidate.schedule)
        return sum(run.peak(place, work.kept) for place in range(work.places))

    return min(fastest, key=total, default=None)


def best_schedule(work: PipelineWork, seconds: float | None = None) -> BestSchedule:
    """Return the fastest schedule that fits the memory.

    The search starts from the best of the named rules and of some priorities, and only looks for
    faster schedules. At its limit, or after an interrupt, the best so far is returned.

    Args:
        seconds: limit of the search.

    Raises:
        NoScheduleError: no schedule fits the memory, or none was found.
    """
    first = best_candidate(work)
    problem = SchedulingProblem(work)
    lower = problem.root().bound
    if first is not None and lower >= first.time * (1 - SLACK):
        return BestSchedule(first.schedule, first.name, first.time, first.time)
    outcome = best_of(problem, 1, seconds, better_than=None if first is None else first.time)
    reason = outcome.statistics.reason
    nodes = outcome.statistics.nodes
    if outcome.best is not None:
        found = schedule_of(work, outcome.best.node)
        first = Candidate("search", found, work.run(found).time)
    if first is None:
        raise NoScheduleError(proven=not reason)
    bound = max(lower, outcome.bound or 0.0) if reason else first.time
    return BestSchedule(
        first.schedule, first.name, first.time, min(first.time, bound), reason, nodes
    )
