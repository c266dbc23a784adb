"""The work of a pipeline in a program, from its simulation, and the best schedule for it."""

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp

from collir.cost.model import CostModel
from collir.cost.programs.pipelines import Kept
from collir.cost.programs.simulation import Simulation
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import is_placeholder
from collir.dialects.tensor import dist_type
from collir.ir.pipelines import Pipeline
from collir.layout import Mesh
from collir.layout.pipelines.tasks import Part
from collir.layout.pipelines.text import part_of_text
from collir.syntax.units import bytes_text
from collir.synthesis.pipelines.work import PipelineWork
from collir.synthesis.programs.choices import SearchOptions
from collir.synthesis.programs.decomposing import decompose_by_search


def decompose_placeholders(module: ModuleOp, model: CostModel) -> None:
    """Make steps of a module that has redistributions, in place, as they have no cost."""
    if any(map(is_placeholder, module.walk())):
        _ = decompose_by_search(module, SearchOptions(model))


def work_of(loop: RepeatOp, simulation: Simulation) -> PipelineWork:
    """Return the work of a loop with a schedule, as a simulation of its function has it.

    A place may keep what the memory of its device has beside what it holds under the schedule that
    was simulated, less the activations.

    Raises:
        PipelineError: the loop is no pipeline.
    """
    pipeline = Pipeline.of(loop)
    mesh = simulation.mesh
    durations: dict[Part, float] = {}
    lanes: dict[int, int] = {}
    sent: dict[tuple[str, str], float] = {}
    for step in simulation.steps:
        if step.pipelined is not None:
            part = part_of_text(step.kind)
            durations[part] = step.task.time
            lanes[pipeline.graph.places[part]] = step.lane
        elif step.of_pipeline:
            sent[step.result, step.at] = step.task.time
    send = max(sent.values(), default=0.0)
    edges = {
        edge: send
        for edge in pipeline.graph.edges
        if pipeline.graph.places[edge[0]] != pipeline.graph.places[edge[1]]
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
    """Return what a place lacks to keep one microbatch of each of its chunks, as the end of a
    sentence; empty if all can."""
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


def _kept(pipeline: Pipeline, mesh: Mesh) -> Mapping[int, Kept]:
    """Return the bytes that each chunk keeps of a microbatch until B, and from then until W."""
    kept: dict[int, Kept] = {}
    for kind, chunk in pipeline.tasks:
        if kind == "F":
            backward = pipeline.tasks.get(("B", chunk))
            weights = pipeline.tasks.get(("W", chunk))
            forward = pipeline.tasks[kind, chunk]
            until = _bytes(forward, (backward, weights), mesh)
            later = _bytes(forward, (weights,), mesh)
            later += _bytes(backward, (weights,), mesh) if backward else 0.0
            kept[chunk] = Kept(until, later)
    return kept


def _bytes(call: CallOp, users: tuple[CallOp | None, ...], mesh: Mesh) -> float:
    """Return the bytes of the results of a task that some others take."""
    return sum(
        float(dist_type(result).local_bytes(mesh))
        for result in call.results
        if any(use.operation in users for use in result.uses)
    )
