"""The earliest start of each task of a schedule, and the cycle of one that deadlocks.

Each place runs its tasks in order, one at a time, each as soon as the tasks that it needs have
ended and their results have arrived. This is the longest path through the union of the data
dependencies and the orders of the places, in time linear in its size.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collir.layout.pipelines.tasks import Part, Task, TaskGraph

Orders = Sequence[Sequence[Task]]
"""The tasks of each place, in order."""

NOT_ENDED = -1.0
"""The end of a task that has not run."""


@dataclass(frozen=True)
class Timing:
    """The run of a schedule without contention.

    Attributes:
        starts, ends: seconds for each place and each of its tasks in order; fewer than its tasks
            where a place waits forever.
        ended: seconds at which each microbatch of a part ended; ``NOT_ENDED``: never.
    """

    starts: list[list[float]]
    ends: list[list[float]]
    ended: Mapping[Part, list[float]]


def timing(
    orders: Orders,
    microbatches: int,
    graph: TaskGraph,
    durations: Mapping[Part, float],
    sends: Mapping[tuple[Part, Part], float],
) -> Timing:
    """Run orders of known tasks, each task as early as possible.

    Args:
        durations: seconds of each part, not negative.
        sends: seconds from the end of a part to the arrival of its result at one that needs it;
            0 where nothing is said.
    """
    ended = {part: [NOT_ENDED] * microbatches for part in graph.places}
    needs = {
        part: tuple((n, ended[n], sends.get((n, part), 0.0)) for n in graph.needs.get(part, ()))
        for part in graph.places
    }
    starts: list[list[float]] = [[] for _ in orders]
    ends: list[list[float]] = [[] for _ in orders]
    free = [0.0] * len(orders)
    waiting: dict[Task, list[int]] = defaultdict(list)
    ready = list(range(len(orders)))
    while ready:
        place = ready.pop()
        order, clock, place_ends = orders[place], free[place], ends[place]
        add_start, add_end = starts[place].append, place_ends.append
        for index in range(len(place_ends), len(order)):
            task = order[index]
            kind, chunk, microbatch = task
            part = kind, chunk
            start, missing = clock, None
            for needed, needed_ends, send in needs[part]:
                if (end := needed_ends[microbatch]) < 0:
                    missing = needed
                    break
                if end + send > start:
                    start = end + send
            if missing is not None:
                waiting[Task(*missing, microbatch)].append(place)
                break
            clock = start + durations[part]
            add_start(start)
            add_end(clock)
            ended[part][microbatch] = clock
            if waiting and task in waiting:
                ready += waiting.pop(task)
        free[place] = clock
    return Timing(starts, ends, ended)


def deadlock(orders: Orders, graph: TaskGraph, run: Timing) -> list[Task]:
    """Return a cycle of tasks, each waiting for the next and the last for the first.

    A task waits for a task that it needs, or for the first task in its place that has not run.

    Args:
        run: what ``timing`` returns of these orders.

    Returns: the shortest cycle through such a first task; empty if every task has run.
    """
    heads = {
        place: order[len(done)]
        for place, (order, done) in enumerate(zip(orders, run.ends, strict=True))
        if len(done) < len(order)
    }
    cycles = [_cycle_through(head, heads, graph, run) for head in heads.values()]
    return min(filter(None, cycles), key=len) if any(cycles) else []


def _cycle_through(
    head: Task, heads: Mapping[int, Task], graph: TaskGraph, run: Timing
) -> list[Task]:
    """Return the shortest cycle through a task, found breadth first; empty if there is none."""
    came_from: dict[Task, Task] = {}
    frontier = [head]
    while frontier:
        following: list[Task] = []
        for task in frontier:
            for waited in _waits_for(task, heads, graph, run):
                if waited == head:
                    return _path(task, came_from, head)
                if waited not in came_from:
                    came_from[waited] = task
                    following.append(waited)
        frontier = following
    return []


def _waits_for(task: Task, heads: Mapping[int, Task], graph: TaskGraph, run: Timing) -> list[Task]:
    microbatch = task.microbatch
    missing = [
        Task(*part, microbatch)
        for part in graph.needs.get(task.part, ())
        if run.ended[part][microbatch] < 0
    ]
    head = heads[graph.places[task.part]]
    return missing if head == task else [*missing, head]


def _path(task: Task, came_from: Mapping[Task, Task], head: Task) -> list[Task]:
    path = [task]
    while path[-1] != head:
        path.append(came_from[path[-1]])
    return path[::-1]
