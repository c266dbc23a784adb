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
from xdsl.ir import Operation

from collir.cost.collectives.collective import Collective
from collir.cost.collectives.phases import Phase
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.group import CostError, Group
from collir.cost.programs.schedule import StepTask, TimeSpan, longest_chain, schedule
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.nested import NestedOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.calls import inlined
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.ir.steps import PlannedStep, steps_of
from collir.layout import DistType, Mesh
from collir.layout.steps import OVER


@dataclass(frozen=True)
class FunctionCost:
    """The cost of a function under a model, in seconds.

    Attributes:
        steps: the costs of its collectives, in program order, without those inside of loops.
        slots: the place of every step in the program.
        loops: the costs of its loops, in program order.
    """

    name: str
    mesh: Mesh
    model: CostModel
    steps: tuple[StepCost, ...]
    slots: "tuple[Slot, ...]"
    loops: "tuple[LoopCost, ...]" = ()

    @property
    def overlaps(self) -> bool:
        """True if steps may run at the same time."""
        return not all(slot.waited for slot in self.slots)

    @cached_property
    def items(self) -> "tuple[StepCost | LoopCost, ...]":
        """The steps and the loops, in program order."""
        items: list[StepCost | LoopCost] = list(self.steps)
        for loop in reversed(self.loops):
            items.insert(loop.place, loop)
        return tuple(items)

    @cached_property
    def tasks(self) -> tuple[StepTask, ...]:
        """The steps and the loops, to be scheduled; a loop waits for all steps before it."""
        tasks: list[StepTask] = []
        numbers: list[int] = []  # of the task of each step
        for number, item in enumerate(self.items):
            if isinstance(item, LoopCost):
                phases = (Phase(work=item.time),) if item.time else ()
                tasks.append(StepTask(phases, 0, tuple(range(number))))
                continue
            slot = self.slots[len(numbers)]
            after = tuple(numbers[step] for step in slot.after)
            numbers.append(number)
            tasks.append(StepTask(item.phases, stream_of(item.collective), after, slot.waited))
        return tuple(tasks)

    @cached_property
    def item_spans(self) -> list[TimeSpan]:
        """The time span of every step and loop."""
        if self.overlaps:
            return schedule(self.tasks)
        ends = list(accumulate((item.time for item in self.items), initial=0.0))
        return list(pairwise(ends))

    @property
    def spans(self) -> list[TimeSpan]:
        """The time span of every step."""
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
        bounds = [item.bound for item in self.items]
        return longest_chain(self.tasks, bounds) if self.overlaps else sum(bounds)

    def scaled(self, factor: float) -> "FunctionCost":
        """Return the cost with all buffers ``factor`` times as large.

        Raises:
            CostError: see ``step_cost``.
        """
        steps = (step_cost(step.collective.scaled(factor), self.model) for step in self.steps)
        loops = (replace(loop, body=loop.body.scaled(factor)) for loop in self.loops)
        return replace(self, steps=tuple(steps), loops=tuple(loops))


@dataclass(frozen=True)
class LoopCost:
    """The cost of a loop, which is that of its body times the number of iterations.

    All steps are waited for at the end of an iteration.

    Attributes:
        place: the number of steps of the function that stand before it.
        times: the number of iterations.
        body: the cost of an iteration.
    """

    place: int
    times: int
    body: FunctionCost

    @property
    def time(self) -> float:
        """Seconds of all iterations."""
        return self.times * self.body.time

    @property
    def bound(self) -> float:
        """A lower bound of the time."""
        return self.times * self.body.bound


def stream_of(collective: Collective) -> int:
    """Return the stream of a collective: the outermost level that it goes through."""
    digits = Group.of(collective.mesh, collective.axes, collective.at_root).digits
    return min((digit.level for digit in digits), default=0)


@dataclass(frozen=True)
class Slot:
    """The place of a collective in a program.

    Attributes:
        after: the numbers of the collectives whose results it needs.
        waited: True if later steps wait for it, as it is not ``async``.
    """

    after: tuple[int, ...]
    waited: bool


def cost(module: ModuleOp, model: CostModel | None = None) -> list[FunctionCost]:
    """Return the costs of all functions of a module, in order.

    Raises:
        DiagnosticError: an operation that is not of the coll dialect, a mesh that is not placed on
            levels, an algorithm that does not fit its group; with its position.
    """
    functions = functions_of(inlined(module))
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
    name: str, ops: Iterable[Operation] | Iterable[PlannedStep], mesh: Mesh, model: CostModel
) -> FunctionCost:
    """Return the cost of a program, built or only planned, under the name of a function.

    Raises:
        DiagnosticError: an operation has no cost; see ``cost``.
        CostError: a planned step has no cost.
    """
    steps: list[StepCost] = []
    slots: list[Slot] = []
    loops: list[LoopCost] = []

    def without_loops() -> Iterator[Operation | PlannedStep]:
        for op in ops:
            if isinstance(op, RepeatOp):
                body = program_cost(name, op.body.block.ops, mesh, model)
                loops.append(LoopCost(len(steps), op.times, body))
            elif isinstance(op, NestedOp):
                raise DiagnosticError.at(op, f"a {op.mnemonic} has no cost of its own")
            else:
                yield op

    number_of: dict[int, int] = {}  # of each collective among all steps, its number among them
    computed_on: set[int] = set()
    for place, (op, predecessors) in enumerate(steps_of(without_loops(), mesh)):
        needed = {number_of[step] for step in predecessors if step in number_of}
        if op.kind.sends:
            number_of[place] = len(steps)
            steps.append(_step_cost(op, mesh, model))
            slots.append(Slot(tuple(sorted(needed | computed_on)), not op.is_async))
            computed_on.clear()  # later steps start behind this one, and so behind these
        else:  # a local step waits for its operands, and so does all that follows it
            computed_on |= needed
    return FunctionCost(name, mesh, model, tuple(steps), tuple(slots), tuple(loops))


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
    """Return the collective from one layout to another; ``axes`` is None for a permute."""
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
