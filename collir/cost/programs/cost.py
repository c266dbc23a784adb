"""The costs of the functions of a module: their collectives in sequence, or overlapping if they are
``async``.

Operations that send nothing are free here; so is packing the blocks of a dimension that is not the
first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.collectives.collective import Collective
from collir.cost.collectives.phases import Phase
from collir.cost.collectives.uneven import uneven_sizes
from collir.cost.model import CostModel, StepCost, is_grouped, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.classes import Classes, Instance, classes_of
from collir.cost.programs.kinds import seen_by
from collir.cost.programs.loops import Bound, Node, Repeated, TooManyError, least_time
from collir.cost.programs.schedule import StepTask, TimeSpan, longest_chain, schedule
from collir.cost.programs.timeline import timeline
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.nested import CallOp, NestedOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of, task_names
from collir.ir.rotation import as_run
from collir.ir.steps import PlannedStep
from collir.layout import DistType, Mesh, Place
from collir.layout.sizes import as_number
from collir.layout.steps import OVER, Arguments

_NO_ARGUMENTS: Arguments = {}


@dataclass(frozen=True)
class FunctionCost:
    """The cost of a function under a model, in seconds.

    Attributes:
        items: the costs of its collectives and loops, in program order.
        slots: the place of each of them in the program.
        apart: True if there are several classes of devices.
    """

    name: str
    mesh: Mesh
    model: CostModel
    items: "tuple[StepCost | LoopCost, ...]"
    slots: "tuple[Slot, ...]"
    apart: bool = False

    @property
    def steps(self) -> tuple[StepCost, ...]:
        """The costs of its collectives, without those inside of loops."""
        return tuple(item for item in self.items if isinstance(item, StepCost))

    @property
    def loops(self) -> "tuple[LoopCost, ...]":
        """The costs of its loops."""
        return tuple(item for item in self.items if isinstance(item, LoopCost))

    @property
    def overlaps(self) -> bool:
        """True if steps may run at the same time."""
        return not all(slot.waited and slot.instance.sites is None for slot in self.slots)

    @cached_property
    def tasks(self) -> tuple[StepTask, ...]:
        """The steps and the loops, to be scheduled."""
        return tuple(
            StepTask(
                slot.instance.located(item.phases),
                stream_of(item.collective) if isinstance(item, StepCost) else 0,
                slot.after,
                slot.waited,
                slot.instance.on,
            )
            for item, slot in zip(self.items, self.slots, strict=True)
        )

    @property
    def nodes(self) -> list[Node]:
        """The steps and the loops, where several classes of devices run the loops."""
        loops = [item if isinstance(item, LoopCost) else None for item in self.items]
        return [
            Repeated(loop.times, tuple(loop.body.nodes), task.on) if loop else task
            for loop, task in zip(loops, self.tasks, strict=True)
        ]

    @property
    def bounds(self) -> list[Bound]:
        """The lower bounds of the times of steps, and of those in loops."""
        return [x.body.bounds if isinstance(x, LoopCost) else x.bound for x in self.items]

    @property
    def _has_loops_apart(self) -> bool:
        """True if several classes of devices run a loop, each at its own time."""
        return bool(self.loops) and self.apart

    @cached_property
    def item_spans(self) -> Sequence[TimeSpan]:
        """The time span of every step and loop."""
        if self._has_loops_apart:
            return timeline(self.nodes).outer_spans
        if self.overlaps:
            return schedule(self.tasks)
        ends = list(accumulate((item.time for item in self.items), initial=0.0))
        return list(pairwise(ends))

    def loop_bound(self, number: int) -> float:
        """Return a lower bound of the time of the loop that is item ``number``."""
        if self._has_loops_apart:
            return least_time([self.nodes[number]], [self.bounds[number]])
        return self.items[number].bound

    @property
    def spans(self) -> list[TimeSpan]:
        """The time span of every step, without those inside of loops."""
        timed = zip(self.items, self.item_spans, strict=True)
        return [span for item, span in timed if isinstance(item, StepCost)]

    @cached_property
    def time(self) -> float:
        """The end of the last step; if steps do not overlap, the sum of their times."""
        return max((end for _, end in self.item_spans), default=0.0)

    @cached_property
    def bound(self) -> float:
        """A lower bound of these steps' time: the sum of their bounds, or the longest chain of
        bounds if steps overlap."""
        if self._has_loops_apart:
            return least_time(self.nodes, self.bounds)
        bounds = [item.bound for item in self.items]
        return longest_chain(self.tasks, bounds) if self.overlaps else sum(bounds)

    def scaled(self, factor: float) -> "FunctionCost":
        """Return the cost with all buffers ``factor`` times as large.

        Raises:
            CostError: see ``step_cost``.
        """

        def scaled(item: StepCost | LoopCost) -> StepCost | LoopCost:
            if isinstance(item, LoopCost):
                return replace(item, body=item.body.scaled(factor))
            return step_cost(item.collective.scaled(factor), self.model)

        return replace(self, items=tuple(map(scaled, self.items)))


@dataclass(frozen=True)
class LoopCost:
    """The cost of a loop, which is that of its body times the number of iterations.

    All steps are waited for before it and at the end of each iteration. If several classes of
    devices run it, one may be ahead of another, and the time in a program is less.

    Attributes:
        times: the number of iterations.
        body: the cost of an iteration.
    """

    times: int
    body: FunctionCost

    @property
    def time(self) -> float:
        """Seconds of all iterations."""
        return self.times * self.body.time

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One phase, in which no other step runs."""
        return (Phase(work=self.time),) if self.time else ()

    @property
    def bound(self) -> float:
        """A lower bound of the time."""
        return self.times * self.body.bound


