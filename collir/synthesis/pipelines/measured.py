"""The work of a pipeline in a program, from its simulation, and the best schedule for it."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp

from collir.cost.model import CostModel
from collir.cost.programs.pipelines import KeptActivations
from collir.cost.programs.schedule import StepTask
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import is_placeholder
from collir.dialects.tensor import dist_type
from collir.ir.pipelines import Pipeline
from collir.layout import Mesh
from collir.layout.pipelines.tasks import Part, TaskGraph
from collir.layout.pipelines.text import part_of_text
from collir.syntax.units import bytes_text
from collir.synthesis.pipelines.work import PipelineWork
from collir.synthesis.programs.decomposing import decompose_by_search
from collir.synthesis.programs.search_options import SearchOptions


def decompose_placeholders(module: ModuleOp, model: CostModel) -> None:
    """Make steps of a module that has redistributions, in place, as they have no cost."""
    if any(map(is_placeholder, module.walk())):
        _ = decompose_by_search(module, SearchOptions(model))


_INSTANT = 1e-15
"""The seconds of a task for which no rate of the device is known, as each has to take some."""


class ResultTransfer(NamedTuple):
    """The way of a task's result to the devices that run another task.

    Attributes:
        source: the number of the step of the task.
        sends: the numbers of the steps that send it, on one stream.
    """

    source: int
    sends: tuple[int, ...]


def ways_of(
    graph: TaskGraph, simulation: Simulation
) -> dict[tuple[Part, Part], list[ResultTransfer]]:
    """Return the ways between the tasks of a simulated pipeline, of all microbatches."""
    program = simulation.program
    numbers: dict[tuple[Part, int], list[int]] = defaultdict(list)
    for number, step in enumerate(program):
        if step.pipelined is not None:
            numbers[part_of_text(step.kind), step.iterations[-1]].append(number)
    ways: dict[tuple[Part, Part], list[ResultTransfer]] = defaultdict(list)
    for (part, microbatch), users in numbers.items():
        for source in graph.needs.get(part, ()):
            own = numbers[source, microbatch]
            for user in users:
                sends = tuple(
                    n
                    for n in program[user].task.after
                    if _is_send(program[n]) and not set(program[n].task.after).isdisjoint(own)
                )
                if sends:
                    ways[source, part].append(ResultTransfer(own[0], sends))
    return ways


def _is_send(step: SimulatedStep) -> bool:
    return step.of_pipeline and step.pipelined is None


def delays_of(graph: TaskGraph, simulation: Simulation) -> dict[tuple[Part, Part], float]:
    """Return the mean seconds from the end of a task to the arrival of its result, with contention;
    nothing if the function has other loops that places run apart."""
    spans = simulation.spans
    if len(spans) != len(simulation.program):
        return {}
    return {
        edge: sum(max(spans[n][1] for n in way.sends) - spans[way.source][1] for way in ways)
        / len(ways)
        for edge, ways in ways_of(graph, simulation).items()
    }


def outside_of(simulation: Simulation) -> float:
    """Return the least seconds of a function before the first task of its pipeline and after the
    last one, under any schedule.

    Each device waits for all steps before the pipeline, one after the other. Of the steps behind
    it, those count from the first on that is on the stream of tasks, or needs the last task.
    """
    program = simulation.program
    inside = [number for number, step in enumerate(program) if step.of_pipeline]
    before = [step.task for step in program[: inside[0]]]
    behind = [step.task for step in program[inside[-1] + 1 :]]
    last = {
        device_class: number
        for number, step in enumerate(program)
        if step.pipelined is not None
        for device_class in step.task.on
    }
    heads = [seconds_on(before, device_class) for device_class in last]
    tails: list[float] = []
    for device_class, number in last.items():
        own = [task for task in behind if device_class in task.on]
        stream = program[number].task.stream
        starts = [task.stream == stream or number in task.after for task in own]
        tails.append(seconds_on(own[starts.index(True) :], device_class) if any(starts) else 0.0)
    return min(heads) + min(tails)


def seconds_on(tasks: Iterable[StepTask], device_class: int) -> float:
    """Return the seconds of the tasks for which a class of devices waits, one after the other."""
    return sum(task.time for task in tasks if task.waited and device_class in task.on)


def links_bound(work: PipelineWork, simulation: Simulation) -> float:
    """Return a lower bound of the seconds of a pipeline, from the sending alone.

    Its streams are taken to send without a pause, from the first task that sends to the last one
    that receives.
    """
    tables, program = work.tables, simulation.program
    number = {part: n for n, part in enumerate(tables.parts)}
    ends: list[float] = []
    for needs, duration in zip(tables.needs, tables.duration, strict=True):
        ends.append(duration + max((ends[n] + send for n, send in needs), default=0.0))
    before: dict[int, float] = {}
    behind: dict[int, float] = defaultdict(float)
    for (source, user), ways in ways_of(work.graph, simulation).items():
        n = number[user]
        for send in (send for way in ways for send in way.sends):
            before[send] = ends[number[source]]
            behind[send] = max(behind[send], tables.duration[n] + tables.tail[n])
    streams: dict[object, list[int]] = defaultdict(list)
    for n, step in enumerate(program):
        if _is_send(step):
            streams[step.task.on, step.task.stream].append(n)
    return max(
        (
            min(before.get(n, 0.0) for n in own)
            + sum(program[n].task.time for n in own)
            + min(behind[n] for n in own)
            for own in streams.values()
        ),
        default=0.0,
    )


def work_of(loop: RepeatOp, simulation: Simulation) -> PipelineWork:
    """Return the work of a loop with a schedule, from a simulation of its function.

    A place may keep activations in all memory without other values in the simulation.

    Raises:
        PipelineError: the loop is no pipeline.
    """
    pipeline = Pipeline.of(loop)
    mesh, program = simulation.mesh, simulation.program
    durations: dict[Part, float] = {}
    lanes: dict[int, int] = {}
    for step in program:
        if step.pipelined is not None:
            part = part_of_text(step.kind)
            time = max(step.task.time, _INSTANT)
            durations[part] = min(time, durations.get(part, math.inf))
            lanes[pipeline.graph.places[part]] = step.lane
    edges = {
        edge: min(sum(program[n].task.time for n in way.sends) for way in ways)
        for edge, ways in ways_of(pipeline.graph, simulation).items()
    }
    kept = _kept(pipeline, mesh)
    work = PipelineWork(pipeline.graph, loop.times, durations, edges, kept)
    run = work.run(pipeline.schedule)
    device = mesh.machine.slowest
    if device is None or device.memory is None:
        return work
    limits = [
        device.memory - simulation.peaks[lanes[place]] + run.peak(place, kept)
        for place in range(work.places)
    ]
    return PipelineWork(work.graph, work.microbatches, durations, edges, kept, limits)


def shortage(work: PipelineWork) -> str:
    """Return the memory that a place lacks to keep one microbatch of each of its chunks, as the end
    of a sentence; empty if all places have enough."""
    needed = [0.0] * work.places
    for (kind, chunk), place in work.graph.places.items():
        if kind == "F":
            needed[place] += max(work.kept[chunk])
    missing = [need - limit for need, limit in zip(needed, work.limits, strict=True)]
    worst = max(range(work.places), key=missing.__getitem__)
    if missing[worst] <= 0:
        return ""
    has = bytes_text(max(0.0, work.limits[worst]))
    return (
        f": place {worst} keeps {bytes_text(needed[worst])} of activations for one microbatch, "
        f"and has {has} beside what else it holds ({bytes_text(missing[worst])} are missing); "
        "recompute layers, or take smaller microbatches or more devices"
    )


def _kept(pipeline: Pipeline, mesh: Mesh) -> Mapping[int, KeptActivations]:
    """Return the bytes that each chunk keeps of a microbatch until B, and from then until W."""
    kept: dict[int, KeptActivations] = {}
    for kind, chunk in pipeline.tasks:
        if kind == "F":
            backward = pipeline.tasks.get(("B", chunk))
            weights = pipeline.tasks.get(("W", chunk))
            forward = pipeline.tasks[kind, chunk]
            until = _bytes(forward, (backward, weights), mesh)
            later = _bytes(forward, (weights,), mesh)
            later += _bytes(backward, (weights,), mesh) if backward else 0.0
            kept[chunk] = KeptActivations(until, later)
    return kept


def _bytes(call: CallOp, users: tuple[CallOp | None, ...], mesh: Mesh) -> float:
    """Return the bytes of the results of a task that other given tasks take."""
    return sum(
        float(dist_type(result).local_bytes(mesh))
        for result in call.results
        if any(use.operation in users for use in result.uses)
    )
