"""Simulations of functions: the times of their steps, the resources in use, the memory of a device.

All groups of a step are alike, and so are all devices at one place, so one device of each class is
simulated (``classes``): a program on 10^5 devices costs what it does on 16. Collectives have the
phases of their algorithms. Local steps run on a stream of their own. They take the time to read and
write their bytes, if the machine says how fast the memory of a device is, else no time. So do
collectives that send nothing, which copy, and the copies at the end of results that lie in other
buffers.
``compute`` takes the time of its operations at the rate of the device. The memory is that of the
class of devices that needs most; of one class, that of the device at coordinate 0 of all sub-axes,
which takes part in all steps. A loop waits for all steps before it, and so does each of its
iterations; one iteration is simulated.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.cost.collectives.phases import Phase
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.loads import Resource
from collir.cost.programs.classes import Classes, Sites, classes_of
from collir.cost.programs.compute import compute_seconds, step_seconds
from collir.cost.programs.cost import op_cost, stream_of
from collir.cost.programs.memory import AT_END, Buffer, buffers_of, memory_use
from collir.cost.programs.schedule import Interval, StepTask, TimeSpan, longest_chain, schedule
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.nested import NestedOp, RepeatOp
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.ir.buffers import BufferPlan, copied_results, plan_buffers
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.ir.loops import as_function
from collir.ir.rotation import as_run
from collir.ir.steps import PlannedStep
from collir.layout import Mesh
from collir.machine import Device, Machine

COPY = "copy"
"""The kind of a step that copies a result which lies in another buffer."""


@dataclass(frozen=True)
class LocalStep:
    """A step that sends nothing.

    Attributes:
        kind: the name of its operation, or ``COPY``.
        size: the bytes it reads and writes.
        flops: its floating-point operations.
        dtype: the dtype of these operations.
    """

    kind: str
    size: float
    flops: float = 0.0
    dtype: str = ""


@dataclass(frozen=True)
class LoopStep:
    """A loop, whose iterations run one after the other.

    Attributes:
        times: the number of iterations.
        body: the simulation of an iteration.
    """

    times: int
    body: "Simulation"

    @property
    def kind(self) -> str:
        """The word for the loop in reports."""
        return f"{RepeatOp.WORD} {self.times}"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One phase, which uses the resources as much as an iteration does on average."""
        time = self.body.time
        if not time:
            return ()
        uses = tuple((part, min(1.0, busy / time)) for part, busy in self.body.busy.items())
        return (Phase(work=self.times * time, uses=uses),)

    @property
    def memory(self) -> float:
        """The bytes that a device needs for an iteration, without its arguments and results."""
        (buffers,) = self.body.buffers
        own = [x for x in buffers if x.first not in (None, AT_END) and x.until]
        return max((size for _, size in memory_use(own, self.body.spans)), default=0.0)


@dataclass(frozen=True)
class SimulatedStep:
    """A step of a function.

    Attributes:
        result: the name of its (first) result in the program.
        does: the cost of a collective that runs alone, a local step, or a loop.
        task: its scheduler task.
        at: the place of the devices that run it, where places are told apart; else empty.
        sites: the ports that it uses there.
    """

    result: str
    does: StepCost | LocalStep | LoopStep
    task: StepTask
    at: str = ""
    sites: Sites | None = None

    @property
    def kind(self) -> str:
        """The name of the operation."""
        return self.does.collective.kind if isinstance(self.does, StepCost) else self.does.kind

    @property
    def sent(self) -> StepCost | None:
        """The cost of a collective that runs alone; None for a local step or a loop."""
        return self.does if isinstance(self.does, StepCost) else None

    @property
    def loop(self) -> LoopStep | None:
        """The loop; None for a step."""
        return self.does if isinstance(self.does, LoopStep) else None

    @property
    def size(self) -> float:
        """The bytes of a collective's full buffer, or those that a local step reads and writes; 0
        for a loop."""
        if isinstance(self.does, LoopStep):
            return 0.0
        return self.does.size if isinstance(self.does, LocalStep) else self.does.collective.size

    @property
    def lane(self) -> int:
        """The first class of devices that takes part."""
        return self.task.on[0]

    def over(self, mesh: Mesh) -> str:
        """Return the axes of a collective as a user writes them."""
        return ", ".join(mesh.short(self.sent.collective.axes)) if self.sent else ""

    @property
    def bound(self) -> float:
        """A lower bound of its seconds."""
        if self.loop:
            return self.loop.times * self.loop.body.bound
        return self.sent.bound if self.sent and not copied_bytes(self.sent) else self.task.time


