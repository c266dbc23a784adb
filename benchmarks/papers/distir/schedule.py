"""DistIR's schedule of a pipeline: greedy, one forward and one backward job in turn."""

from collections import deque
from functools import cache
from typing import NamedTuple


class Job(NamedTuple):
    """The layers of a stage on a microbatch, forwards or backwards."""

    stage: int
    forward: bool
    microbatch: int


@cache
def time_steps(stages: int, microbatches: int) -> tuple[tuple[Job, ...], ...]:
    """Return the jobs of each time step, by stage.

    A stage with a ready job takes one: of the other direction than its last job if it can, forwards
    at first, and the lowest microbatch. What a job enables is ready in the next step. Nothing
    bounds the microbatches in flight: stage k holds up to min(K, 2 (P - k) - 1).
    """
    ready = [{True: deque[int](), False: deque[int]()} for _ in range(stages)]
    ready[0][True].extend(range(microbatches))
    forward_next = [True] * stages
    steps: list[tuple[Job, ...]] = []
    while jobs := tuple(
        Job(stage, forward, ready[stage][forward].popleft())
        for stage in range(stages)
        if (forward := _direction(ready[stage], forward_next[stage])) is not None
    ):
        for stage, forward, microbatch in jobs:
            forward_next[stage] = not forward
            following = _enabled(stage, forward, stages)
            if following is not None:
                ready[following[0]][following[1]].append(microbatch)
        steps.append(jobs)
    return tuple(steps)


def _direction(ready: dict[bool, deque[int]], preferred: bool) -> bool | None:
    """Return the direction of the job that a stage takes, or None if none is ready."""
    if ready[preferred]:
        return preferred
    return not preferred if ready[not preferred] else None


def _enabled(stage: int, forward: bool, stages: int) -> tuple[int, bool] | None:
    """Return the stage and the direction of the job of a microbatch after another, or None."""
    if forward:
        return (stage + 1, True) if stage < stages - 1 else (stage, False)
    return (stage - 1, False) if stage else None
