"""The order in which a function issues its steps, so that collectives run beside computations.

Every step is a task: a collective runs on the stream of its level, and every other step on the
stream of the device, which waits for it. Of the collectives that are ready, and likewise of the
other steps, the task with the longest path to the end goes first (a list schedule, Graham 1966).
Alternatively, steps that enable a longer collective, such as packing, go before all others
(Johnson's rule for two machines, 1954). These orders assume that each task runs alone.

A collective is issued when its stream is free; or ahead, if it could start while the device is busy
with its next step. A library without streams sends all issued collectives at once, so that the
first one ends later: an order that issues ahead is taken only if it is faster. The orders and the
written one are compared by a schedule in which tasks share the machine.
"""

import heapq
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.collectives.phases import Phase
from collir.cost.model import CostModel, StepCost
from collir.cost.programs.collectives import op_cost, stream_of
from collir.cost.programs.kernels import FusedKernels, kernels_of, runs_compiled
from collir.cost.programs.local_steps import local_phases, sent_phases
from collir.cost.programs.operations import local_step
from collir.cost.programs.schedule import StepTask, schedule
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, is_collective
from collir.ir.buffers import plan_buffers
from collir.ir.steps import steps_of
from collir.layout import Mesh

AS_FAST = 2e-3
"""Relative difference up to which the times of two orders count as equal."""

Steps = Sequence[tuple[tuple[Phase, ...], int]]
"""The steps that a collective runs, in order: the phases and the stream of each."""


@dataclass(frozen=True)
class TimedSteps:
    """The steps of a function that take time, in the order in which they are written.

    Attributes:
        ops: operation of each step.
        tasks: task of each step. ``after`` has the steps whose results it needs; only steps of the
            device, and collectives that cannot be ``async``, are waited for.
        ends: for each step, the number of the last step of its kernel.
    """

    ops: tuple[Operation, ...]
    tasks: tuple[StepTask, ...]
    ends: tuple[int, ...]

    def best(self) -> tuple[float, list[int]]:
        """Return the seconds of the best order that was tried, and the order."""
        return self.orders()[0]

    def orders(self) -> list[tuple[float, list[int]]]:
        """Return the orders that were tried, each with its seconds, the fastest first.

        Among orders of the same time, an order that issues less ahead comes first.
        """
        orders = [
            self._together(list(_ListSchedule(self.tasks, johnson).order(ahead)))
            for ahead in (False, True)
            for johnson in (False, True)
        ]
        orders.append(list(range(len(self.tasks))))
        untried = [(self.time(order), order) for order in orders]
        tried: list[tuple[float, list[int]]] = []
        while untried:
            fastest = min(time for time, _ in untried) * (1 + AS_FAST)
            number = next(n for n, (time, _) in enumerate(untried) if time <= fastest)
            tried.append(untried.pop(number))
        return tried

    def _together(self, order: list[int]) -> list[int]:
        """Return an order with the steps of each kernel at the place of its last step; the order
        itself if that would close a cycle."""
        place = {number: index for index, number in enumerate(order)}
        parts: dict[int, list[int]] = {}
        for number, end in enumerate(self.ends):
            parts.setdefault(end, []).append(number)
        unit = {end: index for index, end in enumerate(parts)}
        needed = [
            {unit[self.ends[x]] for number in own for x in self.tasks[number].after} - {unit[end]}
            for end, own in parts.items()
        ]
        kernels = [*parts.values()]
        ordered = _behind(needed, [place[end] for end in parts])
        return [n for kernel in ordered for n in kernels[kernel]] if ordered else order

    def time(self, order: Sequence[int]) -> float:
        """Return the seconds of all tasks issued in an order."""
        place = {number: index for index, number in enumerate(order)}
        tasks = [
            StepTask(
                task.phases, task.stream, tuple(place[number] for number in task.after), task.waited
            )
            for task in (self.tasks[number] for number in order)
        ]
        return max((end for _, end in schedule(tasks)), default=0.0)


def work_of(
    function: FuncOp, model: CostModel, steps: Callable[[DistOp], Steps] | None = None
) -> TimedSteps:
    """Return the steps of a function as tasks.

    Args:
        steps: function from a collective to its steps; by default it is one step under the model.

    Raises:
        DiagnosticError: a collective without a cost, a computation on a device without a rate.
    """
    mesh, where = mesh_of(function), plan_buffers(function)
    block = function.body.block
    kernels = kernels_of(block) if runs_compiled(block) else FusedKernels()
    ops: list[Operation] = []
    tasks: list[StepTask] = []
    last: list[tuple[int, ...]] = []
    steps = steps or _as_written(mesh, model)
    for op, predecessors in steps_of(function.body.ops, mesh):
        assert isinstance(op, DistOp)  # the passes cut programs at loops
        after = tuple(sorted({number for step in predecessors for number in last[step]}))
        if is_collective(op):
            for phases, stream in steps(op):
                waited = not op.kind.may_be_async or stream == len(mesh.machine.levels)
                ops.append(op)
                tasks.append(StepTask(phases, stream, after, waited))
                after = (len(ops) - 1,)
            last.append(after)  # the needs of an operation whose steps take no time
        else:
            local = local_step(op, mesh, where, kernels=kernels)
            inside = kernels.is_inside(op.result)
            does = () if inside else local_phases(local, mesh.machine.slowest)
            ops.append(op)
            tasks.append(StepTask(does, len(mesh.machine.levels), after))
            last.append((len(ops) - 1,))
    numbers = {op: number for number, op in enumerate(ops)}
    kernel = (kernels.last.get(op) for op in ops)
    ends = tuple(number if op is None else numbers[op] for number, op in enumerate(kernel))
    return TimedSteps(tuple(ops), tuple(tasks), ends)