@dataclass(frozen=True)
class Simulation:
    """A function simulated under a model; all times are in seconds.

    Attributes:
        buffers: the buffers that a device of each class holds.
        places: the place of each class, as a report shows it; empty if there is one class.
    """

    name: str
    mesh: Mesh
    model: CostModel
    steps: tuple[SimulatedStep, ...]
    buffers: tuple[tuple[Buffer, ...], ...]
    places: tuple[str, ...] = ("",)

    @cached_property
    def _schedule(self) -> tuple[list[TimeSpan], list[Interval]]:
        intervals: list[Interval] = []
        spans = schedule([step.task for step in self.steps], watch=intervals.append)
        return spans, intervals

    @property
    def spans(self) -> list[TimeSpan]:
        """The time span of every step."""
        return self._schedule[0]

    @property
    def intervals(self) -> list[Interval]:
        """The intervals between events, in order."""
        return self._schedule[1]

    @cached_property
    def time(self) -> float:
        """The end of the last step."""
        return max((end for _, end in self.spans), default=0.0)

    @cached_property
    def time_before_copies(self) -> float:
        """The end of the last step before results that lie in other buffers are copied."""
        timed = zip(self.steps, self.spans, strict=True)
        return max((end for step, (_, end) in timed if step.kind != COPY), default=0.0)

    @cached_property
    def busy(self) -> dict[Resource, float]:
        """Seconds that each resource of the machine is kept busy."""
        busy: dict[Resource, float] = {}
        for step in self.steps:
            for resource, time in step.task.busy.items():
                busy[resource] = busy.get(resource, 0.0) + time
        return busy

    @cached_property
    def bound(self) -> float:
        """A lower bound of these steps' time: the longest chain of their bounds."""
        return longest_chain(
            [step.task for step in self.steps], [step.bound for step in self.steps]
        )

    @cached_property
    def memory(self) -> list[tuple[float, float]]:
        """The bytes that a device holds from each time on; see ``memory_use``.

        It is a device of the class that holds most at any time.
        """
        uses = (memory_use(buffers, self.spans) for buffers in self.buffers)
        return max(uses, key=lambda use: max((size for _, size in use), default=0.0))

    @cached_property
    def peak(self) -> float:
        """The largest number of bytes that a device holds at any time."""
        return max((size for _, size in self.memory), default=0.0)

    @cached_property
    def in_use(self) -> dict[Resource, list[tuple[float, float]]]:
        """For each resource, the changes of the part in use, as (time, part from 0 to 1)."""
        changes_of: dict[Resource, list[tuple[float, float]]] = {r: [] for r in self.busy}
        for interval in self.intervals:
            used = dict.fromkeys(changes_of, 0.0)
            for phase, speed in interval.running.values():
                for resource, part in phase.uses:
                    used[resource] += part * speed
            for resource, changes in changes_of.items():
                if used[resource] != (changes[-1][1] if changes else None):
                    changes.append((interval.start, used[resource]))
        for changes in changes_of.values():
            changes.append((self.time, 0.0))
        return changes_of

    def on(self, machine: Machine) -> "Simulation":
        """Return the same steps on a machine with the same levels, but other speeds.

        Raises:
            CostError: see ``step_cost``.
        """
        mesh = replace(self.mesh, machine=machine)
        steps = tuple(self._changed(step, mesh, 1.0) for step in self.steps)
        return replace(self, mesh=mesh, steps=steps)

    def scaled(self, factor: float) -> "Simulation":
        """Return the simulation with all buffers ``factor`` times as large.

        Raises:
            CostError: see ``step_cost``.
        """
        steps = tuple(self._changed(step, self.mesh, factor) for step in self.steps)
        buffers = tuple(
            tuple(replace(buffer, size=buffer.size * factor) for buffer in held)
            for held in self.buffers
        )
        return replace(self, steps=steps, buffers=buffers)

    def _changed(self, step: SimulatedStep, mesh: Mesh, factor: float) -> SimulatedStep:
        """Return a step on another mesh, with buffers ``factor`` times as large."""
        if isinstance(step.does, LoopStep):
            body = step.does.body
            body = body.scaled(factor) if mesh == self.mesh else body.on(mesh.machine)
            loop = replace(step.does, body=body)
            return replace(step, does=loop, task=replace(step.task, phases=loop.phases))
        if isinstance(step.does, LocalStep):
            does = step.does
            local = replace(does, size=does.size * factor, flops=does.flops * factor)
            phases = local_phases(local, mesh.machine.device)
            return replace(step, does=local, task=replace(step.task, phases=phases))
        collective = replace(step.does.collective.scaled(factor), mesh=mesh)
        does = step_cost(collective, self.model)
        phases = sent_phases(does)
        located = step.sites.located(phases) if step.sites else phases
        return replace(step, does=does, task=replace(step.task, phases=located))


