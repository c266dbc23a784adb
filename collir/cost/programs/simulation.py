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
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.cost.collectives.phases import Phase
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.group import CostError
from collir.cost.network.loads import Resource
from collir.cost.programs.classes import Classes, Sites, classes_of
from collir.cost.programs.compute import compute_seconds, step_seconds
from collir.cost.programs.cost import op_cost, stream_of
from collir.cost.programs.kinds import seen_by
from collir.cost.programs.memory import Buffer, buffers_of, memory_use
from collir.cost.programs.schedule import Interval, StepTask, TimeSpan, longest_chain, schedule
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.ir.buffers import BufferPlan, copied_results, plan_buffers
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
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
class SimulatedStep:
    """A step of a function.

    Attributes:
        result: the name of its result in the program.
        does: the cost of a collective that runs alone, or a local step.
        task: its scheduler task.
        at: the place of the devices that run it, where places are told apart; else empty.
        sites: the ports that it uses there.
        kinds: the kinds of these devices, if the machine has several; else empty.
    """

    result: str
    does: StepCost | LocalStep
    task: StepTask
    at: str = ""
    sites: Sites | None = None
    kinds: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The name of the operation."""
        return self.does.kind if isinstance(self.does, LocalStep) else self.does.collective.kind

    @property
    def sent(self) -> StepCost | None:
        """The cost of a collective that runs alone; None for a local step."""
        return None if isinstance(self.does, LocalStep) else self.does

    @property
    def size(self) -> float:
        """The bytes of a collective's full buffer, or those that a local step reads and writes."""
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
        return self.sent.bound if self.sent and not copied_bytes(self.sent) else self.task.time


@dataclass(frozen=True)
class Simulation:
    """A function simulated under a model; all times are in seconds.

    Attributes:
        buffers: the buffers that a device of each class holds.
        places: the place of each class, as a report shows it; empty if there is one class.
        kinds: the kinds of devices of each class, if the machine has several.
    """

    name: str
    mesh: Mesh
    model: CostModel
    steps: tuple[SimulatedStep, ...]
    buffers: tuple[tuple[Buffer, ...], ...]
    places: tuple[str, ...] = ("",)
    kinds: tuple[tuple[str, ...], ...] = ((),)

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
    functions = functions_of(module)
    check_programs(functions, "cannot be simulated")
    with meshes_remembered():
        return [simulate_function(function, model or CostModel()) for function in functions]


def simulate_function(function: FuncOp, model: CostModel) -> Simulation:
    """Return the simulation of one function.

    Raises:
        DiagnosticError: see ``simulate``.
    """
    mesh, where = mesh_of(function), plan_buffers(function)
    steps: list[SimulatedStep] = []
    try:
        held = [dist_type(argument) for argument in function.args]
        classes = classes_of(function.body.ops, mesh, by_kind=True, arguments=held)
    except CostError as error:
        raise DiagnosticError.at(function, str(error)) from error
    number_of: list[dict[Operation, int]] = [{} for _ in classes.places]
    for instance in classes.instances(function.body.ops):
        op, after = instance.step, instance.after
        assert isinstance(op, DistOp)
        if is_collective(op):
            does = op_cost(op, seen_by(mesh, instance.kinds), model, instance.place)
            phases = instance.located(sent_phases(does))
            stream, waited = stream_of(does.collective), not op.is_async
        else:
            bytes_of = partial(_bytes_on, classes, instance.on[0])
            does = local_step(op, mesh, where, instance.kinds, bytes_of)
            phases = local_phases(does, mesh.machine.slowest_of(instance.kinds))
            stream, waited = len(mesh.machine.levels), True
        for device_class in instance.on:
            number_of[device_class][op] = len(steps)
        task = StepTask(phases, stream, after, waited, instance.on)
        name = where.names[op.result]
        steps.append(SimulatedStep(name, does, task, instance.at, instance.sites, instance.kinds))
    steps += _copies(where, mesh, classes, steps)
    buffers = tuple(
        tuple(
            buffers_of(
                function,
                where,
                numbers,
                partial(_is_held, classes, device_class),
                partial(_bytes_on, classes, device_class),
            )
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


def _copying(
    classes: Classes, value: SSAValue
) -> Iterator[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Yield the classes that copy a result, with their kinds: one by one, if kinds differ."""
    holding = tuple(classes.holding(dist_type(value)))
    if classes.children is None:
        yield holding, ()
    else:
        for number in holding:
            yield (number,), classes.kinds_of((number,))


def _copies(
    where: BufferPlan, mesh: Mesh, classes: Classes, steps: Sequence[SimulatedStep]
) -> list[SimulatedStep]:
    """Return the copies at the end, of results that lie in other buffers.

    Args:
        steps: the steps before them.
    """
    copies: list[SimulatedStep] = []
    for value in copied_results(where):
        for on, kinds in _copying(classes, value):
            does = LocalStep(COPY, 2 * _bytes_on(classes, on[0], value))
            if phases := local_phases(does, mesh.machine.slowest_of(kinds)):
                after = tuple(
                    number
                    for number, step in enumerate((*steps, *copies))
                    if not kinds or on[0] in step.task.on
                )
                task = StepTask(phases, len(mesh.machine.levels), after, on=on)
                at = classes.text(on[0]) if kinds else ""
                copies.append(SimulatedStep(where.names[value], does, task, at, kinds=kinds))
    return copies


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
