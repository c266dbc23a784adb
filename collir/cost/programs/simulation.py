"""Simulations of functions: the times of their steps, the resources in use, the memory of a device.

All groups of a step are alike, and so are all devices at one place, so one device of each class is
simulated (``classes``): a program on 10^5 devices costs what it does on 16. Collectives have the
phases of their algorithms. Local steps run on a stream of their own. They take the time to read and
write their bytes, if the machine says how fast the memory of a device is, else no time. So do
collectives that send nothing, which copy, and the copies at the end of results that lie in other
buffers.
``compute`` takes the time of its operations at the rate of the device: of their share, on a kind of
devices with smaller blocks. The memory is that of the
class of devices that needs most; of one class, that of the device at coordinate 0 of all sub-axes,
which takes part in all steps.

A loop waits for all steps before it, and so does each of its iterations. If there is one class of
devices, one iteration is simulated, and the loop is a step that takes the time of all. If there are
several, each waits for its own steps only, and iterations are simulated until they recur
(``repetition``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.cost.collectives.phases import Phase
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.group import CostError
from collir.cost.network.loads import Resource
from collir.cost.programs.classes import Classes, Instance, Sites, classes_of
from collir.cost.programs.compute import compute_seconds, step_seconds
from collir.cost.programs.cost import op_cost, stream_of
from collir.cost.programs.kinds import seen_by
from collir.cost.programs.loops import Bound, Node, Placed, Repeated, TooManyError, least_time
from collir.cost.programs.memory import AT_END, Buffer, buffers_of, memory_use
from collir.cost.programs.schedule import Interval, StepTask, TimeSpan, longest_chain
from collir.cost.programs.timeline import Timeline, busy_seconds, straight_timeline, timeline
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.nested import RepeatOp
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
        own = [buffer for buffer in buffers if buffer.is_inside]
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
        kinds: the kinds of these devices, if the machine has several; else empty.
        iterations: the numbers of the iterations that it is in, from 0, outermost first.
    """

    result: str
    does: StepCost | LocalStep | LoopStep
    task: StepTask
    at: str = ""
    sites: Sites | None = None
    kinds: tuple[str, ...] = ()
    iterations: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Its result, and the numbers of its iterations, as a report shows them."""
        return f"%{self.result}{''.join(f'[{number}]' for number in self.iterations)}"

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
        program: its steps and loops, in program order.
        held: the buffers that a device of each class holds, by the places of steps in the program.
        places: the place of each class, as a report shows it; empty if there is one class.
        kinds: the kinds of devices of each class, if the machine has several.
    """

    name: str
    mesh: Mesh
    model: CostModel
    program: tuple[SimulatedStep, ...]
    held: tuple[tuple[Buffer, ...], ...]
    places: tuple[str, ...] = ("",)
    kinds: tuple[tuple[str, ...], ...] = ((),)

    @cached_property
    def steps(self) -> tuple[SimulatedStep, ...]:
        """The steps that are simulated.

        If there are several classes, these are the steps of loops too, with the iterations that
        are simulated, and steps of no time with which loops begin and iterations end.
        """
        if not self._has_loops_apart:
            return self.program
        return tuple(step_at(self.program, placed) for placed in self.timeline.placed)

    @cached_property
    def _has_loops_apart(self) -> bool:
        return len(self.places) > 1 and any(step.loop for step in self.program)

    @cached_property
    def timeline(self) -> Timeline:
        """The schedule of the steps."""
        if self._has_loops_apart:
            return timeline(nodes_of(self.program))
        return straight_timeline([step.task for step in self.program])

    @property
    def buffers(self) -> tuple[tuple[Buffer, ...], ...]:
        """The buffers that a device of each class holds, by the numbers of ``steps``."""
        if not self._has_loops_apart:
            return self.held
        return tuple(
            tuple(_LaidOut(self.timeline.placed, device_class).buffers(self.program, self.held))
            for device_class in range(len(self.places))
        )

    @property
    def spans(self) -> Sequence[TimeSpan]:
        """The time span of every step."""
        return self.timeline.spans

    @property
    def intervals(self) -> Sequence[Interval]:
        """The intervals between events, in order; iterations left out are one without steps."""
        return self.timeline.intervals

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
    def busy(self) -> Mapping[Resource, float]:
        """Seconds that each resource of the machine is kept busy."""
        if (busy := self.timeline.busy) is not None:
            return busy
        return busy_seconds(step.task for step in self.program)

    @cached_property
    def bound(self) -> float:
        """A lower bound of these steps' time: the longest chain of their bounds.

        In a loop that several classes run, it is that of each class for itself.
        """
        if not self._has_loops_apart:
            tasks = [step.task for step in self.program]
            return longest_chain(tasks, [step.bound for step in self.program])
        return least_time(nodes_of(self.program), bounds_of(self.program))

    @cached_property
    def memory(self) -> list[tuple[float, float]]:
        """The bytes that a device holds from each time on; see ``memory_use``.

        It is a device of the class that holds most at any time.
        """
        uses = (memory_use(buffers, self.spans) for buffers in self.buffers)
        return max(uses, key=lambda use: max((size for _, size in use), default=0.0))

    @cached_property
    def peaks(self) -> list[float]:
        """The largest number of bytes that a device of each class holds at any time."""
        uses = (memory_use(buffers, self.spans) for buffers in self.buffers)
        return [max((size for _, size in use), default=0.0) for use in uses]

    @cached_property
    def fullest(self) -> tuple[float, float | None, str]:
        """The class of devices whose memory is the fullest: the most bytes that a device holds, the
        bytes that it has, and the name of its kind if the machine has several."""
        machine = self.mesh.machine
        full = [
            (peak, device.memory if (device := machine.slowest_of(kinds)) else None, kinds)
            for peak, kinds in zip(self.peaks, self.kinds, strict=True)
        ]
        peak, memory, kinds = max(full, key=lambda it: (it[0] / it[1] if it[1] else 0.0, it[0]))
        return peak, memory, "/".join(kinds) if machine.kinds_level is not None else ""

    @cached_property
    def peak(self) -> float:
        """The largest number of bytes that a device holds at any time."""
        return max((size for _, size in self.memory), default=0.0)

    @cached_property
    def in_use(self) -> dict[Resource, list[tuple[float, float]]]:
        """For each resource, the changes of the part in use, as (time, part from 0 to 1)."""
        changes_of: dict[Resource, list[tuple[float, float]]] = {r: [] for r in self.busy}
        left_out = {cut.start: cut.use for cut in self.timeline.cuts}
        for interval in self.intervals:
            used = dict.fromkeys(changes_of, 0.0)
            used |= left_out.get(interval.start, {}) if not interval.running else {}
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
        program = tuple(self._changed(step, mesh, 1.0) for step in self.program)
        return replace(self, mesh=mesh, program=program)

    def scaled(self, factor: float) -> "Simulation":
        """Return the simulation with all buffers ``factor`` times as large.

        Raises:
            CostError: see ``step_cost``.
        """
        program = tuple(self._changed(step, self.mesh, factor) for step in self.program)
        buffers = tuple(
            tuple(replace(buffer, size=buffer.size * factor) for buffer in held)
            for held in self.held
        )
        return replace(self, program=program, held=buffers)

    def _changed(self, step: SimulatedStep, mesh: Mesh, factor: float) -> SimulatedStep:
        """Return a step on another mesh, with buffers ``factor`` times as large."""
        if isinstance(step.does, LoopStep):
            body = step.does.body
            body = body.scaled(factor) if mesh == self.mesh else body.on(mesh.machine)
            loop = replace(step.does, body=body)
            phases = () if len(self.places) > 1 else loop.phases
            return replace(step, does=loop, task=replace(step.task, phases=phases))
        if isinstance(step.does, LocalStep):
            does = step.does
            local = replace(does, size=does.size * factor, flops=does.flops * factor)
            phases = local_phases(local, mesh.machine.slowest_of(step.kinds))
            return replace(step, does=local, task=replace(step.task, phases=phases))
        seen = seen_by(mesh, step.kinds)
        collective = replace(step.does.collective.scaled(factor), mesh=seen)
        does = step_cost(collective, self.model)
        phases = sent_phases(does)
        located = step.sites.located(phases) if step.sites else phases
        return replace(step, does=does, task=replace(step.task, phases=located))


