"""What the functions of a module cost: their collectives, one after the other, or overlapping
where they are ``async``.

Operations that send nothing are free here; so is packing the blocks of a later dimension.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.group import CostError, Group
from collir.cost.programs.schedule import Span, Task, chain, schedule
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.ir.steps import PlannedStep, steps_of
from collir.layout import DistType, Mesh
from collir.layout.steps import OVER


@dataclass(frozen=True)
class FunctionCost:
    """What a function costs under a model; seconds.

    Attributes:
        slots: for every step where it stands in the program.
    """

    name: str
    mesh: Mesh
    model: CostModel
    steps: tuple[StepCost, ...]
    slots: "tuple[Slot, ...]"

    @property
    def overlaps(self) -> bool:
        """Whether steps may run at the same time."""
        return not all(slot.waited for slot in self.slots)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The steps, to be scheduled."""
        each = zip(self.steps, self.slots, strict=True)
        return tuple(
            Task(step.phases, stream_of(step.collective), slot.after, slot.waited)
            for step, slot in each
        )

    @cached_property
    def spans(self) -> list[Span]:
        """When every step starts and ends."""
        if self.overlaps:
            return schedule(self.tasks)
        ends = list(accumulate((step.time for step in self.steps), initial=0.0))
        return list(pairwise(ends))

    @cached_property
    def time(self) -> float:
        """When the last step ends; the sum of the steps' times where they do not overlap."""
        return max((end for _, end in self.spans), default=0.0)

    @cached_property
    def bound(self) -> float:
        """What these steps take at least: the sum of their bounds; where they overlap, the longest
        chain of bounds, each behind what it has to wait for."""
        if not self.overlaps:
            return sum(step.bound for step in self.steps)
        return chain(self.tasks, [step.bound for step in self.steps])

    def scaled(self, factor: float) -> "FunctionCost":
        """The cost with all buffers ``factor`` times as large.

        Raises:
            CostError: see ``step_cost``.
        """
        steps = (step_cost(step.collective.scaled(factor), self.model) for step in self.steps)
        return replace(self, steps=tuple(steps))


def stream_of(collective: Collective) -> int:
    """The stream of a collective: the outermost level that it goes through."""
    digits = Group.of(collective.mesh, collective.axes, collective.at_root).digits
    return min((digit.level for digit in digits), default=0)


@dataclass(frozen=True)
class Slot:
    """Where a collective stands in a program.

    Attributes:
        after: the numbers of the collectives whose results have to be there before.
        waited: whether what follows waits for it (it is not ``async``).
    """

    after: tuple[int, ...]
    waited: bool


def cost(module: ModuleOp, model: CostModel | None = None) -> list[FunctionCost]:
    """What every function of a module costs, in order.

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
    computed_on: set[int] = set()
    for place, (op, predecessors) in enumerate(steps_of(ops, mesh)):
        needed = {number_of[step] for step in predecessors if step in number_of}
        if op.kind.sends:
            number_of[place] = len(steps)
            steps.append(_step_cost(op, mesh, model))
            slots.append(Slot(tuple(sorted(needed | computed_on)), not op.is_async))
            computed_on.clear()  # later steps start behind this one, and so behind these
        else:  # a local step waits for its operands, and so does all that follows it
            computed_on |= needed
    return FunctionCost(name, mesh, model, tuple(steps), tuple(slots))


def _step_cost(step: DistOp | PlannedStep, mesh: Mesh, model: CostModel) -> StepCost:
    if isinstance(step, DistOp):
        return op_cost(step, mesh, model)
    return step_cost(collective_of(step, mesh), model)


def op_cost(op: DistOp, mesh: Mesh, model: CostModel) -> StepCost:
    """What a collective operation costs.

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
        return collective_between(step.kind.name, mesh, x, y, axes)
    x, y = dist_type(step.operands[0]), dist_type(step.result)
    name = step.word("algorithm") if "algorithm" in step.properties else None
    return collective_between(step.mnemonic, mesh, x, y, axes, name)


def collective_between(
    kind: str,
    mesh: Mesh,
    x: DistType,
    y: DistType,
    axes: tuple[str, ...] | None,
    algorithm: str | None = None,
) -> Collective:
    """A collective from a layout to another; ``axes`` are None of a permute."""
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
        at_root=x.root - frozenset(axes),
        replicated=frozenset(mesh.by_name) - frozenset(x.axes) - frozenset(axes),
        algorithm=algorithm,
        moves=moves,
    )