def local_phases(local: LocalStep, device: Device | None) -> tuple[Phase, ...]:
    """Return the phases of a local step; none on a device whose memory has no bandwidth."""
    if local.flops:
        return (Phase(work=compute_seconds(local.flops, local.dtype, device)),)
    speed = device.memory_bandwidth if device else None
    return (Phase(work=local.size / speed),) if speed and local.size else ()


def copied_bytes(does: StepCost) -> float:
    """Return the bytes read and written by a collective that sends nothing; 0 if it sends."""
    return 0.0 if any(does.port_bytes) else 2 * does.collective.size


def sent_phases(does: StepCost) -> tuple[Phase, ...]:
    """Return the phases of a collective that sends or copies."""
    copies = LocalStep(COPY, copied_bytes(does))
    return (*does.phases, *local_phases(copies, does.collective.mesh.machine.device))


def simulate(module: ModuleOp, model: CostModel | None = None) -> list[Simulation]:
    """Return the simulations of all functions of a module, in order.

    Raises:
        DiagnosticError: an operation that is not of the coll dialect, a mesh that is not placed on
            levels, an algorithm that does not fit its group, a computation on a device without a
            rate; with its position.
    """
    functions = functions_of(as_run(module))
    check_programs(functions, "cannot be simulated", nested=True)
    with meshes_remembered():
        return [simulate_function(function, model or CostModel()) for function in functions]


def simulate_function(function: FuncOp, model: CostModel) -> Simulation:
    """Return the simulation of one function.

    Raises:
        DiagnosticError: see ``simulate``.
    """
    mesh, where = mesh_of(function), plan_buffers(function)
    steps: list[SimulatedStep] = []
    classes = classes_of(function.body.ops, mesh)
    number_of: list[dict[Operation, int]] = [{} for _ in classes.places]
    inside: list[list[Buffer]] = [[] for _ in classes.places]  # of loops
    for instance in classes.instances(function.body.ops):
        op, after = instance.step, instance.after
        assert not isinstance(op, PlannedStep)
        for device_class in instance.on:
            number_of[device_class][op] = len(steps)
        if isinstance(op, RepeatOp):
            step, size = _loop(op, model, tuple(range(len(steps))), where)
            for device_class in instance.on:
                inside[device_class].append(Buffer(size, len(steps), (len(steps),)))
            steps.append(step)
            continue
        if isinstance(op, NestedOp):
            raise DiagnosticError.at(op, f"a {op.mnemonic} is not simulated by itself")
        if is_collective(op):
            does = op_cost(op, mesh, model, instance.place)
            phases = instance.located(sent_phases(does))
            stream, waited = stream_of(does.collective), not op.is_async
        else:
            does = local_step(op, mesh, where)
            phases = local_phases(does, mesh.machine.device)
            stream, waited = len(mesh.machine.levels), True
        task = StepTask(phases, stream, after, waited, instance.on)
        name = where.names[op.result]
        steps.append(SimulatedStep(name, does, task, instance.at, instance.sites))
    steps += _copies(where, mesh, classes, len(steps))
    buffers = tuple(
        (
            *buffers_of(function, mesh, where, numbers, partial(_is_held, classes, device_class)),
            *inside[device_class],
        )
        for device_class, numbers in enumerate(number_of)
    )
    places = tuple(classes.text(number) for number in range(len(classes.places)))
    return Simulation(function.sym_name.data, mesh, model, tuple(steps), buffers, places)


