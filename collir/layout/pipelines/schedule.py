"""Schedules: for each place the order of its tasks, and what is wrong with one."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby

from collir.layout.pipelines.tasks import Part, Task, TaskGraph, part_name
from collir.layout.pipelines.timing import Orders, Timing, deadlock, timing


@dataclass(frozen=True)
class Schedule:
    """The order of the tasks of a pipeline at each place.

    Attributes:
        orders: the tasks of each place, in order.
        microbatches: number of microbatches; each part has a task for each of them.
        splits_backward: whether W are tasks of their own.
    """

    orders: tuple[tuple[Task, ...], ...]
    microbatches: int
    splits_backward: bool

    @property
    def places(self) -> int:
        """The number of places."""
        return len(self.orders)

    def only(self, parts: Iterable[Part]) -> "Schedule":
        """Return the schedule without the tasks of other parts.

        A chunk without weights has no W, for instance, and the first may have no B.
        """
        kept = set(parts)
        orders = tuple(tuple(task for task in order if task[:2] in kept) for order in self.orders)
        return Schedule(orders, self.microbatches, any(kind == "W" for kind, _ in kept))


def problems(schedule: Schedule, graph: TaskGraph) -> list[str]:
    """Return what is wrong with a schedule of the tasks of a program, in sentences.

    Each microbatch of each part runs once, at the place of the part, in order of the microbatches
    (gradients are summed in this order), and no task waits forever. Deadlocks are looked for only
    where nothing else is wrong.
    """
    places = max(graph.places.values(), default=-1) + 1
    if places != schedule.places:
        has = counted(schedule.places, "place")
        return [f"the schedule has {has}, but the program has {places}"]
    if misplaced := list(_misplaced(schedule, graph)):
        return misplaced
    cycle = deadlock(schedule.orders, graph, _timing(schedule, graph))
    return [_deadlock_text(cycle, graph)] if cycle else []


def program_order(schedule: Schedule, graph: TaskGraph) -> list[Task]:
    """Return all tasks in one order that agrees with the orders of all places.

    They are ordered by their starts if each task takes as long as any other, then by place.

    Raises:
        ValueError: the schedule deadlocks.
    """
    run = schedule_timing(schedule, graph)
    starts = chain.from_iterable(
        zip(starts, order, strict=True)
        for starts, order in zip(run.starts, schedule.orders, strict=True)
    )
    return [task for _, task in sorted(starts, key=lambda pair: pair[0])]


def schedule_timing(
    schedule: Schedule,
    graph: TaskGraph,
    durations: Mapping[Part, float] | None = None,
    sends: Mapping[tuple[Part, Part], float] | None = None,
) -> Timing:
    """Run the tasks of a schedule, each as early as possible.

    Args:
        durations: seconds of each part, not negative; by default 1 each.
        sends: seconds from the end of a part to the arrival of its result at one that needs it;
            0 where nothing is said.

    Raises:
        ValueError: the schedule deadlocks.
    """
    run = _timing(schedule, graph, durations, sends)
    if cycle := deadlock(schedule.orders, graph, run):
        raise ValueError(_deadlock_text(cycle, graph))
    return run


def _timing(
    schedule: Schedule,
    graph: TaskGraph,
    durations: Mapping[Part, float] | None = None,
    sends: Mapping[tuple[Part, Part], float] | None = None,
) -> Timing:
    known = dict.fromkeys(graph.places, 1.0) if durations is None else durations
    return timing(schedule.orders, schedule.microbatches, graph, known, sends or {})


def _misplaced(schedule: Schedule, graph: TaskGraph) -> Iterator[str]:
    """Yield the tasks that are unknown, at a wrong place, repeated, missing, or out of order."""
    next_microbatch = dict.fromkeys(graph.places, 0)
    ordered, strange = True, defaultdict[tuple[Part, int], list[Task]](list)
    for place, order in enumerate(schedule.orders):
        for task in order:
            kind, chunk, microbatch = task
            part = kind, chunk
            if graph.places.get(part) != place or microbatch >= schedule.microbatches:
                strange[part, place].append(task)
            elif next_microbatch[part] != microbatch:
                ordered = False
            else:
                next_microbatch[part] += 1
    for (part, place), (task, *others) in strange.items():
        more = f" (and {len(others)} more of {part_name(part)})" if others else ""
        yield _unknown(task, place, schedule, graph) + more
    if not ordered or any(count < schedule.microbatches for count in next_microbatch.values()):
        yield from _miscounted(schedule.orders, schedule.microbatches, graph)


def _unknown(task: Task, place: int, schedule: Schedule, graph: TaskGraph) -> str:
    """Return why a task is not one of a place."""
    if task.part not in graph.places:
        parts = ", ".join(map(part_name, sorted(graph.places, key=lambda part: part[::-1])))
        return f"{task} at place {place} is no task of the program, whose tasks are {parts}"
    if task.microbatch >= schedule.microbatches:
        last = counted(schedule.microbatches, "microbatch", "microbatches")
        return f"{task} at place {place} is of a microbatch that is not there: there are {last}"
    right = f"{part_name(task.part)} is at place {graph.places[task.part]}"
    return f"{task} is at place {place}, but {right}"


def _miscounted(orders: Orders, microbatches: int, graph: TaskGraph) -> Iterator[str]:
    """Yield the tasks that are repeated or missing, and the first of each part out of order."""
    counts = Counter(chain.from_iterable(orders))
    for task, count in counts.items():
        if count > 1:
            yield f"{task} is there {count} times"
    for part, place in graph.places.items():
        missing = [n for n in range(microbatches) if Task(*part, n) not in counts]
        for first, last in _intervals(missing):
            if first == last:
                yield f"{Task(*part, first)} is missing at place {place}"
            else:
                yield f"{Task(*part, first)} to {Task(*part, last)} are missing at place {place}"
    latest: dict[Part, Task] = {}
    late: set[Part] = set()
    for task in chain.from_iterable(orders):
        before = latest.setdefault(task.part, task)
        if task.microbatch < before.microbatch and task.part not in late:
            late.add(task.part)
            yield f"{task} is behind {before}: {part_name(task.part)} takes microbatches in order"
        latest[task.part] = max(before, task)


def _intervals(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of consecutive numbers; they are in order."""
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        consecutive = [number for _, number in run]
        yield consecutive[0], consecutive[-1]


def _deadlock_text(cycle: list[Task], graph: TaskGraph) -> str:
    """Return the sentence of a deadlock, with each task's reason to wait for the next."""
    named = [f"{task} (place {graph.places[task.part]})" for task in cycle]
    text = f"the schedule deadlocks: {named[0]}"
    for index, task in enumerate(cycle):
        after = (index + 1) % len(cycle)
        is_needed = cycle[after].part in graph.needs.get(task.part, ())
        is_needed = is_needed and cycle[after].microbatch == task.microbatch
        verb = "waits for" if is_needed else "is behind"
        text += f"{', which' if index else ''} {verb} {named[after]}"
    return text


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a number with a noun."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