def nodes_of(program: Sequence[SimulatedStep]) -> list[Node]:
    """Return the steps and loops of a program that several classes run, to be scheduled."""
    return [
        Repeated(step.loop.times, tuple(nodes_of(step.loop.body.program)), step.task.on)
        if step.loop
        else step.task
        for step in program
    ]


def step_at(program: Sequence[SimulatedStep], placed: Placed) -> SimulatedStep:
    """Return the step of a task; where a loop begins and iterations end, one that does nothing."""
    step = program[placed.path[0]]
    for place in placed.path[1:]:
        assert step.loop
        step = step.loop.body.program[place]
    does = LocalStep(step.kind, 0.0) if step.loop else step.does
    return replace(step, does=does, task=placed.task, iterations=placed.of_all)


def bounds_of(program: Sequence[SimulatedStep]) -> list[Bound]:
    """Return the lower bounds of the seconds of steps, and of those in loops."""
    return [bounds_of(step.loop.body.program) if step.loop else step.bound for step in program]


class _LaidOut:
    """The numbers of the tasks of one class in a list with the iterations of loops."""

    def __init__(self, placed: Sequence[Placed], device_class: int):
        self.device_class = device_class
        self.first: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self.last: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for number, task in enumerate(placed):
            if device_class in task.task.on:
                key = task.path, task.iterations[: len(task.path) - 1]
                self.first.setdefault(key, number)
                self.last[key] = number

    def buffers(
        self, program: Sequence[SimulatedStep], held: Sequence[Sequence[Buffer]]
    ) -> Iterator[Buffer]:
        """Yield the buffers of a function, and those inside of its loops."""
        for buffer in held[self.device_class]:
            yield self._numbered(buffer, (), ())
        yield from self._inside(program, (), ())

    def _inside(
        self, program: Sequence[SimulatedStep], path: tuple[int, ...], iterations: tuple[int, ...]
    ) -> Iterator[Buffer]:
        for place, step in enumerate(program):
            here = (*path, place)
            if not step.loop or (here, iterations) not in self.first:
                continue
            depth = len(iterations)
            begun = (key[1] for key in self.first if key[0][:-1] == here)
            numbers = dict.fromkeys(inner[depth] for inner in begun if inner[:depth] == iterations)
            own = [b for b in step.loop.body.held[self.device_class] if b.is_inside]
            for number in numbers:
                inner = (*iterations, number)
                yield from (self._numbered(buffer, here, inner) for buffer in own)
                yield from self._inside(step.loop.body.program, here, inner)

    def _numbered(
        self, buffer: Buffer, path: tuple[int, ...], iterations: tuple[int, ...]
    ) -> Buffer:
        """Return a buffer by the numbers in the list, from that by places in a program."""
        first, until = buffer.first, buffer.until
        if first not in (None, AT_END):
            first = self.first[(*path, first), iterations]
        if until is not None:
            until = tuple(self.last[(*path, place), iterations] for place in until)
        return Buffer(buffer.size, first, until)


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
    return (*does.phases, *local_phases(copies, does.collective.mesh.machine.slowest))


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
    held = [dist_type(argument) for argument in function.args]
    try:
        classes = classes_of(function.body.ops, mesh_of(function), by_kind=True, arguments=held)
        simulation = _simulated(function, model, classes)
        _ = simulation.timeline
    except (CostError, TooManyError) as error:
        raise DiagnosticError.at(function, str(error)) from error
    return simulation