def _is_held(classes: Classes, device_class: int, value: SSAValue) -> bool:
    return device_class in classes.holding(dist_type(value))


def _copies(where: BufferPlan, mesh: Mesh, classes: Classes, before: int) -> list[SimulatedStep]:
    """Return the copies at the end, of results that lie in other buffers.

    Args:
        before: the number of steps before them.
    """
    copies: list[SimulatedStep] = []
    for value in copied_results(where):
        does = LocalStep(COPY, 2 * dist_type(value).local_bytes(mesh))
        on = tuple(classes.holding(dist_type(value)))
        if phases := local_phases(does, mesh.machine.device):
            after = tuple(range(before + len(copies)))
            task = StepTask(phases, len(mesh.machine.levels), after, on=on)
            copies.append(SimulatedStep(where.names[value], does, task))
    return copies


def _loop(
    op: RepeatOp, model: CostModel, before: tuple[int, ...], where: BufferPlan
) -> tuple[SimulatedStep, float]:
    """Return a loop as a step behind the steps ``before``, and the bytes that it needs inside.

    Each carry is in one of two buffers while it is computed from the other.
    """
    mesh = mesh_of(op)
    with as_function(op) as body:
        loop = LoopStep(op.times, simulate_function(body, model))
    task = StepTask(loop.phases, len(mesh.machine.levels), before)
    spares = zip(op.carried, where.spares(op), strict=True)
    needed = (x for x, spare in spares if spare is None and op.times > 1)
    second = (dist_type(x).local_bytes(mesh) for x in needed)
    step = SimulatedStep(where.names[op.results[0]], loop, task)
    return step, loop.memory + sum(second)


def local_step(op: DistOp, mesh: Mesh, where: BufferPlan) -> LocalStep:
    """Return an operation that sends nothing as a local step.

    Raises:
        DiagnosticError: it computes, and the device has no rate.
    """
    if not op.kind.computes:
        return LocalStep(op.mnemonic, _moved(op, mesh, where))
    local = LocalStep(op.mnemonic, 0.0, op.flops, dist_type(op.result).dtype.value)
    step_seconds(op, mesh)
    return local


def _moved(op: DistOp, mesh: Mesh, where: BufferPlan) -> float:
    """Return the bytes that a local step reads and writes, without operands already in place."""
    if where.is_view(op):
        return 0
    if op.kind.assembles and all(
        where.part_of.get(where.owner[operand], (None, 0))[0] is op.result
        for operand in op.operands
    ):
        return 0
    moved = list(op.operands)
    if op.kind.packs:  # a value that is an operand twice is in place only once
        in_place = {v for v, (buffer, _) in where.part_of.items() if buffer is op.result}
        for operand in op.operands:
            if where.owner[operand] in in_place:
                in_place.remove(where.owner[operand])
                moved.remove(operand)
    written = dist_type(op.result).local_bytes(mesh)
    return op.kind.moved([dist_type(operand).local_bytes(mesh) for operand in moved], written)
