"""Improvement of a schedule by exchanges of neighbours on its critical path.

A schedule becomes faster only if the order of some place changes within a critical path, a chain of
tasks without a pause that ends last. The exchange of two neighbours on such a path never makes a
cycle (van Laarhoven et al., Job Shop Scheduling by Simulated Annealing, 1992). Exchanges are drawn
at random, and accepted if the time grows by at most a share that falls to 0 in each round.
"""

import math
import random
from itertools import product
from time import monotonic

from collir.cost.programs.pipelines import PipelineRun, held_activations
from collir.layout.pipelines.schedule import Schedule
from collir.layout.pipelines.tasks import Task
from collir.synthesis.pipelines.work import PipelineWork

WARMTHS = (0.0, 0.003, 0.01, 0.03)
"""For each round, the part of the time by which an exchange may make a schedule slower at first."""

Position = tuple[int, int]
"""A place, and the index of a task in its order."""


def improved_schedule(
    work: PipelineWork,
    schedule: Schedule,
    trials: int,
    enough: float = 0.0,
    seconds: float = math.inf,
) -> tuple[Schedule, bool]:
    """Return the fastest schedule that some exchanges lead to; it is never slower, and it fits.

    Args:
        trials: number of exchanges to try in each round, which begins with the best schedule.
        enough: seconds of a schedule that need not be improved.
        seconds: limit of the time for it.

    Returns: the schedule, and whether the user interrupted the exchanges.
    """
    rng = random.Random(0)
    run = best = work.run(schedule)
    deadline = monotonic() + seconds
    try:
        for warmth, trial in product(WARMTHS, range(trials)):
            if trial == 0:
                run = best
            if best.time <= enough or monotonic() > deadline:
                break
            if not (pairs := _exchanges(work, run)):
                break
            following = _exchanged(work, run.schedule, *rng.choice(pairs))
            slower = warmth * (1 - trial / trials) * rng.random()
            if following is not None and following.time <= run.time * (1 + slower):
                run = following
                best = min(best, run, key=lambda run: run.time)
    except KeyboardInterrupt:
        return best.schedule, True
    return best.schedule, False


def _exchanges(work: PipelineWork, run: PipelineRun) -> list[Position]:
    """Return the second task of each pair on a critical path that may be exchanged."""
    orders, starts, ends = run.schedule.orders, run.starts, run.ends
    position = {
        task: (place, index)
        for place, order in enumerate(orders)
        for index, task in enumerate(order)
    }
    pairs: list[Position] = []
    last = max(range(work.places), key=lambda place: ends[place][-1] if ends[place] else 0.0)
    at: Position | None = (last, len(orders[last]) - 1)
    while at is not None:
        place, index = at
        task, start = orders[place][index], starts[place][index]
        at = None
        for part in work.graph.needs.get(task.part, ()):
            task_place, n = position[Task(*part, task.microbatch)]
            if ends[task_place][n] + work.sends.get((part, task.part), 0.0) == start:
                at = task_place, n
        if index and ends[place][index - 1] == start:
            before = orders[place][index - 1]
            needed = before.part in work.graph.needs.get(task.part, ())
            if before.part != task.part and not (needed and before.microbatch == task.microbatch):
                pairs.append((place, index))
            at = at or (place, index - 1)
    return pairs


def _exchanged(
    work: PipelineWork, schedule: Schedule, place: int, index: int
) -> PipelineRun | None:
    """Return the run with a task moved before its predecessor; None if memory is short."""
    order = list(schedule.orders[place])
    order[index - 1], order[index] = order[index], order[index - 1]
    orders = (*schedule.orders[:place], tuple(order), *schedule.orders[place + 1 :])
    if held_activations(orders, place, work.kept).max() > work.limits[place]:
        return None
    return work.run(Schedule(orders, schedule.microbatches, schedule.splits_backward))