def _simulated(function: FuncOp, model: CostModel, classes: Classes) -> Simulation:
    """Return the simulation of a function, or of the body of a loop, that classes run."""
    mesh, where = mesh_of(function), plan_buffers(function)
    steps: list[SimulatedStep] = []
    number_of: list[dict[Operation, int]] = [{} for _ in classes.places]
    inside: list[list[Buffer]] = [[] for _ in classes.places]  # of loops
    for instance in classes.instances(function.body.ops):
        op, after = instance.step, instance.after
        assert not isinstance(op, PlannedStep)
        for device_class in instance.on:
            number_of[device_class][op] = len(steps)
        if type(op) is RepeatOp:
            step, sizes = _loop(op, model, instance, len(steps), where, classes)
            for device_class, size in zip(instance.on, sizes, strict=True):
                inside[device_class].append(Buffer(size, len(steps), (len(steps),)))
            steps.append(step)
            continue
        if not isinstance(op, DistOp):
            raise DiagnosticError.at(op, f"a {op.mnemonic} is not simulated by itself")
        if is_collective(op):
            does = op_cost(op, seen_by(mesh, instance.kinds), model, instance.place)
            phases = instance.located(sent_phases(does))
            stream, waited = stream_of(does.collective), not op.is_async
        else:
            bytes_of = partial(_bytes_on, classes, instance.on[0])
            does = local_step(op, mesh, where, instance.kinds, bytes_of)
            phases = local_phases(does, mesh.machine.slowest_of(instance.kinds))
            stream, waited = len(mesh.machine.levels), True
        task = StepTask(phases, stream, after, waited, instance.on)
        name = where.names[op.result]
        steps.append(SimulatedStep(name, does, task, instance.at, instance.sites, instance.kinds))
    steps += _copies(where, mesh, classes, steps)
    buffers = tuple(
        (
            *buffers_of(
                function,
                where,
                numbers,
                partial(_is_held, classes, device_class),
                partial(_bytes_on, classes, device_class),
            ),
            *inside[device_class],
        )
        for device_class, numbers in enumerate(number_of)
    )
    places = tuple(classes.text(number) for number in range(len(classes.places)))
    kinds = tuple(classes.kinds_of((number,)) for number in range(len(classes.places)))
    return Simulation(function.sym_name.data, mesh, model, tuple(steps), buffers, places, kinds)