def stream_of(collective: Collective) -> int:
    """Return the stream of a collective: the outermost level that it goes through."""
    digits = collective.group().digits
    return min((digit.level for digit in digits), default=0)


@dataclass(frozen=True)
class Slot:
    """The place of a collective or a loop in a program.

    Attributes:
        instance: the classes of devices that run it, and the ports that they use.
        after: the numbers of the collectives whose results it needs.
        waited: True if later steps wait for it, as it is not ``async``.
    """

    instance: Instance
    after: tuple[int, ...]
    waited: bool


def cost(module: ModuleOp, model: CostModel | None = None) -> list[FunctionCost]:
    """Return the costs of all functions of a module, in order.

    Raises:
        DiagnosticError: an operation that is not of the coll dialect, a mesh that is not placed on
            levels, an algorithm that does not fit its group; with its position.
    """
    tasks, ready = task_names(module), as_run(module, tasks=True)
    functions = [op for op in functions_of(ready) if op.sym_name.data not in tasks]
    check_programs(functions, "has no cost", nested=True)
    with meshes_remembered():
        return [function_cost(function, model or CostModel()) for function in functions]


def function_cost(function: FuncOp, model: CostModel) -> FunctionCost:
    """Return the cost of one function.

    Raises:
        DiagnosticError: see ``cost``.
    """
    return program_cost(function.sym_name.data, function.body.ops, mesh_of(function), model)


def program_cost(
    name: str,
    ops: Iterable[Operation] | Iterable[PlannedStep],
    mesh: Mesh,
    model: CostModel,
    classes: Classes | None = None,
) -> FunctionCost:
    """Return the cost of a program, built or only planned, under the name of a function.

    Args:
        classes: the classes of devices that run it; None: those that the program tells apart.

    Raises:
        DiagnosticError: an operation has no cost; see ``cost``.
        CostError: a planned step has no cost.
    """
    items: list[StepCost | LoopCost] = []
    slots: list[Slot] = []
    number_of: dict[int, int] = {}  # of each collective among all steps, its number among them
    listed = list(ops)
    classes = classes or classes_of(listed, mesh)
    computed_on: list[set[int]] = [set() for _ in classes.places]
    for place, instance in enumerate(classes.instances(listed)):
        op = instance.step
        needed = {number_of[step] for step in instance.after if step in number_of}
        if type(op) is RepeatOp:  # not by ``isinstance``, which is slow: this runs for every step
            number_of[place] = len(items)
            after = () if classes.axes else tuple(range(len(items)))
            slots.append(Slot(instance, after, waited=True))
            body = program_cost(name, op.body.block.ops, mesh, model, classes)
            items.append(LoopCost(op.times, body))
        elif type(op) is CallOp:
            raise DiagnosticError.at(op, "a call has no cost of its own")
        elif not isinstance(op, NestedOp) and op.kind.sends:
            number_of[place] = len(items)
            items.append(_step_cost(op, seen_by(mesh, instance.kinds), model, instance.place))
            after = needed.union(*(computed_on[device_class] for device_class in instance.on))
            slots.append(Slot(instance, tuple(sorted(after)), not op.is_async))
            for device_class in instance.on:
                computed_on[device_class] = set()  # later steps start behind this one
        else:  # a local step waits for its operands, and so does all that follows it
            for device_class in instance.on:
                computed_on[device_class] |= needed
    result = FunctionCost(name, mesh, model, tuple(items), tuple(slots), bool(classes.axes))
    if result.apart and (loop := next((op for op in listed if isinstance(op, RepeatOp)), None)):
        try:
            _ = result.item_spans
        except TooManyError as error:
            raise DiagnosticError.at(loop, str(error)) from error
    return result


