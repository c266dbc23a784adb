"""The start and time of every step of a program, as a table and as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.options import CostOptions
from collir.cost.programs.accuracy import accuracy_of
from collir.cost.programs.critical import critical_path
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.cost.programs.stages import Stage, stages_of
from collir.targets.reports.cost import heading_json, title_of
from collir.targets.reports.memory import memory_lines, peak_json
from collir.targets.reports.text import (
    bytes_text,
    percent_text,
    ratio_text,
    seconds_text,
    table,
    wrapped,
)


class SimulateTarget(CostOptions, Target):
    """The start and time of every step in a simulation by events, and its time if it ran alone.

    Steps that send nothing but move bytes are included; they take time on a device with a memory
    bandwidth. `*` marks the critical path. The steps of an iteration stand below their loop, with
    the time of one, and with the share of the time that all iterations take. Below are the time
    that each level is busy, and the largest amount of memory that a device holds.
    """

    name = "simulate"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        simulations = simulate(module, self.cost_model())
        output.write(
            "\n".join("\n".join(simulation_table(simulation)) + "\n" for simulation in simulations)
        )
        output.writelines(f"{line}\n" for line in accuracy_of(simulations))


class SimulateJsonTarget(CostOptions, Target):
    """The table of the target simulate for programs, in JSON: seconds and bytes."""

    name = "simulate-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        simulations = simulate(module, self.cost_model())
        json.dump(
            {"functions": [simulation_json(simulation) for simulation in simulations]},
            output,
            indent=2,
        )
        output.write("\n")


def stream_name(simulation: Simulation, stream: int) -> str:
    """Return the level of a stream, ``device`` for the stream of local steps, or ``sends`` for one
    of the sends of a pipeline."""
    levels = simulation.mesh.machine.levels
    if stream < len(levels):
        return levels[stream].name
    return "device" if stream == len(levels) else "sends"


def lane_name(simulation: Simulation, step: SimulatedStep) -> str:
    """Return the name of the stream of a step, and the coordinates of the devices that have it."""
    names = [stream_name(simulation, step.task.stream), simulation.places[step.lane]]
    return ", ".join(filter(None, names))


def resource_name(simulation: Simulation, resource: Resource) -> str:
    """Return the name of a resource, such as ``port of node``."""
    level = simulation.mesh.machine.levels[resource.level]
    if resource.kind is ResourceKind.PARENT and level.parents:
        level = level.parents.level
    words = {
        ResourceKind.PORT: "port",
        ResourceKind.CORE: "interconnect",
        ResourceKind.LINK: "links",
        ResourceKind.PARENT: "port",
    }
    name = f"{words[resource.kind]} of {level.name}"
    return f"{name} ({resource.where})" if resource.where else name


def simulation_table(simulation: Simulation) -> list[str]:
    """Return the lines of a function's table."""
    if not simulation.steps:
        return [*wrapped(title_of(simulation)), "  no steps"]
    head = ["", "step", "over", "algorithm", "stream", "bytes", "start", "time", "alone", "bound"]
    if apart := any(step.at for step in simulation.steps):
        head.insert(2, "at")
    shares = len(simulation.places) == 1 and any(step.loop for step in simulation.steps)
    if shares:
        head.insert(head.index("alone"), "share")
    rows = list(_rows(simulation, apart, simulation.time if shares else None))
    busy = [
        f"{resource_name(simulation, resource)} busy {seconds_text(time)} "
        f"({percent_text(time, simulation.time)})"
        for resource, time in sorted(_shown(simulation.busy))
    ]
    memory, *uses = memory_lines(simulation)
    return [
        *wrapped(title_of(simulation)),
        *(f"  {line}" for line in table([*head, ""], rows, left=5 + apart)),
        *(f"  {line}" for line in _stage_lines(simulation)),
        *(f"  {line}" for x in (*busy, *_iterations_text(simulation)) for line in wrapped(x, 2)),
        *(f"  {line}" for line in (*wrapped(memory, 2), *uses)),
    ]


def _shown(busy: Mapping[Resource, float]) -> Iterator[tuple[Resource, float]]:
    """Yield the resources that a report shows with their times: of parents, the busiest port."""
    ports = [(time, port) for port, time in busy.items() if port.kind is ResourceKind.PARENT]
    if ports:
        time, port = max(ports)
        yield port, time
    yield from ((x, time) for x, time in busy.items() if x.kind is not ResourceKind.PARENT)


