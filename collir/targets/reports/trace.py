"""A simulation for chrome://tracing and Perfetto, in the JSON format of Chrome's traces."""

import json
from collections.abc import Iterator
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.cost.collectives.phases import Phase
from collir.cost.programs.critical import critical_path
from collir.cost.programs.simulation import Simulation, simulate
from collir.targets.reports.cost import CostingTarget
from collir.targets.reports.simulate import resource_name, stream_name

_US = 1e6


class TraceTarget(CostingTarget):
    """A simulation as a trace that Perfetto and chrome://tracing show.

    A process for each level of the machine, with the steps of its stream and the phases of each
    (waiting for messages, sending, reducing), and how much of its ports and links is in use; one
    for a device, with the steps that send nothing and the memory it holds. Functions have processes
    of their own, and all start at 0.
    """

    name = "trace"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = simulate(module, self.cost_model())
        events: list[dict[str, Any]] = []
        for number, each in enumerate(found):
            first = number * (1 + max(len(one.mesh.machine.levels) for one in found))
            events += _events(each, first, f"@{each.name} " if len(found) > 1 else "")
        json.dump({"displayTimeUnit": "ns", "traceEvents": events}, output, indent=1)
        output.write("\n")


def _events(found: Simulation, first: int, prefix: str) -> Iterator[dict[str, Any]]:
    levels = found.mesh.machine.levels
    for stream in range(len(levels) + 1):
        process = {"ph": "M", "pid": first + stream, "tid": 0}
        name = stream_name(found, stream)
        shown = f"{prefix}level {name}" if stream < len(levels) else f"{prefix}device"
        yield {**process, "name": "process_name", "args": {"name": shown}}
        yield {**process, "name": "process_sort_index", "args": {"sort_index": first + stream}}
        yield {**process, "name": "thread_name", "args": {"name": "steps"}}
        yield {**process, "tid": 1, "name": "thread_name", "args": {"name": "phases"}}
    yield from _steps(found, first)
    yield from _phases(found, first)
    yield from _uses(found, first)
    for time, size in found.memory:
        yield _counter(first + len(levels), "memory (bytes)", time, size)


def _steps(found: Simulation, first: int) -> Iterator[dict[str, Any]]:
    path = {link.number for link in critical_path(found)}
    for number, (step, (start, end)) in enumerate(zip(found.steps, found.spans, strict=True)):
        said: dict[str, Any] = {
            "result": f"%{step.result}",
            "critical": number in path,
            "bytes": step.size,
        }
        if step.sent:
            said |= {"algorithm": step.sent.algorithm, "bound_us": step.bound * _US}
        said["alone_us"] = step.task.time * _US
        name = f"{step.kind} over {step.over(found.mesh)}" if step.sent else step.kind
        yield _slice(first + step.task.stream, 0, name, step.kind, (start, end), said)


def _phases(found: Simulation, first: int) -> Iterator[dict[str, Any]]:
    """A slice for each phase of each step, at whatever speeds it ran."""
    open_: dict[int, tuple[Phase, float]] = {}
    ends: dict[int, float] = {}

    def closed(number: int) -> dict[str, Any]:
        phase, start = open_.pop(number)
        step = found.steps[number]
        name = _phase_name(phase, step.sent is None)
        return _slice(first + step.task.stream, 1, name, "phase", (start, ends[number]), {})

    for piece in found.intervals:
        for number, (phase, _) in piece.running.items():
            if number in open_ and open_[number][0] is not phase:
                yield closed(number)
            open_.setdefault(number, (phase, piece.start))
            ends[number] = piece.end
        for number in [one for one in open_ if one not in piece.running]:
            yield closed(number)
    for number in list(open_):
        yield closed(number)


def _phase_name(phase: Phase, local: bool) -> str:
    parts = {"latency": phase.latency, "transfer": phase.transfer}
    parts["local" if local else "reduction"] = phase.work
    return " + ".join(name for name, time in parts.items() if time)


def _uses(found: Simulation, first: int) -> Iterator[dict[str, Any]]:
    """What part of each port, link and interconnect is in use, from when on."""
    for resource, changes in found.in_use.items():
        name = f"{resource_name(found, resource)} (% in use)"
        for time, share in changes:
            yield _counter(first + resource[0], name, time, 100 * share)


def _slice(
    pid: int, tid: int, name: str, category: str, span: tuple[float, float], said: dict[str, Any]
) -> dict[str, Any]:
    start, end = map(_nanoseconds, span)
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": name,
        "cat": category,
        "ts": _microseconds(start),
        "dur": _microseconds(end - start),
        "args": said,
    }


def _counter(pid: int, name: str, time: float, value: float) -> dict[str, Any]:
    return {
        "ph": "C",
        "pid": pid,
        "tid": 0,
        "name": name,
        "ts": _microseconds(_nanoseconds(time)),
        "args": {name: value},
    }


def _nanoseconds(time: float) -> int:
    return round(time * 1e9)


def _microseconds(nanoseconds: int) -> float:
    """Microseconds from which Perfetto, which cuts off after nanoseconds, reads the same number: it
    leaves out a slice that begins before the one before it ends."""
    return (nanoseconds + 0.25) / 1e3