def _step_cost(step: DistOp | PlannedStep, mesh: Mesh, model: CostModel, place: Place) -> StepCost:
    if isinstance(step, DistOp):
        return op_cost(step, mesh, model, place)
    return step_cost(_at(collective_of(step, mesh), place), model)


def op_cost(op: DistOp, mesh: Mesh, model: CostModel, place: Place = ()) -> StepCost:
    """Return the cost of a collective operation.

    Args:
        place: the coordinates of the devices that run it apart from others.

    Raises:
        DiagnosticError: see ``cost``.
    """
    try:
        return step_cost(_at(collective_of(op, mesh), place), model)
    except CostError as error:
        raise DiagnosticError.at(op, str(error)) from error


def _at(collective: Collective, place: Place) -> Collective:
    """Return a collective of the devices at a place alone."""
    new = {axis: n for axis, n in place if axis not in collective.at_root}
    strides = collective.mesh.by_name
    return replace(
        collective,
        at_root=collective.at_root.union(new),
        replicated=collective.replicated.difference(new),
        base=collective.base + sum(n * strides[axis].stride for axis, n in new.items()),
    )


def runs_grouped(op: DistOp, mesh: Mesh) -> bool:
    """Return whether NCCL runs a collective on blocks that differ in size as a group of others with
    one root each, which is faster than padding, or is where no time is known."""
    try:
        return is_grouped(step_cost(collective_of(op, mesh), CostModel("nccl")))
    except CostError:  # the mesh is on no levels
        return True


def collective_of(step: DistOp | PlannedStep, mesh: Mesh) -> Collective:
    """Return a collective step as the cost models see it."""
    axes = step.over if OVER in step.kind.parameters else None
    if isinstance(step, PlannedStep):
        x, y = step.operands[0].type, step.result.type
        return collective_between(step.kind.name, mesh, x, y, axes, step.arguments)
    x, y = dist_type(step.operands[0]), dist_type(step.result)
    return collective_between(step.mnemonic, mesh, x, y, axes, step.arguments)


def collective_between(
    kind: str,
    mesh: Mesh,
    x: DistType,
    y: DistType,
    axes: tuple[str, ...] | None,
    arguments: Arguments = _NO_ARGUMENTS,
) -> Collective:
    """Return the collective from one layout to another; ``axes`` is None for a permute."""
    algorithm = arguments.get("algorithm")
    sender, receiver = arguments.get("sender"), arguments.get("receiver")
    distance = arguments.get("distance")
    uneven = uneven_sizes(mesh, x, y, axes)
    size = uneven.size if uneven else max(x.local_bytes(mesh), y.local_bytes(mesh))
    moves = None
    if axes is None:
        axes = mesh.ordered({axis for z in (x, y) for dim in z.dims for axis in dim.axes})
        moves = (x, y)
    return Collective(
        kind,
        mesh,
        axes,
        as_number(size),
        at_root=x.placed - frozenset(axes),
        replicated=frozenset(mesh.by_name) - frozenset(x.axes) - frozenset(axes),
        algorithm=algorithm if isinstance(algorithm, str) else None,
        moves=moves,
        route=(sender, receiver) if isinstance(sender, int) and isinstance(receiver, int) else None,
        shift=(distance, "open" in arguments) if isinstance(distance, int) else None,
        base=sum(n * mesh.by_name[axis].stride for axis, n in x.place if axis not in axes),
        uneven=uneven,
    )