def _is_held(classes: Classes, device_class: int, value: SSAValue) -> bool:
    return device_class in classes.holding(dist_type(value))


def _bytes_on(classes: Classes, device_class: int, value: SSAValue) -> int:
    return classes.local_bytes(device_class, dist_type(value))


def _copies(
    where: BufferPlan, mesh: Mesh, classes: Classes, before: Sequence[SimulatedStep]
) -> list[SimulatedStep]:
    """Return the copies at the end, of results that lie in other buffers, on each class.

    Args:
        before: the steps before them.
    """
    steps = list(before)
    for value in copied_results(where):
        for device_class in classes.holding(dist_type(value)):
            kinds = classes.kinds_of((device_class,))
            does = LocalStep(COPY, 2 * _bytes_on(classes, device_class, value))
            if phases := local_phases(does, mesh.machine.slowest_of(kinds)):
                after = (n for n, step in enumerate(steps) if device_class in step.task.on)
                task = StepTask(phases, len(mesh.machine.levels), tuple(after), on=(device_class,))
                at = classes.text(device_class)
                steps.append(SimulatedStep(where.names[value], does, task, at, kinds=kinds))
    return steps[len(before) :]


def _loop(
    op: RepeatOp,
    model: CostModel,
    instance: Instance,
    before: int,
    where: BufferPlan,
    classes: Classes,
) -> tuple[SimulatedStep, list[float]]:
    """Return a loop as a step, and the bytes that a device of each class needs throughout it.

    Each carry is in one of two buffers while it is computed from the other. A loop that one class
    runs is a step with phases behind all steps before it, and its memory is that of an iteration.
    """
    mesh, alone = mesh_of(op), len(classes.places) == 1
    with as_function(op) as body:
        loop = LoopStep(op.times, _simulated(body, model, classes))
    phases, after = (loop.phases, tuple(range(before))) if alone else ((), ())
    task = StepTask(phases, len(mesh.machine.levels), after, on=instance.on)
    step = SimulatedStep(where.names[op.results[0]], loop, task)
    own = loop.memory if alone else 0.0
    spares = zip(op.carried, where.spares(op), strict=True)
    carried = [dist_type(x) for x, spare in spares if spare is None and op.times > 1]
    second = (
        sum(classes.local_bytes(n, x) for x in carried if n in classes.holding(x))
        for n in instance.on
    )
    return step, [own + size for size in second]


def local_step(
    op: DistOp,
    mesh: Mesh,
    where: BufferPlan,
    kinds: Sequence[str] = (),
    bytes_of: Callable[[SSAValue], int] | None = None,
) -> LocalStep:
    """Return an operation that sends nothing as a local step.

    Args:
        kinds: the kinds of the devices that run it, if the machine has several.
        bytes_of: a function that returns the bytes of a value on these devices; by default those
            of the largest block.

    Raises:
        DiagnosticError: it computes, and the device has no rate.
    """

    def largest(value: SSAValue) -> int:
        return dist_type(value).local_bytes(mesh)

    bytes_of = bytes_of or largest
    if not op.kind.computes:
        return LocalStep(op.mnemonic, _moved(op, where, bytes_of))
    share = bytes_of(op.result) / largest(op.result)
    local = LocalStep(op.mnemonic, 0.0, op.flops * share, dist_type(op.result).dtype.value)
    step_seconds(op, mesh, kinds)
    return local


def _moved(op: DistOp, where: BufferPlan, bytes_of: Callable[[SSAValue], int]) -> float:
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
    return op.kind.moved(list(map(bytes_of, moved)), bytes_of(op.result))
