"""Simulations of the functions of a module, built from their operations.

A loop waits for all steps before it, and so does each of its iterations. If there is one class of
devices, one iteration is simulated, and the loop is a step that takes the time of all. If there are
several, each waits for its own steps only, and iterations are simulated until they recur
(``repetition``).
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from collir.cost.model import CostModel, StepCost
from collir.cost.network.group import CostError
from collir.cost.programs.classes import DeviceClasses, StepInstance, classes_of
from collir.cost.programs.collectives import op_cost, stream_of
from collir.cost.programs.kernels import FusedKernels, kernels_of, runs_compiled
from collir.cost.programs.kinds import seen_by
from collir.cost.programs.local_steps import CALL, COPY, SLICE, LocalStep, local_phases, sent_phases
from collir.cost.programs.loops import TooManyError
from collir.cost.programs.memory import (
    Buffer,
    BufferUse,
    buffers_of,
    replaced_arguments,
    use_of,
    uses_of,
)
from collir.cost.programs.operations import local_step
from collir.cost.programs.schedule import StepTask
from collir.cost.programs.simulation import LoopStep, SimulatedStep, Simulation
from collir.cost.programs.tasks import ListedPipeline, Lister
from collir.dialects.machine import function_of, mesh_of, meshes_remembered
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.ir.buffers import BufferPlan, copied_results, plan_buffers
from collir.ir.diagnostics import DiagnosticError, Position
from collir.ir.functions import check_programs, functions_of, task_names
from collir.ir.parameters import parameters_of
from collir.ir.pipelines import Pipeline
from collir.ir.retyping import function_at
from collir.layout import Mesh
from collir.layout.sizes import as_number
from collir.transforms.as_run import as_run
from collir.transforms.loops.bodies import as_function


def simulate(module: ModuleOp, model: CostModel | None = None) -> list[Simulation]:
    """Return the simulations of all functions of a module, in order.

    Raises:
        DiagnosticError: an operation that is not of the coll dialect, a mesh that is not placed on
            levels, an algorithm that does not fit its group, a computation on a device without a
            rate; with its position.
    """
    functions = functions_that_run(module)
    with meshes_remembered():
        return [simulate_function(function, model or CostModel()) for function in functions]


def functions_that_run(module: ModuleOp) -> list[FuncOp]:
    """Return the functions of a module that are simulated, as they run, in order.

    Raises:
        DiagnosticError: one has other operations than those of our dialects.
    """
    tasks, ready = task_names(module), as_run(module)
    functions = [op for op in functions_of(ready) if op.sym_name.data not in tasks]
    check_programs(functions, "cannot be simulated", nested=True)
    return functions


def _classes_of_function(function: FuncOp) -> DeviceClasses:
    """Return the classes of devices that the simulation of a function tells apart.

    Raises:
        CostError: devices differ in kind, and the mesh is not placed on levels.
    """
    held = [dist_type(argument) for argument in function.args]
    return classes_of(function.body.ops, mesh_of(function), by_kind=True, arguments=held)


TaskSimulations = dict[tuple[FuncOp, Attribute | None], Simulation]
"""The simulations of the functions of tasks, by these and the sizes that calls give them."""


def simulate_function(
    function: FuncOp, model: CostModel, known: TaskSimulations | None = None, called: bool = True
) -> Simulation:
    """Return the simulation of one function.

    Args:
        known: simulations of tasks under the same model, to which new ones are added.
        called: whether the call is a step too, if the software of devices takes time for calls.

    Raises:
        DiagnosticError: see ``simulate``.
    """
    try:
        classes = _classes_of_function(function)
        compiled = runs_compiled(function.body.block)
        simulation = _simulated(function, model, classes, compiled, known)
        simulation = _with_call(simulation, function) if called else simulation
        _ = simulation.timeline
    except (CostError, TooManyError) as error:
        raise DiagnosticError.at(function, str(error)) from error
    return simulation


def _with_call(simulation: Simulation, function: FuncOp) -> Simulation:
    """Return the simulation of a function with its call as the last step, if the software of
    devices takes time for calls."""
    mesh, steps = simulation.mesh, simulation.program
    last = function.body.block.last_op
    assert last is not None
    does = LocalStep(CALL, 0.0, arrays=max(1, len(function.args) + len(last.operands)))
    phases = local_phases(does, mesh.machine.slowest)
    if not phases:
        return simulation
    on = tuple(range(len(simulation.places)))
    task = StepTask(phases, len(mesh.machine.levels), tuple(range(len(steps))), on=on)
    return replace(simulation, program=(*steps, SimulatedStep(CALL, does, task)))


def _simulated(
    function: FuncOp,
    model: CostModel,
    classes: DeviceClasses,
    compiled: bool,
    known: TaskSimulations | None = None,
) -> Simulation:
    """Return the simulation of a function, or of the body of a loop, for some classes of devices.

    Args:
        compiled: whether a compiler runs it, which fuses maps.
        known: simulations of tasks, to which new ones are added.
    """
    mesh, where = mesh_of(function), plan_buffers(function)
    device = mesh.machine.slowest
    apart = device is not None and device.execution.maps
    kernels = kernels_of(function.body.block, apart) if compiled else FusedKernels()
    steps: list[SimulatedStep] = []
    number_of: list[dict[Operation, int]] = [{} for _ in classes.places]
    inside: list[list[Buffer]] = [[] for _ in classes.places]  # of loops
    last_of: list[dict[Operation, int]] = [{} for _ in classes.places]
    known_steps: dict[tuple[Operation, tuple[str, ...]], LocalStep] = {}
    for instance, after in _with_kernels(classes.instances(function.body.ops), kernels, steps):
        op = instance.step
        if type(op) is RepeatOp and op.schedule is not None:
            at, tasks = replace(instance, after=after), {} if known is None else known
            listed = _pipeline(op, at, model, len(steps), where, classes, tasks)
            for device_class, first in listed.first.items():
                number_of[device_class][op] = first
                last_of[device_class][op] = listed.last[device_class]
                inside[device_class] += listed.inside.get(device_class, ())
            steps += listed.steps
            continue
        for device_class in instance.on:
            parts = kernels.of(op) if isinstance(op, DistOp) else (op,)
            number_of[device_class] |= dict.fromkeys(parts, len(steps))
        if type(op) is RepeatOp:
            step, uses = _loop(op, model, instance, len(steps), where, classes, compiled)
            here = len(steps)
            inner = step.loop.peak.uses.items() if step.loop and len(classes.places) == 1 else ()
            for device_class, sizes in zip(instance.on, uses, strict=True):
                own = [Buffer(size, here, (here,), use, of_loop=True) for use, size in inner]
                own += (Buffer(n, here, (here,), use, of_loop=True) for use, n in sizes.items())
                inside[device_class] += own
            steps.append(step)
            continue
        if not isinstance(op, DistOp):
            raise DiagnosticError.at(op, f"a {op.mnemonic} is not simulated by itself")
        steps.append(_step(op, model, instance, after, where, classes, kernels, known_steps))
        for device_class in instance.on:
            inside[device_class] += _packing(
                op, steps[-1], len(steps) - 1, where, classes, device_class
            )
    steps += _copies(where, mesh, classes, steps)
    uses, replaced = uses_of(function, where), replaced_arguments(function, where)
    buffers = tuple(
        (
            *buffers_of(
                function,
                where,
                uses,
                replaced,
                kernels,
                numbers,
                partial(_is_held, classes, device_class),
                partial(classes.bytes_of, device_class),
                last_of[device_class],
            ),
            *inside[device_class],
        )
        for device_class, numbers in enumerate(number_of)
    )
    places = tuple(classes.text(number) for number in range(len(classes.places)))
    kinds = tuple(classes.kinds_of((number,)) for number in range(len(classes.places)))
    lookup = classes.lookup if len(places) > 1 else None
    name = function.sym_name.data
    return Simulation(name, mesh, model, tuple(steps), buffers, places, kinds, lookup)


def _pipeline(
    op: RepeatOp,
    instance: StepInstance,
    model: CostModel,
    before: int,
    where: BufferPlan,
    classes: DeviceClasses,
    known: TaskSimulations,
) -> ListedPipeline:
    """Return the tasks and sends of a loop with a schedule."""
    mesh = mesh_of(op)

    def simulated(task: CallOp, at: StepInstance) -> Simulation:
        callee, caller = task.function(), function_of(task)
        assert callee is not None and caller is not None
        key = callee, task.bindings
        if key not in known:
            at_values = function_at(callee, task.values, parameters_of(caller))
            with at_values if task.bindings else nullcontext(callee) as function:
                alone = classes_of(function.body.ops, mesh, place=at.place)
                compiled = runs_compiled(function.body.block)
                known[key] = _simulated(function, model, alone, compiled)
        return known[key]

    def sent(send: DistOp, at: StepInstance) -> SimulatedStep:
        does = op_cost(send, seen_by(mesh, at.kinds), model, at.place)
        phases = at.located(sent_phases(does))
        task = StepTask(phases, stream_of(does.collective), on=at.on)
        name = send.result.name_hint or send.mnemonic
        return SimulatedStep(name, does, task, at.at, at.sites, at.kinds)

    name = where.names[op.results[0]]
    return Lister(Pipeline.of(op), instance, before, name, classes, simulated, sent).run()


def _step(
    op: DistOp,
    model: CostModel,
    instance: StepInstance,
    after: tuple[int, ...],
    where: BufferPlan,
    classes: DeviceClasses,
    kernels: FusedKernels,
    known: dict[tuple[Operation, tuple[str, ...]], LocalStep],
) -> SimulatedStep:
    """Return an operation as a step, after the steps that it needs.

    Args:
        known: local steps of devices of some kinds, to which a new one is added.
    """
    mesh = classes.mesh
    if is_collective(op):
        does = op_cost(op, seen_by(mesh, instance.kinds), model, instance.place)
        phases = instance.located(sent_phases(does))
        stream, waited = stream_of(does.collective), not op.is_async
    else:
        alike = op, instance.kinds
        if (does := known.get(alike)) is None or classes.children is not None:
            bytes_of = partial(classes.bytes_of, instance.on[0])
            does = known[alike] = local_step(op, mesh, where, instance.kinds, bytes_of, kernels)
        phases = local_phases(does, mesh.machine.slowest_of(instance.kinds))
        stream, waited = len(mesh.machine.levels), True
    task = StepTask(phases, stream, after, waited, instance.on)
    step = SimulatedStep(
        where.names[op.result], does, task, instance.at, instance.sites, instance.kinds
    )
    return replace(step, line=_line(op), place=dist_type(op.result).place)


def _with_kernels(
    instances: Sequence[StepInstance], kernels: FusedKernels, steps: Sequence[SimulatedStep]
) -> Iterator[tuple[StepInstance, tuple[int, ...]]]:
    """Yield the instances that run as steps, each with the numbers of the steps that it needs. The
    last operation of a kernel needs the operands of the whole kernel.

    Args:
        steps: the steps so far; the caller adds those of an instance before it asks for more.
    """
    needed: dict[int, set[int]] = {}  # per instance: its step, or the operands of a part
    inside: dict[Operation, list[int]] = {}  # the instances that are parts of a kernel
    for number, instance in enumerate(instances):
        after = set[int]().union(*(needed[before] for before in instance.after))
        if not kernels.is_step(instance.step):
            needed[number] = after
            assert isinstance(instance.step, Operation)
            inside.setdefault(instance.step, []).append(number)
            continue
        parts = kernels.of(instance.step) if isinstance(instance.step, DistOp) else ()
        for part in (part for op in parts for part in inside.get(op, ())):
            after |= needed[part]
            needed[part] = {len(steps)}
        first, on = len(steps), set(instance.on)
        yield instance, tuple(sorted(n for n in after if not on.isdisjoint(steps[n].task.on)))
        needed[number] = {len(steps) - 1}
        if len(steps) > first + 1:  # a pipeline, of which each class has its last step
            last = {c: n for n in range(first, len(steps)) for c in steps[n].task.on}
            needed[number] = set(last.values())


def _line(op: Operation) -> int:
    position = Position.of(op)
    return position.line if position else 0


def _packing(
    op: DistOp,
    step: SimulatedStep,
    number: int,
    where: BufferPlan,
    classes: DeviceClasses,
    device_class: int,
) -> Iterator[Buffer]:
    """Yield the buffer that a class holds while a collective runs, where blocks have to be packed.

    Blocks are packed before the result begins, and unpacked when the packed operand is gone. An
    operand that nothing else reads ends when it is packed.
    """
    if not isinstance(step.does, StepCost):
        return
    operand = op.operands[0]
    before, after = (
        classes.bytes_of(device_class, value) if _is_held(classes, device_class, value) else 0
        for value in (operand, op.result)
    )
    ends = zip(step.does.collective.packs, (before, after), strict=True)
    leaves, comes = (size if packs else 0 for packs, size in ends)
    more, owner = max(leaves, comes), where.buffer(operand)
    if where.is_temporary(owner) and where.last_use.get(owner) is op:
        peak = max(before + leaves, (leaves or before) + (comes or after), comes + after)
        more = peak - before - after
    if more > 0:
        yield Buffer(more, number, (number,))


def _is_held(classes: DeviceClasses, device_class: int, value: SSAValue) -> bool:
    return device_class in classes.holding(dist_type(value))


def _copies(
    where: BufferPlan, mesh: Mesh, classes: DeviceClasses, before: Sequence[SimulatedStep]
) -> list[SimulatedStep]:
    """Return the copies at the end, on each class, of results that lie in other buffers. The first
    copy of a class waits for all of its steps, and each later one for the copy before it.

    Args:
        before: the steps before them.
    """
    copies: list[SimulatedStep] = []
    last: dict[int, int] = {}
    for value in copied_results(where):
        for device_class in classes.holding(dist_type(value)):
            kinds = classes.kinds_of((device_class,))
            does = LocalStep(COPY, 2 * classes.bytes_of(device_class, value))
            if phases := local_phases(does, mesh.machine.slowest_of(kinds)):
                after = (
                    [last[device_class]]
                    if device_class in last
                    else [n for n, step in enumerate(before) if device_class in step.task.on]
                )
                last[device_class] = len(before) + len(copies)
                task = StepTask(phases, len(mesh.machine.levels), tuple(after), on=(device_class,))
                at = classes.text(device_class)
                step = SimulatedStep(where.names[value], does, task, at, kinds=kinds)
                copies.append(replace(step, place=dist_type(value).place))
    return copies


def _loop(
    op: RepeatOp,
    model: CostModel,
    instance: StepInstance,
    before: int,
    where: BufferPlan,
    classes: DeviceClasses,
    compiled: bool,
) -> tuple[SimulatedStep, list[dict[BufferUse, float]]]:
    """Return a loop as a step, and the bytes that a device of each class needs throughout it.

    Each carry is in one of two buffers while it is computed from the other. A loop that one class
    runs is a step with phases behind all steps before it, and needs the memory of one iteration.
    """
    mesh, alone = mesh_of(op), len(classes.places) == 1
    with as_function(op) as body:
        simulation = _simulated(body, model, classes, compiled)
        if compiled:
            simulation = _with_slices(simulation, op, classes)
        spares = tuple(
            (classes.local_bytes(instance.on[0], dist_type(start)), spare_buffer is not None)
            for number, (start, spare_buffer) in enumerate(
                zip(op.carried, where.reusable(op), strict=True)
            )
            if not where.is_in_place(op, number)
        )
        loop = LoopStep(op.times, simulation, spares)
    phases, after = (loop.phases, tuple(range(before))) if alone else ((), ())
    task = StepTask(phases, len(mesh.machine.levels), after, on=instance.on)
    step = SimulatedStep(where.names[op.results[0]], loop, task, line=_line(op))
    needed: list[dict[BufferUse, float]] = []
    for number in instance.on:
        uses: dict[BufferUse, float] = {}
        for result, start, spare in zip(op.results, op.carried, where.spares(op), strict=False):
            x = dist_type(start)
            if spare is None and op.times > 1 and number in classes.holding(x):
                use = use_of(result)
                uses[use] = uses.get(use, 0) + classes.local_bytes(number, x)
        needed.append(uses)
    return step, needed


def _with_slices(simulation: Simulation, loop: RepeatOp, classes: DeviceClasses) -> Simulation:
    """Return the simulation of an iteration with the copies that software makes: of slices read by
    products, and of products that are stacked. Maps read and write slices in place."""
    mesh, carries = simulation.mesh, len(loop.carried)
    device = mesh.machine.slowest
    if device is None or not device.execution.copies or loop.times == 1:
        return simulation  # a loop of one iteration is none to compilers
    sliced = loop.body.block.args[carries : carries + len(loop.sliced)]
    read = [x for x in sliced if any(_contracts(use.operation) for use in x.uses)]
    stacked = [x for x in loop.yielded[carries:] if _contracts(x.owner)]
    steps = list(simulation.program)
    on = tuple(range(len(simulation.places)))
    reach = 2 * loop.times * sum(classes.bytes_of(0, value) for value in (*read, *stacked))
    for value in (*read, *stacked):
        dtype = dist_type(value).dtype
        size = as_number(classes.bytes_of(0, value))
        elements = ((SLICE, dtype.value, size // dtype.bytes),)
        does = LocalStep(COPY, 2 * size, elements=elements, reach=reach)
        phases = local_phases(does, device)
        task = StepTask(phases, len(mesh.machine.levels), tuple(range(len(steps))), on=on)
        steps.append(SimulatedStep(COPY, does, task))
    return replace(simulation, program=tuple(steps))


def _contracts(op: object) -> bool:
    """Return whether an operation is a sum of products."""
    return isinstance(op, DistOp) and op.structure is not None and op.structure.contracts
