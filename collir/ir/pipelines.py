"""Pipelines: loops over microbatches whose bodies are tasks at places, with a schedule.

The body of such a loop calls a function for each task, and sends values between their places. The
loop computes the same with and without the schedule, which orders the tasks of all microbatches at
each place.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, RepeatOp, YieldOp
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Diagnostic, Position
from collir.layout import Place
from collir.layout.mesh import index_over
from collir.layout.pipelines.schedule import Schedule, problems
from collir.layout.pipelines.tasks import Part, TaskGraph, part_name
from collir.layout.pipelines.text import part_of_text, schedule_of_text
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
            elif not (moves_values(op) or isinstance(op, YieldOp)):
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
        """The tasks of a microbatch: their places, and their dependencies."""
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
        needed: dict[Part, None] = {}
        for value in left:  # grows meanwhile
            owner = value.owner
            if isinstance(owner, Block):
                continue
            if isinstance(owner, CallOp):
                needed[names[owner]] = None
            else:
                left += owner.operands
        yield from needed


def moves_values(op: Operation) -> bool:
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
