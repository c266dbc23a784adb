"""Which tasks of a schedule may run at the same time, for any times of them.

A task starts behind the tasks whose results it needs, behind the earlier ones of its streams, and
where each of its classes of devices issues it: behind the earlier tasks that are waited for, and
behind what an earlier task of the class needs of it (``collir.cost.programs.schedule``). All other
tasks may run beside it. Sets of tasks are integers with a bit for each.
"""

from collections.abc import Iterator, Sequence

from collir.cost.network.loads import Resource
from collir.cost.programs.schedule import StepTask, Stream


def ended_before(tasks: Sequence[StepTask]) -> list[int]:
    """Return for each task the set of those that have ended when it starts."""
    behind: list[int] = []
    issued: dict[int, int] = {}
    streams: dict[Stream, int] = {}
    for number, task in enumerate(tasks):
        seen = 0
        for device_class in task.on:
            before = issued.get(device_class, 0)
            for n in task.after:
                if device_class in tasks[n].on:
                    before |= behind[n] | 1 << n
            issued[device_class] = before
            seen |= before | streams.get((device_class, task.stream), 0)
        for n in task.after:
            seen |= behind[n] | 1 << n
        behind.append(seen)
        for device_class in task.on:
            streams[device_class, task.stream] = seen | 1 << number
            if task.waited:
                issued[device_class] |= seen | 1 << number
    return behind


def last_before(behind: Sequence[int]) -> list[tuple[int, ...]]:
    """Return for each task those right before it: all others that have ended when it starts have
    ended when one of these starts."""
    found: list[tuple[int, ...]] = []
    for left in behind:
        last: list[int] = []
        while left:
            number = left.bit_length() - 1
            last.append(number)
            left &= ~(behind[number] | 1 << number)
        found.append(tuple(reversed(last)))
    return found


def sharing(tasks: Sequence[StepTask], behind: Sequence[int]) -> list[set[tuple[int, ...]]]:
    """Return for each task the sets of others that may use one of its ports while it runs, one set
    for each port; none if it shares no port."""
    users: dict[Resource, int] = {}
    for number, task in enumerate(tasks):
        for resource in task.busy:
            users[resource] = users.get(resource, 0) | 1 << number
    found: list[set[tuple[int, ...]]] = []
    for number, task in enumerate(tasks):
        sets = set[tuple[int, ...]]()
        for resource in task.busy:
            apart = users[resource] & ~behind[number] & ~(1 << number)
            sets.add(tuple(n for n in numbers_in(apart) if not behind[n] >> number & 1))
        found.append(sets - {()})
    return found


def numbers_in(members: int) -> Iterator[int]:
    """Yield the numbers in a set."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest
