"""The time of a pipeline and the activations that it keeps, without contention.

Each place runs its tasks in order, one at a time; results arrive a fixed time after their task has
ended, whatever else is sent. A place keeps the activations of a microbatch of a chunk from the
start of F until B, and the operands of W until W. So the order of a place alone says how much it
keeps; times say when.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collir.layout.pipelines.schedule import Schedule, schedule_timing
from collir.layout.pipelines.tasks import Part, TaskGraph
from collir.layout.pipelines.timing import Orders

Amounts = NDArray[np.float64]


class KeptActivations(NamedTuple):
    """The activations that a chunk keeps of one microbatch, in bytes (or microbatches).

    Attributes:
        until_backward: from the start of F to the end of B; without B, to the end of W or F.
        until_weights: from the end of B to the end of W, where W is a task of its own.
    """

    until_backward: float = 1.0
    until_weights: float = 1.0


@dataclass(frozen=True)
class PipelineRun:
    """A schedule with the start and end of each task.

    Attributes:
        starts, ends: seconds for each place and each of its tasks, in order.
    """

    schedule: Schedule
    starts: Sequence[Sequence[float]]
    ends: Sequence[Sequence[float]]

    @property
    def time(self) -> float:
        """Seconds until the last task has ended."""
        return max((ends[-1] for ends in self.ends if ends), default=0.0)

    @property
    def busy(self) -> tuple[float, ...]:
        """Seconds that each place runs tasks."""
        pairs = zip(self.starts, self.ends, strict=True)
        return tuple(float(np.sum(np.asarray(e) - np.asarray(s))) for s, e in pairs)

    @property
    def bubbles(self) -> tuple[float, ...]:
        """Seconds that each place is idle from 0 to the end of the last task of all."""
        return tuple(self.time - busy for busy in self.busy)

    def held(
        self, place: int, kept: Mapping[int, KeptActivations] | None = None
    ) -> tuple[NDArray[np.float64], Amounts]:
        """Return the times at which activations of a place change, and the amounts from then on.

        Args:
            kept: the activations of each chunk; by default 1 until B and W, so that microbatches
                are counted.

        Returns: the seconds and the amounts at the start and at the end of each task.
        """
        times = np.column_stack((self.starts[place], self.ends[place])).ravel()
        return times, held_activations(self.schedule.orders, place, kept)

    def peak(self, place: int, kept: Mapping[int, KeptActivations] | None = None) -> float:
        """Return the most that a place keeps at any time; see ``held``."""
        return float(held_activations(self.schedule.orders, place, kept).max(initial=0.0))


def run_pipeline(
    schedule: Schedule,
    graph: TaskGraph,
    durations: Mapping[Part, float],
    sends: Mapping[tuple[Part, Part], float] | None = None,
) -> PipelineRun:
    """Return the run of a schedule, each task as early as possible, in time linear in the tasks.

    Args:
        durations: seconds of each part.
        sends: seconds from the end of a part to the arrival of its result at a part that needs it;
            0 by default.

    Raises:
        ValueError: the schedule deadlocks.
    """
    timing = schedule_timing(schedule, graph, durations, sends)
    return PipelineRun(schedule, timing.starts, timing.ends)


def held_activations(
    orders: Orders, place: int, kept: Mapping[int, KeptActivations] | None = None
) -> Amounts:
    """Return the amounts that a place keeps from the start and the end of each task on."""
    order = orders[place]
    changes = kept_changes({task[:2] for task in order}, kept or {})
    return np.cumsum([change for task in order for change in changes[task[:2]]], dtype=np.float64)


def kept_changes(
    parts: Collection[Part], kept: Mapping[int, KeptActivations]
) -> dict[Part, tuple[float, float]]:
    """Return the changes of what a place keeps, at the start and at the end of each part."""
    changes = dict.fromkeys(parts, (0.0, 0.0))
    for chunk in {chunk for _, chunk in parts}:
        until_backward, until_weights = kept.get(chunk, KeptActivations())
        phases = [kind for kind in "FBW" if (kind, chunk) in parts]
        levels = [until_backward, until_weights] if phases[1:] == ["B", "W"] else [until_backward]
        if phases[0] == "F":
            changes["F", chunk] = (until_backward, 0.0)
            for kind, level, after in zip(
                phases[-len(levels) :], levels, [*levels[1:], 0.0], strict=True
            ):
                start, end = changes[kind, chunk]
                changes[kind, chunk] = (start, end + after - level)
    return changes
