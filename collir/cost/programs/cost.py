"""The costs of the functions of a module: their collectives in sequence, or overlapping if they are
``async``.

Operations that send nothing are free here; so is packing the blocks of a dimension that is not the
first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.group import CostError, Group
from collir.cost.programs.devices import DeviceClasses, Devices
from collir.cost.programs.schedule import StepTask, TimeSpan, longest_chain, schedule
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.ir.steps import PlannedStep, PlannedValue, steps_of
from collir.layout import DistType, Mesh
from collir.layout.steps import OVER, Arguments

_NO_ARGUMENTS: Arguments = {}


@dataclass(frozen=True)
class FunctionCost:
    """The cost of a function under a model, in seconds.

    Attributes:
        steps: the costs of its collectives, in program order.
        slots: the place of every step in the program.
    """

    name: str
    mesh: Mesh
    model: CostModel
    steps: tuple[StepCost, ...]
    slots: "tuple[Slot, ...]"

    @property
    def overlaps(self) -> bool:
        """True if steps may run at the same time."""
        return not all(slot.waited and slot.devices is None for slot in self.slots)

    @cached_property
    def tasks(self) -> tuple[StepTask, ...]:
        """The steps, to be scheduled."""
        return tuple(
            StepTask(step.phases, stream_of(step.collective), slot.after, slot.waited, slot.devices)
            for step, slot in zip(self.steps, self.slots, strict=True)
        )

    @cached_property
    def spans(self) -> list[TimeSpan]:
        """The time span of every step."""
        if self.overlaps:
            return schedule(self.tasks)
        ends = list(accumulate((step.time for step in self.steps), initial=0.0))
        return list(pairwise(ends))

    @cached_property
    def time(self) -> float:
        """The end of the last step; if steps do not overlap, the sum of their times."""
        return max((end for _, end in self.spans), default=0.0)

    @cached_property
    def bound(self) -> float:
        """A lower bound of these steps' time: the sum of their bounds, or the longest chain of
        bounds if steps overlap."""
        if not self.overlaps:
            return sum(step.bound for step in self.steps)
        return longest_chain(self.tasks, [step.bound for step in self.steps])

    def scaled(self, factor: float) -> "FunctionCost":
        """Return the cost with all buffers ``factor`` times as large.

        Raises:
            CostError: see ``step_cost``.
        """
        steps = (step_cost(step.collective.scaled(factor), self.model) for step in self.steps)
        return replace(self, steps=tuple(steps))


def stream_of(collective: Collective) -> int:
    """Return the stream of a collective: the outermost level that it goes through."""
    digits = Group.of(
        collective.mesh, collective.axes, collective.at_root, base=collective.base
    ).digits
    return min((digit.level for digit in digits), default=0)


@dataclass(frozen=True)
class Slot:
    """The place of a collective in a program.

    Attributes:
        after: the numbers of the collectives whose results it needs.
        waited: True if later steps wait for it, as it is not ``async``.
        devices: the classes of devices that take part in it; None for all of them.
    """

    after: tuple[int, ...]
    waited: bool
    devices: Devices = None


def cost(module: ModuleOp, model: CostModel | None = None) -> list[FunctionCost]:
    """Return the costs of all functions of a module, in order.

    Raises:
        DiagnosticError: an operation that is not of the coll dialect, a mesh that is not placed on
            levels, an algorithm that does not fit its group; with its position.
    """
    functions = functions_of(module)
    check_programs(functions, "has no cost")
    with meshes_remembered():
        return [function_cost(function, model or CostModel()) for function in functions]


def function_cost(function: FuncOp, model: CostModel) -> FunctionCost:
    """Return the cost of one function.

    Raises:
        DiagnosticError: see ``cost``.
    """
    return program_cost(function.sym_name.data, function.body.ops, mesh_of(function), model)


def program_cost(
    name: str, ops: Iterable[Operation] | Iterable[PlannedStep], mesh: Mesh, model: CostModel
) -> FunctionCost:
    """Return the cost of a program, built or only planned, under the name of a function.

    Raises:
        DiagnosticError: an operation has no cost; see ``cost``.
        CostError: a planned step has no cost.
    """
    steps: list[StepCost] = []
    slots: list[Slot] = []
    number_of: dict[int, int] = {}  # of each collective among all steps, its number among them
    computed_on: dict[int, set[int]] = {}  # by class of devices
    program = list(steps_of(ops, mesh))
    types = [dist_type(x) if isinstance(x, SSAValue) else x.type for x in _values(program)]
    classes = DeviceClasses.of(types)
    for place, (op, predecessors) in enumerate(program):
        needed = {number_of[step] for step in predecessors if step in number_of}
        devices = classes.of_step(op)
        own = [computed_on.setdefault(number, set()) for number in devices or (0,)]
        if op.kind.sends:
            number_of[place] = len(steps)
            steps.append(_step_cost(op, mesh, model))
            after = needed.union(*own)
            slots.append(Slot(tuple(sorted(after)), not op.is_async, devices))
            for computed in own:  # later steps start behind this one, and so behind these
                computed.clear()
        else:  # a local step waits for its operands, and so does all that follows it
            for computed in own:
                computed |= needed
    return FunctionCost(name, mesh, model, tuple(steps), tuple(slots))


def _values(
    program: Iterable[tuple[DistOp | PlannedStep, object]],
) -> Iterator[SSAValue | PlannedValue]:
    """Yield the operands and results of steps."""
    for step, _ in program:
        yield from step.operands
        yield step.result


def _step_cost(step: DistOp | PlannedStep, mesh: Mesh, model: CostModel) -> StepCost:
    if isinstance(step, DistOp):
        return op_cost(step, mesh, model)
    return step_cost(collective_of(step, mesh), model)


def op_cost(op: DistOp, mesh: Mesh, model: CostModel) -> StepCost:
    """Return the cost of a collective operation.

    Raises:
        DiagnosticError: see ``cost``.
    """
    try:
        return step_cost(collective_of(op, mesh), model)
    except CostError as error:
        raise DiagnosticError.at(op, str(error)) from error


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
    size = max(x.local_bytes(mesh), y.local_bytes(mesh))
    moves = None
    if axes is None:
        axes = mesh.ordered({axis for z in (x, y) for dim in z.dims for axis in dim.axes})
        moves = (x, y)
    return Collective(
        kind,
        mesh,
        axes,
        float(size),
        at_root=x.placed - frozenset(axes),
        replicated=frozenset(mesh.by_name) - frozenset(x.axes) - frozenset(axes),
        algorithm=algorithm if isinstance(algorithm, str) else None,
        moves=moves,
        route=(sender, receiver) if isinstance(sender, int) and isinstance(receiver, int) else None,
        shift=(distance, "open" in arguments) if isinstance(distance, int) else None,
        base=sum(n * mesh.by_name[axis].stride for axis, n in x.place if axis not in axes),
    )