def sent_steps(costs: Iterable[StepCost]) -> list[tuple[tuple[Phase, ...], int]]:
    """Return the steps of collectives, one behind the other."""
    return [(sent_phases(cost), stream_of(cost.collective)) for cost in costs]


def _as_written(mesh: Mesh, model: CostModel) -> Callable[[DistOp], Steps]:
    """Return a function from a collective to its step as written; equal ones are costed once."""
    known: dict[Hashable, Steps] = {}

    def steps(op: DistOp) -> Steps:
        alike = (op.name, frozenset(op.properties.items()), op.operands[0].type)
        if alike not in known:
            known[alike] = sent_steps([op_cost(op, mesh, model)])
        return known[alike]

    return steps


class _ListSchedule:
    """A list schedule of tasks: each is issued as early as possible, longest paths first.

    Attributes:
        users: the tasks that need the result of each task.
        priority: seconds of the longest path from the start of each task to the end; with
            ``johnson``, tasks that enable a longer collective come before all others.
    """

    def __init__(self, tasks: Sequence[StepTask], johnson: bool):
        self.tasks = tasks
        self.users: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for needed in task.after:
                self.users[needed].append(number)
        self.priority = [0.0] * len(tasks)
        for number in reversed(range(len(tasks))):
            rest = max((self.priority[user] for user in self.users[number]), default=0.0)
            self.priority[number] = tasks[number].time + rest
        if johnson:
            total = math.fsum(task.time for task in tasks)
            for number, task in enumerate(tasks):
                users = (tasks[user] for user in self.users[number])
                longest = max((user.time for user in users if not user.waited), default=0.0)
                self.priority[number] += total if task.waited and task.time < longest else 0.0

    def order(self, ahead: bool) -> Iterator[int]:
        """Yield the tasks in the order in which they are issued; ties go to the written order.

        Args:
            ahead: whether a collective that starts while the device is busy is issued before that.
        """
        missing = [len(task.after) for task in self.tasks]
        coming: list[tuple[float, int]] = []  # heap by the time at which operands are ready
        waited: list[tuple[float, int]] = []  # ready tasks of the device, longest paths first
        sending: dict[int, list[tuple[float, int]]] = {}  # ready collectives of each stream
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
                    ready = max(ends[needed] for needed in self.tasks[user].after)
                    heapq.heappush(coming, (ready, user))

        for number, task in enumerate(self.tasks):
            if not task.after:
                heapq.heappush(coming, (0.0, number))
        while coming or waited or any(sending.values()):
            while coming and coming[0][0] <= now:
                _, number = heapq.heappop(coming)
                task = self.tasks[number]
                queue = waited if task.waited else sending.setdefault(task.stream, [])
                heapq.heappush(queue, (-self.priority[number], number))
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
                now = min([*turns, *(ready for ready, _ in coming[:1])], default=now)


def write_in_order(function: FuncOp, rank: Mapping[Operation, float]) -> None:
    """Write the operations of a function in the order of their ranks, each behind its operands.

    The operations need not stand behind their operands before. An operation without a rank comes
    right before its first user.
    """
    block = function.body.block
    ops = list(block.ops)
    places: dict[Operation, float] = {}
    unused = max(rank.values(), default=0.0) + 1
    for op in reversed(_behind_operands(ops, [0.0] * len(ops))):
        users = (places[use.operation] for value in op.results for use in value.uses)
        places[op] = rank[op] if op in rank else min(users, default=unused)
    places[ops[-1]] = math.inf  # the return
    written = _behind_operands(ops, [places[op] for op in ops])
    for op in ops:
        block.detach_op(op)
    block.add_ops(written)


def _behind_operands(ops: Sequence[Operation], ranks: Sequence[float]) -> list[Operation]:
    """Return operations sorted stably by their ranks, but each behind its operands."""
    place = {op: index for index, op in enumerate(ops)}
    needed = [{place[x.owner] for x in op.operands if isinstance(x.owner, Operation)} for op in ops]
    order = _behind(needed, ranks)
    assert len(order) == len(ops), "operations need each other"
    return [ops[index] for index in order]


def _behind(needed: Sequence[Collection[int]], ranks: Sequence[float]) -> list[int]:
    """Return numbers sorted stably by their ranks, each behind those that it needs; none on a
    cycle."""
    users: list[list[int]] = [[] for _ in needed]
    for number, before in enumerate(needed):
        for earlier in before:
            users[earlier].append(number)
    missing = [len(before) for before in needed]
    ready = [(ranks[number], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    ordered: list[int] = []
    while ready:
        _, number = heapq.heappop(ready)
        ordered.append(number)
        for user in users[number]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (ranks[user], user))
    return ordered if len(ordered) == len(needed) else []
