"""When every step of a program runs, as a table and as JSON."""

import json
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.programs.critical import critical_path
from collir.cost.programs.simulation import Simulation, simulate
from collir.targets.reports.cost import CostingTarget, title_of
from collir.targets.reports.text import (
    bytes_text,
    percent_text,
    ratio_text,
    seconds_text,
    table,
)


class SimulateTarget(CostingTarget):
    """When every step runs, in a simulation by events: its start and time, and what it takes alone.

    Steps that send nothing but move bytes are in it too; they take the time of these on a device
    that says how fast its memory is. `*` marks the critical path. Below: how long each level is
    kept busy, and the most memory that a device holds.
    """

    name = "simulate"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = simulate(module, self.cost_model())
        output.write("\n".join("\n".join(simulation_table(each)) + "\n" for each in found))


class SimulateJsonTarget(CostingTarget):
    """The table of the target simulate for programs, in JSON: seconds and bytes."""

    name = "simulate-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = simulate(module, self.cost_model())
        json.dump({"functions": [simulation_json(each) for each in found]}, output, indent=2)
        output.write("\n")


def stream_name(found: Simulation, stream: int) -> str:
    """The level of a stream, or that of what devices do by themselves."""
    levels = found.mesh.machine.levels
    return levels[stream].name if stream < len(levels) else "device"


def resource_name(found: Simulation, resource: Resource) -> str:
    """Such as ``port of node``."""
    level, part = resource
    words = {
        ResourceKind.PORT: "port",
        ResourceKind.CORE: "interconnect",
        ResourceKind.LINK: "links",
    }
    return f"{words[part]} of {found.mesh.machine.levels[level].name}"


def simulation_table(found: Simulation) -> list[str]:
    """The lines of a function's table."""
    if not found.steps:
        return [title_of(found), "  no steps"]
    head = ["", "step", "over", "algorithm", "stream", "bytes", "start", "time", "alone", "bound"]
    path = {link.number for link in critical_path(found)}
    rows = [
        _row(found, number, number in path)
        for number, step in enumerate(found.steps)
        if step.sent or step.size  # what moves nothing is a view of what is there
    ]
    busy = [
        f"{resource_name(found, one)} busy {seconds_text(time)} ({percent_text(time, found.time)})"
        for one, time in sorted(found.busy.items())
    ]
    return [
        title_of(found),
        *(f"  {line}" for line in table([*head, ""], rows, left=5)),
        *(f"  {line}" for line in busy),
        f"  {memory_text(found)}",
    ]


def memory_text(found: Simulation) -> str:
    """The most memory of a device, and how much of it there is."""
    device = found.mesh.machine.device
    text = f"memory of a device: at most {bytes_text(found.peak)}"
    if not device or device.memory is None:
        return text
    over = ", more than it has" if found.peak > device.memory else ""
    return f"{text} of {bytes_text(device.memory)}{over}"


def _row(found: Simulation, number: int, critical: bool) -> list[str]:
    step, (start, end) = found.steps[number], found.spans[number]
    return [
        "*" if critical else "",
        f"%{step.result} = {step.kind}",
        step.over(found.mesh),
        step.sent.algorithm if step.sent else "",
        stream_name(found, step.task.stream),
        bytes_text(step.size),
        seconds_text(start),
        seconds_text(end - start),
        seconds_text(step.task.time),
        seconds_text(step.bound) if step.sent else "",
        ratio_text(end - start, step.bound) if step.sent else "",
    ]


def simulation_json(found: Simulation) -> dict[str, Any]:
    """A simulation as plain values: seconds and bytes."""
    path = {link.number for link in critical_path(found)}
    return {
        "name": found.name,
        "machine": found.mesh.machine.name,
        "mesh": found.mesh.name,
        "devices": found.mesh.devices,
        "model": found.model.on(found.mesh.machine).model,
        "costed": found.model.how(found.mesh.machine),
        "time_s": found.time,
        "bound_s": found.bound,
        "busy_s": [
            {"level": level, "part": str(part), "time_s": found.busy[index, part]}
            for index, level in enumerate(one.name for one in found.mesh.machine.levels)
            for part in ResourceKind
            if (index, part) in found.busy
        ],
        "memory": {
            "peak_bytes": found.peak,
            "held": [{"from_s": time, "bytes": size} for time, size in found.memory],
        },
        "steps": [_step_json(found, number, number in path) for number in range(len(found.steps))],
    }


def _step_json(found: Simulation, number: int, critical: bool) -> dict[str, Any]:
    step, (start, end) = found.steps[number], found.spans[number]
    sent: dict[str, Any] = {}
    if step.sent:
        sent = {"over": list(step.sent.collective.axes), "algorithm": step.sent.algorithm}
    return {
        "op": step.kind,
        "result": step.result,
        **sent,
        "bytes": step.size,
        "stream": stream_name(found, step.task.stream),
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
