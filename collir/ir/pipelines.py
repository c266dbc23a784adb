"""Pipelines: loops over microbatches whose bodies are tasks at places, with a schedule.

The body of such a loop calls a function for each task, and sends values between their places. What
the loop computes is what it would without a schedule; the schedule says in which order each place
runs the tasks of all microbatches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import function_of, mesh_of
from collir.dialects.nested import CallOp, RepeatOp, YieldOp
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Diagnostic, Position
from collir.ir.loops import StepsBefore
from collir.ir.names import set_name
from collir.ir.retyping import fix_parameters
from collir.ir.roles import pass_role
from collir.layout import Place
from collir.layout.mesh import index_over
from collir.layout.pipelines.schedule import Schedule, problems, program_order
from collir.layout.pipelines.tasks import Part, TaskGraph, part_name
from collir.layout.pipelines.text import part_of_text, schedule_of_text
from collir.layout.sizes import formula_of
from collir.layout.steps import ASYNC
from collir.layout.types import place_text


class PipelineError(Exception):
    """A loop with a schedule is no pipeline.

    Attributes:
        op: the operation that is wrong.
    """

    def __init__(self, op: Operation, text: str):
        super().__init__(text)
        self.op = op


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The tasks of a loop with a schedule.

    Attributes:
        loop: the loop; its iterations are the microbatches.
        tasks: the call of each task.
        places: the places of tasks, in order of their coordinates.
    """

    loop: RepeatOp
    tasks: Mapping[Part, CallOp]
    places: tuple[Place, ...]

    @staticmethod
    def of(loop: RepeatOp) -> "Pipeline":
        """Return the pipeline that a loop is.

        Raises:
            PipelineError: the loop has other steps than tasks and sends, or goes backward.
        """
        if loop.is_reverse or loop.recompute is not None:
            raise PipelineError(loop, "a repeat with a schedule is not in reverse, nor recomputed")
        tasks: dict[Part, CallOp] = {}
        for op in loop.body.block.ops:
            if type(op) is CallOp and op.task is not None:
                part = _part_of(op)
                if part in tasks:
                    raise PipelineError(op, f"task {op.task.data} is there twice")
                tasks[part] = op
            elif not (_moves(op) or isinstance(op, YieldOp)):
                raise PipelineError(
                    op, "in a repeat with a schedule there are only tasks and steps that send"
                )
        if not tasks:
            raise PipelineError(loop, "a repeat with a schedule has tasks: `call @f(...) task F0`")
        mesh = mesh_of(loop)

        def coordinates(place: Place) -> int:
            return index_over(mesh, mesh.ordered(axis for axis, _ in place), dict(place))

        at = {_place_of(call) for call in tasks.values()}
        return Pipeline(loop, tasks, tuple(sorted(at, key=coordinates)))

    @cached_property
    def graph(self) -> TaskGraph:
        """The tasks of a microbatch: their places, and which need the results of which."""
        number = {place: index for index, place in enumerate(self.places)}
        at = {part: number[_place_of(call)] for part, call in self.tasks.items()}
        return TaskGraph(at, {part: tuple(self._needed(part)) for part in self.tasks})

    @cached_property
    def schedule(self) -> Schedule:
        """The order of the tasks at each place.

        Raises:
            PipelineError: there is no such schedule for these tasks.
        """
        assert self.loop.schedule is not None
        chunks = [self.graph.places[part] for part in sorted(self.tasks) if part[0] == "F"]
        splits = any(kind == "W" for kind, _ in self.tasks)
        try:
            schedule = schedule_of_text(self.loop.schedule.data, chunks, self.loop.times, splits)
        except ValueError as error:
            raise PipelineError(self.loop, str(error)) from error
        return schedule.only(self.tasks)

    def problems(self) -> Iterator[tuple[Operation, str]]:
        """Yield what is wrong with the carries and with the schedule, each with its operation.

        Raises:
            PipelineError: there is no such schedule for these tasks.
        """
        for carry, value in zip(self.loop.carries, self.loop.yielded, strict=False):
            users = {use.operation for use in carry.uses} - {self.loop.body.block.last_op}
            if len(users) > 1 or not users.issubset({value.owner}):
                text = (
                    f"{value_text(carry, 'the carry')} goes through several tasks: with a "
                    "schedule, a carry is read by one task, which yields it"
                )
                yield self.loop, text
                return
        for text in problems(self.schedule, self.graph):
            yield self.loop, text

    def _needed(self, part: Part) -> Iterator[Part]:
        """Yield the parts whose results a part needs, directly or through steps that send."""
        names = {call: name for name, call in self.tasks.items()}
        left: list[SSAValue] = list(self.tasks[part].operands)
        found: dict[Part, None] = {}
        for value in left:  # grows meanwhile
            owner = value.owner
            if isinstance(owner, Block):
                continue
            if isinstance(owner, CallOp):
                found[names[owner]] = None
            else:
                left += owner.operands
        yield from found


