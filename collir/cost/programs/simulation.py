"""A function, simulated: when its steps run, what they use meanwhile, what memory a device holds.

All groups of a step are alike, and so are all devices that take part in it, so one stands for all:
a program on 10^5 devices costs what it does on 16. What is simulated are the collectives with the
phases of their algorithms, and the steps that devices do by themselves, on a stream of their own.
The latter take what their bytes take to be read and written, on devices that say how fast their
memory is, else no time; so do collectives that send nothing, which copy, and the copies in the end
of results that lie elsewhere. ``compute`` takes what it says, at the rate of the device. What a
device needs of memory is that of one at coordinate 0 of all sub-axes: it takes part in everything.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.collectives.phases import Phase
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.loads import Resource
from collir.cost.programs.compute import compute_seconds, step_seconds
from collir.cost.programs.cost import op_cost, stream_of
from collir.cost.programs.memory import Buffer, buffers_of, held
from collir.cost.programs.schedule import Piece, Span, Task, chain, schedule
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.ir.buffers import BufferPlan, copied_results, plan_buffers
from collir.ir.functions import check_programs, functions_of
from collir.ir.steps import steps_of
from collir.layout import Mesh
from collir.machine import Device, Machine

COPY = "copy"
"""The kind of the step that copies a result which lies elsewhere."""


@dataclass(frozen=True)
class Local:
    """A step that sends nothing: what it is called, the bytes it reads and writes, and what it
    computes, in floating-point operations on a dtype."""

    kind: str
    size: float
    flops: float = 0.0
    dtype: str = ""


@dataclass(frozen=True)
class SimulatedStep:
    """A step of a function.

    Attributes:
        result: the name of its result in the program.
        does: what a collective costs alone, or what a local step moves.
        task: it, to be scheduled.
    """

    result: str
    does: StepCost | Local
    task: Task

    @property
    def kind(self) -> str:
        """The name of the operation."""
        return self.does.kind if isinstance(self.does, Local) else self.does.collective.kind

    @property
    def sent(self) -> StepCost | None:
        """What it costs alone, if it sends."""
        return None if isinstance(self.does, Local) else self.does

    @property
    def size(self) -> float:
        """The full buffer of a collective, or what a local step reads and writes; in bytes."""
        return self.does.size if isinstance(self.does, Local) else self.does.collective.size

    def over(self, mesh: Mesh) -> str:
        """The axes of a collective, as one would write them."""
        return ", ".join(mesh.short(self.sent.collective.axes)) if self.sent else ""

    @property
    def bound(self) -> float:
        """Seconds that it takes at least."""
        sends = self.sent if self.sent and not copied_bytes(self.sent) else None
        return sends.bound if sends else self.task.time


@dataclass(frozen=True)
class Simulation:
    """A function, simulated under a model; seconds and bytes.

    Attributes:
        buffers: what a device holds.
    """

    name: str
    mesh: Mesh
    model: CostModel
    steps: tuple[SimulatedStep, ...]
    buffers: tuple[Buffer, ...]

    @cached_property
    def _run(self) -> tuple[list[Span], list[Piece]]:
        pieces: list[Piece] = []
        spans = schedule([step.task for step in self.steps], watch=pieces.append)
        return spans, pieces

    @property
    def spans(self) -> list[Span]:
        """When every step starts and ends."""
        return self._run[0]

    @property
    def pieces(self) -> list[Piece]:
        """The times in which nothing changes, in order."""
        return self._run[1]

    @cached_property
    def time(self) -> float:
        """When the last step ends."""
        return max((end for _, end in self.spans), default=0.0)

    @cached_property
    def time_before_copies(self) -> float:
        """When the last step ends, before results that lie elsewhere are copied."""
        each = zip(self.steps, self.spans, strict=True)
        return max((end for step, (_, end) in each if step.kind != COPY), default=0.0)

    @cached_property
    def busy(self) -> dict[Resource, float]:
        """Seconds that each resource of the machine is kept busy."""
        found: dict[Resource, float] = {}
        for step in self.steps:
            for resource, time in step.task.busy.items():
                found[resource] = found.get(resource, 0.0) + time
        return found

    @cached_property
    def bound(self) -> float:
        """What these steps take at least: the longest chain of their bounds, each behind what it
        has to wait for."""
        return chain([step.task for step in self.steps], [step.bound for step in self.steps])

    @cached_property
    def memory(self) -> list[tuple[float, float]]:
        """From when on a device holds how many bytes, in order of time; twice at one time, where it
        holds more for a step that takes none."""
        return held(self.buffers, self.spans)

    @cached_property
    def peak(self) -> float:
        """The most bytes that a device holds at any time."""
        return max((size for _, size in self.memory), default=0.0)

    @cached_property
    def in_use(self) -> dict[Resource, list[tuple[float, float]]]:
        """What part of each resource is in use, 0 to 1, from when on; where it changes."""
        found: dict[Resource, list[tuple[float, float]]] = {one: [] for one in self.busy}
        for piece in self.pieces:
            now = dict.fromkeys(found, 0.0)
            for phase, speed in piece.running.values():
                for resource, part in phase.uses:
                    now[resource] += part * speed
            for resource, changes in found.items():
                if now[resource] != (changes[-1][1] if changes else None):
                    changes.append((piece.start, now[resource]))
        for changes in found.values():
            changes.append((self.time, 0.0))
        return found

    def on(self, machine: Machine) -> "Simulation":
        """The same steps on a machine with the same levels, but other speeds.

        Raises:
            CostError: see ``step_cost``.
        """
        mesh = replace(self.mesh, machine=machine)
        steps = tuple(self._again(step, mesh, 1.0) for step in self.steps)
        return replace(self, mesh=mesh, steps=steps)

    def scaled(self, factor: float) -> "Simulation":
        """The same with all buffers ``factor`` times as large.

        Raises:
            CostError: see ``step_cost``.
        """
        steps = tuple(self._again(step, self.mesh, factor) for step in self.steps)
        buffers = tuple(replace(one, size=one.size * factor) for one in self.buffers)
        return replace(self, steps=steps, buffers=buffers)

    def _again(self, step: SimulatedStep, mesh: Mesh, factor: float) -> SimulatedStep:
        if isinstance(step.does, Local):
            does = step.does
            local = replace(does, size=does.size * factor, flops=does.flops * factor)
            phases = local_phases(local, mesh.machine.device)
            return replace(step, does=local, task=replace(step.task, phases=phases))
        collective = replace(step.does.collective.scaled(factor), mesh=mesh)
        does = step_cost(collective, self.model)
        return replace(step, does=does, task=replace(step.task, phases=sent_phases(does)))


def local_phases(local: Local, device: Device | None) -> tuple[Phase, ...]:
    """What a local step does: nothing that takes time, on a device whose memory has no speed."""
    if local.flops:
        return (Phase(work=compute_seconds(local.flops, local.dtype, device)),)
    speed = device.memory_bandwidth if device else None
    return (Phase(work=local.size / speed),) if speed and local.size else ()


def copied_bytes(does: StepCost) -> float:
    """The bytes that a collective which sends nothing reads and writes; 0 of one that sends."""
    return 0.0 if any(does.port_bytes) else 2 * does.collective.size


def sent_phases(does: StepCost) -> tuple[Phase, ...]:
    """Return the phases of a collective, which sends or copies."""
    copies = Local(COPY, copied_bytes(does))
    return (*does.phases, *local_phases(copies, does.collective.mesh.machine.device))


def simulate(module: ModuleOp, model: CostModel | None = None) -> list[Simulation]:
    """Every function of a module, simulated, in order.

    Raises:
        DiagnosticError: an operation that is not of the coll dialect, a mesh that is not placed on
            levels, an algorithm that does not fit its group, a computation on a device that does
            not say how fast it is; with its position.
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
    number_of: dict[Operation, int] = {}
    for op, after in steps_of(function.body.ops, mesh):
        if is_collective(op):
            does = op_cost(op, mesh, model)
            waited = not op.is_async
            task = Task(sent_phases(does), stream_of(does.collective), after, waited)
        else:
            does = local_step(op, mesh, where)
            phases = local_phases(does, mesh.machine.device)
            task = Task(phases, len(mesh.machine.levels), after)
        number_of[op] = len(steps)
        steps.append(SimulatedStep(where.names[op.result], does, task))
    for value in copied_results(where):
        does = Local(COPY, 2 * dist_type(value).local_bytes(mesh))
        if phases := local_phases(does, mesh.machine.device):
            task = Task(phases, len(mesh.machine.levels), tuple(range(len(steps))))
            steps.append(SimulatedStep(where.names[value], does, task))
    buffers = buffers_of(function, mesh, where, number_of)
    return Simulation(function.sym_name.data, mesh, model, tuple(steps), tuple(buffers))


def local_step(op: DistOp, mesh: Mesh, where: BufferPlan) -> Local:
    """A step that sends nothing.

    Raises:
        DiagnosticError: it computes, and the device does not say how fast.
    """
    if not op.kind.computes:
        return Local(op.mnemonic, _moved(op, mesh, where))
    local = Local(op.mnemonic, 0.0, op.flops, dist_type(op.result).dtype.value)
    step_seconds(op, mesh)
    return local


def _moved(op: DistOp, mesh: Mesh, where: BufferPlan) -> float:
    """The bytes that a local step reads and writes; what is in place already is not moved."""
    if where.is_view(op):
        return 0
    taken = list(op.operands)
    if op.kind.packs:  # a value is in one place only
        in_place = {v for v, (whole, _) in where.part_of.items() if whole is op.result}
        for one in op.operands:
            if where.owner[one] in in_place:
                in_place.remove(where.owner[one])
                taken.remove(one)
    written = dist_type(op.result).local_bytes(mesh)
    return op.kind.moved([dist_type(one).local_bytes(mesh) for one in taken], written)
