"""In which order a function issues its steps, so that collectives run beside computations.

Every step is a task: a collective on the stream of its level, all else on that of the device, which
waits for it. Of those that are ready to be sent the one with the longest way to the end goes first,
and so does that of those which the device does itself (a list schedule, Graham 1966); or, before
all others, those that let something be sent which takes longer than they do (Johnson's rule for two
machines, 1954), such as packing. Tasks are taken to be alone for that.

What is sent is issued when its stream is free; or ahead, if it is to start while the device is busy
with its next step. A library that knows no streams sends all that is issued at once, and is late
with the first: so the former is taken unless the latter is faster. Which order is the best, of
these and the written one, says the schedule in which tasks share the machine.
"""

import heapq
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.model import CostModel, StepCost
from collir.cost.programs.cost import op_cost, stream_of
from collir.cost.programs.schedule import Task, schedule
from collir.cost.programs.simulation import local_phases, local_step, sent_phases
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, is_collective
from collir.ir.buffers import plan_buffers
from collir.ir.steps import steps_of
from collir.layout import Mesh

AS_FAST = 2e-3
"""Orders whose times differ by less, as a part of them, are equally good."""

Steps = Sequence[StepCost]
"""What a collective does, one step after the other."""


@dataclass(frozen=True)
class Work:
    """The steps of a function that take time, as tasks; in the order in which they are written.

    Attributes:
        ops: the operation of each.
        tasks: what each does. Those before it are the ones it needs, and may be ``async``: only
            what the device does itself is waited for.
    """

    ops: tuple[Operation, ...]
    tasks: tuple[Task, ...]

    def best(self) -> tuple[float, list[int]]:
        """The best order of all that are tried, and its seconds."""
        orders = [
            list(_ListSchedule(self.tasks, first).order(ahead))
            for ahead in (False, True)
            for first in (False, True)
        ]
        orders.append(list(range(len(self.tasks))))
        times = [self.time(order) for order in orders]
        number = next(n for n, time in enumerate(times) if time <= min(times) * (1 + AS_FAST))
        return times[number], orders[number]

    def time(self, order: Sequence[int]) -> float:
        """Seconds of all tasks, issued in an order."""
        place = {number: index for index, number in enumerate(order)}
        tasks = [
            Task(task.phases, task.stream, tuple(place[one] for one in task.after), task.waited)
            for task in (self.tasks[number] for number in order)
        ]
        return max((end for _, end in schedule(tasks)), default=0.0)


def work_of(
    function: FuncOp, model: CostModel, steps: Callable[[DistOp], Steps] | None = None
) -> Work:
    """The steps of a function as tasks.

    Args:
        steps: what a collective does, in steps; without, the one that it is under the model.

    Raises:
        DiagnosticError: a collective without a cost, a computation on a device without a rate.
    """
    mesh, where = mesh_of(function), plan_buffers(function)
    ops: list[Operation] = []
    tasks: list[Task] = []
    last: list[tuple[int, ...]] = []
    steps = steps or _as_written(mesh, model)
    for op, predecessors in steps_of(function.body.ops, mesh):
        after = tuple(sorted({number for step in predecessors for number in last[step]}))
        if is_collective(op):
            waited = not op.kind.may_be_async
            for step in steps(op):
                ops.append(op)
                tasks.append(Task(sent_phases(step), stream_of(step.collective), after, waited))
                after = (len(ops) - 1,)
            last.append(after)  # what it needs itself, if no step of it takes time
        else:
            does = local_phases(local_step(op, mesh, where), mesh.machine.device)
            ops.append(op)
            tasks.append(Task(does, len(mesh.machine.levels), after))
            last.append((len(ops) - 1,))
    return Work(tuple(ops), tuple(tasks))


def _as_written(mesh: Mesh, model: CostModel) -> Callable[[DistOp], Steps]:
    """Collectives as they are written; those that are alike are costed once."""
    known: dict[Hashable, Steps] = {}

    def steps(op: DistOp) -> Steps:
        alike = (op.name, frozenset(op.properties.items()), op.operands[0].type)
        if alike not in known:
            known[alike] = (op_cost(op, mesh, model),)
        return known[alike]

    return steps