def _moves(op: Operation) -> bool:
    """Return whether an operation brings a value to a place, and does nothing else."""
    return isinstance(op, DistOp) and op.kind.after == "root" and op.kind.before != "partial"


def _part_of(call: CallOp) -> Part:
    assert call.task is not None
    try:
        return part_of_text(call.task.data)
    except ValueError as error:
        raise PipelineError(call, str(error)) from error


def _place_of(call: CallOp) -> Place:
    function = call.function()
    assert function is not None
    types = [dist_type(value) for value in (*call.operands, *call.results)]
    place = types[0].place
    for x in types:
        if x.place != place:
            raise PipelineError(
                call,
                f"a task is at one place, not at {place_text(place)} and {place_text(x.place)}",
            )
    if not place:
        name = part_name(_part_of(call))
        raise PipelineError(
            call, f"task {name} is at no place: what it takes and makes is everywhere"
        )
    return place


class _WrittenOut(StepsBefore):
    """The tasks and sends of all microbatches of a pipeline, put in front of its loop."""

    def __init__(self, pipeline: Pipeline):
        super().__init__(pipeline.loop)
        self.pipeline = pipeline
        op = self.op
        fixed = zip(
            op.body.block.args[len(op.carried) + len(op.sliced) :], op.invariant, strict=True
        )
        self.carried: dict[SSAValue, SSAValue] = dict(zip(op.carries, op.carried, strict=True))
        self.values: list[dict[SSAValue, SSAValue]] = [dict(fixed)]
        self.values += [dict(self.values[0]) for _ in range(op.times - 1)]
        self.next = dict(zip(op.yielded[: len(op.carried)], op.carries, strict=True))
        sliced = op.body.block.args[len(op.carried) : len(op.carried) + len(op.sliced)]
        self.stacks: dict[SSAValue, SSAValue] = dict(zip(sliced, op.sliced, strict=True))
        self.moves = [inner for inner in op.body.block.ops if _moves(inner)]

    def run(self) -> None:
        """Put the steps in front of the loop, and erase it."""
        op = self.op
        for task in program_order(self.pipeline.schedule, self.pipeline.graph):
            call = self.pipeline.tasks[task.part]
            self._add(call, task.microbatch)
            for move in self.moves:
                if (
                    move.operands[0] in call.results
                    or move.operands[0] in self.values[task.microbatch]
                ):
                    self._add(move, task.microbatch)
        stacks = [
            self.stack({number: values[value] for number, values in enumerate(self.values)})
            for value in op.yielded[len(op.carried) :]
        ]
        results = [*(self.carried[carry] for carry in op.carries), *stacks]
        for result, value in zip(op.results, results, strict=True):
            set_name(value, result.name_hint or value.name_hint)
            pass_role(result, value)
            result.replace_all_uses_with(value)
        assert op.parent is not None
        op.parent.erase_op(op)

    def _value(self, value: SSAValue, microbatch: int) -> SSAValue:
        """Return a value of a microbatch; the steps that make it are added if they are missing."""
        known = self.values[microbatch]
        if value in self.carried:
            return self.carried[value]
        if value not in known:
            if value in self.stacks:
                known[value] = self.slice(self.stacks[value], microbatch)
            else:
                assert isinstance(value.owner, Operation)
                self._add(value.owner, microbatch)
        return known[value]

    def _add(self, op: Operation, microbatch: int) -> None:
        """Add an operation of the body for a microbatch, if it is not there yet."""
        known = self.values[microbatch]
        if op.results[0] in known:
            return
        inputs = {value: self._value(value, microbatch) for value in op.operands}
        copy = op.clone(dict(inputs))
        self.insert(copy)
        if isinstance(copy, DistOp) and copy.kind.sends:
            copy.properties[ASYNC.name] = UnitAttr()
        known |= zip(op.results, copy.results, strict=True)
        for result in op.results:
            if result in self.next:
                self.carried[self.next[result]] = known[result]


def write_out(loop: RepeatOp) -> None:
    """Put the tasks and sends of all microbatches in the place of a loop with a schedule.

    They are in an order that agrees with the order of each place; sends are ``async``. If the
    number of microbatches is a formula, its parameters get the values that they have.
    """
    function = function_of(loop)
    assert function is not None
    fix_parameters(function, formula_of(loop.times).parameters)
    _WrittenOut(Pipeline.of(loop)).run()


def pipelines_in(root: Operation) -> list[RepeatOp]:
    """Return the loops with schedules in an operation."""
    return [op for op in root.walk() if type(op) is RepeatOp and op.schedule is not None]


def pipeline_errors(module: ModuleOp) -> list[Diagnostic]:
    """Return what is wrong with the loops with schedules of a module, whose calls are right."""
    found: list[tuple[Operation, str]] = []
    for loop in pipelines_in(module):
        try:
            found += Pipeline.of(loop).problems()
        except PipelineError as error:
            found.append((error.op, str(error)))
    return [Diagnostic(text, Position.of(op)) for op, text in found]
