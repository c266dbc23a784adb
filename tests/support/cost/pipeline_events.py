"""A simulation of pipelines by events: places are machines with a mailbox for results."""

import heapq
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from collir.layout.pipelines.schedule import Schedule
from collir.layout.pipelines.tasks import Part, Task, TaskGraph


@dataclass
class _Place:
    """A place: the tasks ahead of it, and how many results of each have arrived."""

    queue: deque[Task]
    busy: bool = False
    arrived: dict[Task, int] = field(default_factory=dict[Task, int])


def simulated(
    schedule: Schedule,
    graph: TaskGraph,
    durations: Mapping[Part, int],
    sends: Mapping[tuple[Part, Part], int],
) -> dict[Task, tuple[int, int]]:
    """Return start and end of every task that runs; those of a deadlock never do."""
    places = [_Place(deque(order)) for order in schedule.orders]
    users: dict[Part, list[Part]] = {part: [] for part in graph.places}
    for source, part in graph.edges:
        users[source].append(part)
    events: list[tuple[int, int, str, Task]] = []
    times: dict[Task, tuple[int, int]] = {}

    def try_start(place: _Place, now: int) -> None:
        if place.busy or not place.queue:
            return
        task = place.queue[0]
        if place.arrived.get(task, 0) == len(graph.needs[task.part]):
            place.queue.popleft()
            place.busy = True
            end = now + durations[task.part]
            times[task] = (now, end)
            heapq.heappush(events, (end, len(times), "end", task))

    for place in places:
        try_start(place, 0)
    while events:
        now, number, event, task = heapq.heappop(events)
        place = places[graph.places[task.part]]
        if event == "end":
            place.busy = False
            for user in users[task.part]:
                arrival = now + sends.get((task.part, user), 0)
                message = Task(*user, task.microbatch)
                heapq.heappush(events, (arrival, number, "arrival", message))
        else:
            place.arrived[task] = place.arrived.get(task, 0) + 1
        try_start(place, now)
    return times


def random_graph(rng: random.Random, places: int, chunks: int) -> TaskGraph:
    """Return tasks with skip connections, some chunks without B or W, at random places."""
    where = [rng.randrange(places) for _ in range(chunks)]
    where[: min(places, chunks)] = range(min(places, chunks))
    needs: dict[Part, tuple[Part, ...]] = {}
    for chunk in range(chunks):
        before = [n for n in range(chunk) if n == chunk - 1 or rng.random() < 0.2]
        needs["F", chunk] = tuple(("F", n) for n in before)
    for chunk in reversed(range(chunks)):
        users = [("B", n) for _, n in needs if ("F", chunk) in needs["F", n]]
        needs["B", chunk] = (("F", chunk), *users)
        if rng.random() < 0.7:
            needs["W", chunk] = (("B", chunk),)
    return TaskGraph({part: where[part[1]] for part in needs}, needs)


def random_schedule(rng: random.Random, graph: TaskGraph, microbatches: int) -> Schedule:
    """Return a schedule in a random order of tasks that are ready."""
    places = max(graph.places.values()) + 1
    orders: list[list[Task]] = [[] for _ in range(places)]
    done: set[Task] = set()
    position = dict.fromkeys(graph.places, 0)
    weights = {part: rng.random() ** 3 for part in graph.places}
    while len(done) < microbatches * len(graph.places):
        ready = [
            Task(*part, n)
            for part, n in position.items()
            if n < microbatches and all(Task(*need, n) in done for need in graph.needs[part])
        ]
        task = rng.choices(ready, [weights[task.part] + 1e-3 for task in ready])[0]
        orders[graph.places[task.part]].append(task)
        done.add(task)
        position[task.part] += 1
    splits = any(kind == "W" for kind, _ in graph.places)
    return Schedule(tuple(map(tuple, orders)), microbatches, splits)