class _ListSchedule:
    """Tasks in the order in which they are issued, each as early as may be; with ``first``, by
    Johnson's rule."""

    def __init__(self, tasks: Sequence[Task], first: bool):
        self.tasks = tasks
        self.users: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for one in task.after:
                self.users[one].append(number)
        self.way = [0.0] * len(tasks)
        for number in reversed(range(len(tasks))):
            rest = max((self.way[user] for user in self.users[number]), default=0.0)
            self.way[number] = tasks[number].time + rest
        if first:
            whole = math.fsum(task.time for task in tasks)
            for number, task in enumerate(tasks):
                users = (tasks[user] for user in self.users[number])
                sent = max((one.time for one in users if not one.waited), default=0.0)
                self.way[number] += whole if task.waited and task.time < sent else 0.0

    def order(self, ahead: bool) -> Iterator[int]:
        """The tasks; of equal ones those written first come first.

        Args:
            ahead: whether what starts while the device is busy is issued before.
        """
        missing = [len(task.after) for task in self.tasks]
        coming: list[tuple[float, int]] = []  # when their operands are there
        waited: list[tuple[float, int]] = []  # those that are there, longest ways first
        sending: dict[int, list[tuple[float, int]]] = {}  # and those of each stream
        free: dict[int, float] = {}
        ends = [0.0] * len(self.tasks)
        now = 0.0

        def issue(number: int) -> None:
            task = self.tasks[number]
            ends[number] = max(now, free.get(task.stream, 0.0)) + task.time
            free[task.stream] = ends[number]
            for user in self.users[number]:
                missing[user] -= 1
                if not missing[user]:
                    ready = max(ends[one] for one in self.tasks[user].after)
                    heapq.heappush(coming, (ready, user))

        for number, task in enumerate(self.tasks):
            if not task.after:
                heapq.heappush(coming, (0.0, number))
        while coming or waited or any(sending.values()):
            while coming and coming[0][0] <= now:
                _, number = heapq.heappop(coming)
                task = self.tasks[number]
                queue = waited if task.waited else sending.setdefault(task.stream, [])
                heapq.heappush(queue, (-self.way[number], number))
            until = now + self.tasks[waited[0][1]].time if waited and ahead else now
            while startable := [
                queue
                for stream, queue in sending.items()
                if queue and (free.get(stream, 0.0) <= now or free[stream] < until)
            ]:
                _, number = heapq.heappop(min(startable))
                yield number
                issue(number)
            if waited:
                _, number = heapq.heappop(waited)
                yield number
                issue(number)
                now = ends[number]
            else:
                turns = [free[stream] for stream, queue in sending.items() if queue]
                now = min([*turns, *(one for one, _ in coming[:1])], default=now)


def write_in_order(function: FuncOp, rank: Mapping[Operation, float]) -> None:
    """Writes the operations of a function in the order of their ranks, but each behind its
    operands, also where they were not. Those without a rank come right before the first that uses
    them.
    """
    block = function.body.block
    ops = list(block.ops)
    at: dict[Operation, float] = {}
    unused = max(rank.values(), default=0.0) + 1
    for op in reversed(_behind_operands(ops, [0.0] * len(ops))):
        users = (at[use.operation] for value in op.results for use in value.uses)
        at[op] = rank[op] if op in rank else min(users, default=unused)
    at[ops[-1]] = math.inf  # the return
    written = _behind_operands(ops, [at[op] for op in ops])
    for op in ops:
        block.detach_op(op)
    block.add_ops(written)


def _behind_operands(ops: Sequence[Operation], ranks: Sequence[float]) -> list[Operation]:
    """Operations by their ranks, of equal ones as they are, but each behind its operands."""
    place = {op: index for index, op in enumerate(ops)}
    missing = [
        len({one.owner for one in op.operands if isinstance(one.owner, Operation)}) for op in ops
    ]
    ready = [(ranks[index], index) for index, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    found: list[Operation] = []
    while ready:
        _, index = heapq.heappop(ready)
        found.append(ops[index])
        for user in {use.operation for value in ops[index].results for use in value.uses}:
            number = place[user]
            missing[number] -= 1
            if not missing[number]:
                heapq.heappush(ready, (ranks[number], number))
    assert len(found) == len(ops), "operations need each other"
    return found
