"""The tasks of a schedule that may run at the same time, for any times of tasks.

A task starts after the tasks whose results it needs, after the earlier tasks of its streams, and
after each of its classes has issued it. A class issues a task when earlier tasks that are waited
for have ended, and when the operands of its earlier tasks are there
(``collir.cost.programs.schedule``). All other tasks may run beside it. Sets of tasks are integers
with a bit for each.
"""

from collections.abc import Iterator, Sequence

from collir.cost.network.loads import Resource
from collir.cost.programs.schedule import StepTask, Stream


def ended_before(tasks: Sequence[StepTask]) -> list[int]:
    """Return for each task the set of tasks that have ended when it starts."""
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
    """Return for each task the tasks right before it: whatever has ended when it starts is one of
    them or has ended when one of them starts."""
    preceding: list[tuple[int, ...]] = []
    for left in behind:
        last: list[int] = []
        while left:
            number = left.bit_length() - 1
            last.append(number)
            left &= ~(behind[number] | 1 << number)
        preceding.append(tuple(reversed(last)))
    return preceding


def sharing(tasks: Sequence[StepTask], behind: Sequence[int]) -> list[set[tuple[int, ...]]]:
    """Return for each task, and each of its ports, the set of other tasks that may use the port
    meanwhile; ports without such tasks are left out."""
    users: dict[Resource, int] = {}
    for number, task in enumerate(tasks):
        for resource in task.busy:
            users[resource] = users.get(resource, 0) | 1 << number
    beside: list[set[tuple[int, ...]]] = []
    for number, task in enumerate(tasks):
        sets = set[tuple[int, ...]]()
        for resource in task.busy:
            apart = users[resource] & ~behind[number] & ~(1 << number)
            sets.add(tuple(n for n in numbers_in(apart) if not behind[n] >> number & 1))
        beside.append(sets - {()})
    return beside


def numbers_in(members: int) -> Iterator[int]:
    """Yield the numbers in a set."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest
