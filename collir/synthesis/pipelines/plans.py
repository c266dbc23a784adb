"""Plans to cut a training step, by the wishes of a user."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.layout.pipelines.rules import RULES, ScheduleRule
from collir.layout.pipelines.schedule import Schedule, counted
from collir.layout.pipelines.text import listed_schedule, schedule_text
from collir.transforms.stages.outlining import PipelineAxis
from collir.transforms.stages.staged import StagePlan

OPTIMAL = "optimal"
"""The word for a schedule that is searched for."""

BALANCED = "balanced"
"""The word for layers of chunks that balance the places."""


@dataclass(frozen=True)
class Wanted:
    """A user's wishes for a plan.

    Attributes:
        schedule: the name of a rule, ``OPTIMAL``, or the path of a file with tasks.
        chunks: the number of chunks at each place; 0: that of the rule, or 2.
        split: whether gradients of weights are tasks of their own where the rule allows both.
        layers: the layers of each chunk; none: by the weights of the axis.
    """

    schedule: str
    chunks: int
    split: bool
    layers: Sequence[int]


def layers_wanted(words: Sequence[int | str]) -> tuple[int, ...] | None:
    """Return the layers of each chunk that an option names; None if they are to be balanced.

    Raises:
        DiagnosticError: a word is no integer.
    """
    if tuple(words) == (BALANCED,):
        return None
    numbers = [word for text in words for word in str(text).split(",")]
    for word in numbers:
        if not word.strip().isdigit():
            raise DiagnosticError(
                Diagnostic(
                    f"the layers of chunks are integers of at least 1, as in layers=3,4,4,1, or "
                    f"layers={BALANCED}, not '{word}'"
                )
            )
    return tuple(map(int, numbers))


def axis_of(function: FuncOp, name: str) -> PipelineAxis:
    """Return the axis of a pipeline.

    Raises:
        DiagnosticError: the mesh of the function has no such axis, or it has one coordinate.
    """
    mesh = mesh_of(function)
    subs = mesh.named(name)
    if not subs:
        known = ", ".join(axis.name for axis in mesh.axes)
        problem = (
            f"mesh @{mesh.name} has no axis '{name}' for a pipeline (its axes are {known}): say "
            "which with axis="
            if subs is None
            else f"axis '{name}' of mesh @{mesh.name} has size 1, and a pipeline has several places"
        )
        raise DiagnosticError.at(function, problem)
    return PipelineAxis(mesh, subs)


def plan_of(wanted: Wanted, loop: RepeatOp, axis: PipelineAxis) -> StagePlan:
    """Return how a step is cut whose loop over microbatches is given.

    Raises:
        DiagnosticError: there is no such schedule, or it does not fit.
    """
    if wanted.schedule in RULES:
        rule = RULES[wanted.schedule]
        return _by_rule(rule, wanted, loop, axis)
    return _from_file(wanted, loop, axis)


def optimal_plans(wanted: Wanted, loop: RepeatOp, axis: PipelineAxis) -> list[StagePlan]:
    """Return the plans among which the best schedule is searched, each with a first schedule.

    They are the plans of all rules that fit, with the wanted number of rounds of chunks. Given
    layers decide the number of chunks.
    """
    size, count, layers = axis.size, loop.times, wanted.layers or None
    plans: list[StagePlan] = []
    for rule in RULES.values():
        chunks = wanted.chunks or rule.chunks or 2
        for splits in (True,) if wanted.split else rule.splits:
            if not rule.problems(size, count, chunks, splits):
                places = rule.chunk_places(size, chunks)
                plans.append(StagePlan(rule.name, places, splits, layers, rule.directions))
    places = tuple(range(size)) * (wanted.chunks or 1)
    for splits in (True,) if wanted.split else (True, False):
        plans.append(StagePlan(_all_forward(places, count, splits), places, splits, layers))
    different: dict[object, StagePlan] = {}
    for plan in plans:
        different.setdefault((plan.places, plan.splits, plan.directions), plan)
    fitting = [plan for plan in different.values() if layers and len(plan.homes) == len(layers)]
    return fitting or list(different.values())


def _all_forward(chunk_places: Sequence[int], microbatches: int, splits: bool) -> str:
    """Return the schedule in which all places run their forward tasks first."""
    places = max(chunk_places) + 1
    forward = list(enumerate(chunk_places))
    rows = [
        " ".join(
            f"{kind}{chunk}.{number}"
            for kinds, chunks in (("F", forward), ("BW" if splits else "B", forward[::-1]))
            for chunk, at in chunks
            if at == place
            for number in range(microbatches)
            for kind in kinds
        )
        for place in range(places)
    ]
    return "; ".join(rows)


def _by_rule(rule: ScheduleRule, wanted: Wanted, loop: RepeatOp, axis: PipelineAxis) -> StagePlan:
    chunks = wanted.chunks or None
    splits = True if wanted.split else None
    if problems := rule.problems(axis.size, loop.times, chunks, splits):
        raise DiagnosticError.at(loop, problems[0])
    places = rule.chunk_places(axis.size, chunks)
    own = rule.splits[0] if splits is None else splits
    return StagePlan(rule.name, places, own, wanted.layers or None, rule.directions)


def _from_file(wanted: Wanted, loop: RepeatOp, axis: PipelineAxis) -> StagePlan:
    path = Path(wanted.schedule)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join((*RULES, OPTIMAL))
        raise DiagnosticError.at(
            loop,
            f"there is no schedule '{wanted.schedule}', and no file of this name can be read: use "
            f"{known}, or a file with the tasks of each place",
        ) from error
    for line, row in enumerate(text.splitlines(), 1):
        try:
            _ = listed_schedule(row, loop.times)
        except ValueError as error:
            message = (
                f"{path}:{line}: a row lists the tasks of a place, such as F0.0 F0.1 B0.0 B0.1"
            )
            raise DiagnosticError.at(loop, message) from error
    schedule = listed_schedule(text, loop.times)
    if problem := _problem(schedule, wanted, axis.size):
        raise DiagnosticError.at(loop, f"{path} {problem}")
    at = _chunk_places(schedule)
    places = [at[chunk] for chunk in sorted(at)]
    return StagePlan(
        schedule_text(schedule), places, schedule.splits_backward, wanted.layers or None
    )


def _problem(schedule: Schedule, wanted: Wanted, size: int) -> str:
    """Return why a listed schedule has not the wanted chunks at each place; empty if it has."""
    if schedule.places != size:
        return (
            f"lists the tasks of {counted(schedule.places, 'place')}, and the axis has {size}: "
            "a line for each"
        )
    at = _chunk_places(schedule)
    last = max(task.chunk for order in schedule.orders for task in order)
    missing = next(chunk for chunk in range(len(at) + 1) if chunk not in at)
    if missing <= last:
        later = ", and tasks of later chunks" if missing < last else ""
        return f"has no task F{missing}{later}"
    chunks = {list(at.values()).count(place) for place in range(size)}
    if len(chunks) > 1:
        return f"has {' and '.join(map(str, sorted(chunks)))} chunks at places: use equally many"
    if wanted.chunks and wanted.chunks not in chunks:
        held = counted(chunks.pop(), "chunk")
        return f"has {held} at each place, not {wanted.chunks}: leave out chunks="
    if wanted.split and not schedule.splits_backward:
        return "has no gradients of weights as tasks of their own (W): leave out split="
    return ""


def _chunk_places(schedule: Schedule) -> dict[int, int]:
    """Return the place of each chunk: the first with a task of its forward pass."""
    found: dict[int, int] = {}
    for place, order in enumerate(schedule.orders):
        for task in order:
            if task.kind == "F":
                found.setdefault(task.chunk, place)
    return found