def _iterations_text(simulation: Simulation) -> Iterator[str]:
    """Yield the remarks on loops whose iterations are simulated one by one."""
    for left_out in simulation.timeline.cuts:
        step, cut = simulation.program[left_out.cut.place], left_out.cut
        yield (
            f"%{step.result} = {step.kind}: {cut.skipped} iterations behind the first {cut.done} "
            f"recur and are not shown; they take {seconds_text(cut.seconds)}"
        )
    for place in simulation.timeline.whole:
        step = simulation.program[place]
        yield f"%{step.result} = {step.kind}: all iterations are simulated, as none recur before"


def _stage_lines(simulation: Simulation) -> Iterator[str]:
    """Yield the lines about pipelines: their bubbles, and what each place does and keeps."""
    for pipeline in stages_of(simulation):
        yield from wrapped(
            f"pipeline %{pipeline.loop}: {pipeline.schedule or 'listed tasks'}, "
            f"{pipeline.microbatches} microbatches, {seconds_text(pipeline.time)}, "
            f"bubble {percent_text(pipeline.bubble, 1.0)}",
            2,
        )
        rows = [
            [
                stage.at,
                ", ".join(f"{name} {seconds_text(time)}" for name, time in stage.tasks),
                seconds_text(stage.busy),
                seconds_text(stage.idle),
                percent_text(stage.idle, pipeline.time),
                str(stage.in_flight),
                _memory_text(stage),
            ]
            for stage in pipeline.stages
        ]
        head = ["at", "tasks", "busy", "idle", "bubble", "in flight", "memory"]
        yield from (f"  {line}" for line in table(head, rows, left=2))


def _memory_text(stage: Stage) -> str:
    """Return the memory of a stage, and how much of it its devices do not have."""
    text = bytes_text(stage.memory)
    return f"{text}, {bytes_text(stage.missing)} too much" if stage.missing else text


def _shown_once(simulation: Simulation) -> Iterator[tuple[int, list[int]]]:
    """Yield the steps of a report, each with its repetitions: those of a pipeline are shown once
    for all microbatches."""
    first: dict[tuple[str, str, str], list[int]] = {}
    for number, step in enumerate(simulation.steps):
        if not (step.sent or step.loop or step.size or step.task.time):
            continue  # a view
        key = (step.result, step.kind, step.at)
        if step.of_pipeline and key in first:
            first[key].append(number)
            continue
        same = [number]
        if step.of_pipeline:
            first[key] = same
        yield number, same


def _rows(
    simulation: Simulation, apart: bool, total: float | None, times: int = 1, depth: int = 0
) -> Iterator[list[str]]:
    """Yield the rows of steps, those of an iteration below their loop.

    Args:
        apart: whether there is a column for the place.
        total: the seconds of which the shares are; None without such a column.
        times: how often these steps run.
        depth: the number of loops around them.
    """
    path = {link.number for link in critical_path(simulation)}
    for number, same in list(_shown_once(simulation)):
        step = simulation.steps[number]
        start, end = simulation.spans[number]
        share = [percent_text(times * (end - start), total)] if total is not None else []
        yield _row(simulation, same, not path.isdisjoint(same), apart, share, depth)
        if step.loop and total is not None:
            yield from _rows(step.loop.body, apart, total, times * step.loop.times, depth + 1)


def _row(
    simulation: Simulation,
    numbers: Sequence[int],
    critical: bool,
    apart: bool,
    share: Sequence[str],
    depth: int,
) -> list[str]:
    step, (start, end) = simulation.steps[numbers[0]], simulation.spans[numbers[0]]
    times = f" x{len(numbers)}" if step.of_pipeline else ""
    name = f"%{step.result}" if step.of_pipeline else step.name
    return [
        "*" if critical else "",
        f"{'  ' * depth}{name} = {step.kind}{times}",
        *([step.at] if apart else []),
        step.over(simulation.mesh),
        step.sent.algorithm if step.sent else "",
        stream_name(simulation, step.task.stream),
        bytes_text(step.size) if step.size else "",
        seconds_text(start),
        seconds_text(end - start),
        *share,
        seconds_text(step.task.time),
        seconds_text(step.bound) if step.sent or step.loop else "",
        ratio_text(end - start, step.bound) if step.sent or step.loop else "",
    ]


