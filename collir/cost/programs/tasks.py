"""The steps of a pipeline: its tasks and sends for all microbatches, in one list.

A task is a step that takes as long as its function alone, and uses each port as much as the
function does on average. Each place runs its tasks in the order of the schedule, one after the
other. Sends between two places run on a stream of their own, beside the tasks, and share ports with
all else that is sent.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import BlockArgument, Operation, SSAValue

from collir.cost.programs.classes import DeviceClasses, StepInstance
from collir.cost.programs.memory import Buffer, BufferUse, use_of
from collir.cost.programs.schedule import StepTask
from collir.cost.programs.simulation import SimulatedStep, Simulation, TaskStep
from collir.dialects.nested import CallOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.pipelines import Pipeline
from collir.layout.pipelines.schedule import program_order


@dataclass(eq=False)
class ListedPipeline:
    """The steps of a pipeline in a program.

    Attributes:
        steps: the tasks and sends.
        first, last: for each class of devices, the numbers of its first and last steps.
        inside: for each class of devices, the buffers of values of microbatches.
    """

    steps: list[SimulatedStep] = field(default_factory=list[SimulatedStep])
    first: dict[int, int] = field(default_factory=dict[int, int])
    last: dict[int, int] = field(default_factory=dict[int, int])
    inside: dict[int, list[Buffer]] = field(default_factory=dict[int, list[Buffer]])


class Lister:
    """The list of the steps of a pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        instance: StepInstance,
        before: int,
        name: str,
        classes: DeviceClasses,
        simulated: Callable[[CallOp, StepInstance], Simulation],
        sent: Callable[[DistOp, StepInstance], SimulatedStep],
    ):
        """Prepare the list.

        Args:
            instance: the loop, with the numbers of the steps that it needs.
            before: the number of steps before it.
            name: the name of its first result.
            simulated: function from a task and its instance to the simulation of its function.
            sent: function from a send and its instance to its step.
        """
        self.pipeline, self.classes, self.start = pipeline, classes, before
        self.after = instance.after
        self.simulated, self.sent = simulated, sent
        loop = pipeline.loop
        assert loop.schedule is not None
        self.name = name
        self.schedule = "" if "." in loop.schedule.data else loop.schedule.data
        self.carried = dict(zip(loop.yielded, loop.carries, strict=False))
        self.moves = [op for op in loop.body.block.ops if isinstance(op, DistOp)]
        self.templates: dict[Operation, list[SimulatedStep]] = {}
        self.made: list[dict[SSAValue, int]] = [{} for _ in range(loop.times)]
        self.latest: dict[SSAValue, int] = {}
        self.read: list[dict[SSAValue, list[int]]] = [{} for _ in range(loop.times)]
        self.held: dict[SSAValue, list[tuple[int, int, BufferUse]]] = {}
        self.streams: dict[tuple[int, ...], int] = {}
        self.listed = ListedPipeline()

    def run(self) -> ListedPipeline:
        """Return the list."""
        pipeline = self.pipeline
        behind = {
            call: [op for op in self.moves if op.operands[0].owner is call]
            for call in pipeline.tasks.values()
        }
        early = [op for op in self.moves if isinstance(op.operands[0], BlockArgument)]
        for task in program_order(pipeline.schedule, pipeline.graph):
            call, microbatch = pipeline.tasks[task.part], task.microbatch
            for op in early if early and early[0].result not in self.made[microbatch] else ():
                self._add(op, microbatch)
            self._add(call, microbatch)
            for op in behind[call]:
                self._add(op, microbatch)
        for microbatch in range(pipeline.loop.times):
            self._add_buffers(microbatch)
        return self.listed

    def _add(self, op: CallOp | DistOp, microbatch: int) -> None:
        """Add a task or a send of a microbatch."""
        made, read = self.made[microbatch], self.read[microbatch]
        for template in self._templates(op):
            number = self.start + len(self.listed.steps)
            on = template.task.on
            needed: set[int] = set()
            for value in op.operands:
                if value in made:
                    needed.add(made[value])
                    read.setdefault(value, []).append(number)
                elif value in self.latest:
                    needed.add(self.latest[value])
            if any(number not in self.listed.last for number in on):
                needed.update(self.after)
            task = replace(template.task, after=tuple(sorted(needed)))
            step = replace(template, task=task, iterations=(microbatch,), of_pipeline=True)
            self.listed.steps.append(step)
            for device_class in on:
                self.listed.first.setdefault(device_class, number)
                self.listed.last[device_class] = number
                peak = step.does.peak if isinstance(step.does, TaskStep) else None
                for use, size in peak.uses.items() if peak else ():
                    here = Buffer(size, number, (number,), use, of_loop=True)
                    self.listed.inside.setdefault(device_class, []).append(here)
            for result in op.results:
                if result in self.carried:
                    self.latest[self.carried[result]] = number
                else:
                    made[result] = number

    def _templates(self, op: CallOp | DistOp) -> Sequence[SimulatedStep]:
        """Return the steps of an operation for any microbatch: one for each group of classes."""
        if op not in self.templates:
            self.templates[op] = list(self._new_templates(op))
        return self.templates[op]

    def _new_templates(self, op: CallOp | DistOp) -> Iterator[SimulatedStep]:
        levels = len(self.classes.mesh.machine.levels)
        for instance in self.classes.instances_of(op):
            if isinstance(op, DistOp):
                step = self.sent(op, instance)
                stream = self.streams.setdefault(instance.on, levels + 1 + len(self.streams))
                yield replace(step, task=replace(step.task, stream=stream, waited=False))
                continue
            assert op.task is not None
            body = self.simulated(op, instance)
            does = TaskStep(op.task.data, body, self.name, self.schedule)
            phases = instance.located(does.phases)
            task = StepTask(phases, levels, (), waited=False, on=instance.on)
            name = op.results[0].name_hint or op.task.data
            yield SimulatedStep(name, does, task, instance.at, instance.sites, instance.kinds)

    def _add_buffers(self, microbatch: int) -> None:
        """Add the buffers of the values of a microbatch, from the step that makes each to its last
        reader."""
        read = self.read[microbatch]
        for value, number in self.made[microbatch].items():
            if value not in self.held:
                x, use = dist_type(value), use_of(value)
                on = self.classes.holding(x)
                self.held[value] = [(c, self.classes.local_bytes(c, x), use) for c in on]
            for device_class, size, use in self.held[value]:
                until = [
                    n
                    for n in read.get(value, ())
                    if device_class in self.listed.steps[n - self.start].task.on
                ]
                buffer = Buffer(size, number, (number, *until), use)
                self.listed.inside.setdefault(device_class, []).append(buffer)