_ORDER = {kind: number for number, kind in enumerate(ResourceKind)}


def simulation_json(simulation: Simulation) -> dict[str, Any]:
    """Return a simulation as plain values: seconds and bytes."""
    path = {link.number for link in critical_path(simulation)}
    return {
        **heading_json(simulation, devices=simulation.mesh.devices),
        "time_s": simulation.time,
        "bound_s": simulation.bound,
        "busy_s": [
            {
                "level": simulation.mesh.machine.levels[resource.level].name,
                "part": str(resource.kind),
                **({"at": resource.where} if resource.where else {}),
                "time_s": time,
            }
            for resource, time in sorted(
                simulation.busy.items(),
                key=lambda item: (item[0].level, _ORDER[item[0].kind], item[0].where),
            )
        ],
        "memory": {
            "peak_bytes": simulation.peak,
            "held": [{"from_s": time, "bytes": size} for time, size in simulation.memory],
            **_memory_of_kinds(simulation),
            **peak_json(simulation),
        },
        **_left_out_json(simulation),
        **_pipelines_json(simulation),
        "steps": [
            _step_json(simulation, number, number in path)
            for number in range(len(simulation.steps))
        ],
    }


def _pipelines_json(simulation: Simulation) -> dict[str, Any]:
    """Return the pipelines of a function, if there are such."""
    entries = [
        {
            "loop": pipeline.loop,
            "schedule": pipeline.schedule,
            "microbatches": pipeline.microbatches,
            "time_s": pipeline.time,
            "bubble": pipeline.bubble,
            "stages": [
                {
                    "at": stage.at,
                    "tasks_s": dict(stage.tasks),
                    "busy_s": stage.busy,
                    "idle_s": stage.idle,
                    "in_flight": stage.in_flight,
                    "peak_bytes": stage.memory,
                }
                for stage in pipeline.stages
            ],
        }
        for pipeline in stages_of(simulation)
    ]
    return {"pipelines": entries} if entries else {}


def _left_out_json(simulation: Simulation) -> dict[str, Any]:
    """Return the iterations that are not among the steps, if there are such."""
    entries = [
        {
            "loop": simulation.program[left_out.cut.place].result,
            "iterations": left_out.cut.skipped,
            "from_s": left_out.start,
            "time_s": left_out.cut.seconds,
        }
        for left_out in simulation.timeline.cuts
    ]
    return {"left_out": entries} if entries else {}


def _memory_of_kinds(simulation: Simulation) -> dict[str, Any]:
    """Return the memory of each class of devices, where kinds differ."""
    machine = simulation.mesh.machine
    if machine.kinds_level is None:
        return {}
    classes = zip(simulation.places, simulation.kinds, simulation.peaks, strict=True)
    return {
        "kinds": [
            {
                "at": place,
                "kinds": list(kinds),
                "peak_bytes": peak,
                "bytes": device.memory if (device := machine.slowest_of(kinds)) else None,
            }
            for place, kinds, peak in classes
        ]
    }


def _inside_json(step: SimulatedStep) -> dict[str, Any]:
    """Return the results that a kernel makes and uses without writing them, if there are such."""
    inside = step.does.inside if isinstance(step.does, LocalStep) else ()
    return {"fused": [*inside]} if inside else {}


def _step_json(simulation: Simulation, number: int, critical: bool) -> dict[str, Any]:
    step, (start, end) = simulation.steps[number], simulation.spans[number]
    sending: dict[str, Any] = {}
    if step.sent:
        sending = {"over": list(step.sent.collective.axes), "algorithm": step.sent.algorithm}
    return {
        "op": step.kind,
        **({"iteration": simulation_json(step.loop.body)} if step.loop else {}),
        "result": step.result,
        **({"iterations": [*step.iterations]} if step.iterations else {}),
        **({"at": step.at} if step.at else {}),
        **sending,
        **_inside_json(step),
        "bytes": step.size,
        "stream": stream_name(simulation, step.task.stream),
        "async": not step.task.waited,
        "after": list(step.task.after),
        "start_s": start,
        "end_s": end,
        "alone_s": step.task.time,
        "latency_s": sum(phase.latency for phase in step.task.phases),
        "transfer_s": sum(phase.transfer for phase in step.task.phases),
        "work_s": sum(phase.work for phase in step.task.phases),
        "bound_s": step.bound,
        "critical": critical,
    }
