"""A simulation as a trace in Chrome's JSON format, for chrome://tracing and Perfetto."""

import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.collectives.phases import Phase
from collir.cost.options import CostOptions
from collir.cost.programs.critical import critical_path
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.targets.reports.memory import memory_series
from collir.targets.reports.simulate import resource_name, stream_name

_US = 1e6


class TraceTarget(CostOptions, Target):
    """A simulation as a trace that Perfetto and chrome://tracing show.

    Each level of the machine is a process with the steps of its stream, the phases of each step
    (waiting for messages, sending, reducing), and the used share of its ports and links. Arrows
    lead to a step from the steps of other streams for which it waits. A device is a process with
    the steps that send nothing and its memory.
    """

    name = "trace"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        simulations = simulate(module, self.cost_model())
        events: list[dict[str, Any]] = []
        first = 0
        for simulation in simulations:
            events += _events(
                simulation, first, f"@{simulation.name} " if len(simulations) > 1 else ""
            )
            first += simulation.streams
        json.dump({"displayTimeUnit": "ns", "traceEvents": events}, output, indent=1)
        output.write("\n")


def _events(simulation: Simulation, first: int, prefix: str) -> Iterator[dict[str, Any]]:
    levels = simulation.mesh.machine.levels
    for stream in range(simulation.streams):
        process = {"ph": "M", "pid": first + stream, "tid": 0}
        name = stream_name(simulation, stream)
        title = f"{prefix}level {name}" if stream < len(levels) else f"{prefix}{name}"
        yield {**process, "name": "process_name", "args": {"name": title}}
        yield {**process, "name": "process_sort_index", "args": {"sort_index": first + stream}}
        for lane, place in enumerate(simulation.places):
            for row, rows in enumerate(("steps", "phases")):
                name = {"name": f"{rows} at {place}" if place else rows}
                yield {**process, "tid": 2 * lane + row, "name": "thread_name", "args": name}
    yield from _steps(simulation, first)
    yield from _flows(simulation, first)
    yield from _phases(simulation, first)
    yield from _uses(simulation, first)
    for time, sizes in memory_series(simulation):
        yield _counter(first + len(levels), "memory (bytes)", time, sizes)


def _steps(simulation: Simulation, first: int) -> Iterator[dict[str, Any]]:
    path = {link.number for link in critical_path(simulation)}
    for number, (step, (start, end)) in enumerate(
        zip(simulation.steps, simulation.spans, strict=True)
    ):
        arguments: dict[str, Any] = {
            "result": f"%{step.result}",
            "critical": number in path,
            "bytes": step.size,
        }
        if step.sent:
            arguments |= {"algorithm": step.sent.algorithm, "bound_us": step.bound * _US}
        arguments["alone_us"] = step.task.time * _US
        name = f"{step.kind} over {step.over(simulation.mesh)}" if step.sent else step.kind
        at = first + step.task.stream, 2 * step.lane
        yield _slice(*at, name, step.kind, (start, end), arguments)


def _flows(simulation: Simulation, first: int) -> Iterator[dict[str, Any]]:
    """Yield an arrow to each step from every step on another stream that it waits for."""
    for number, (step, (begin, _)) in enumerate(
        zip(simulation.steps, simulation.spans, strict=True)
    ):
        for source in step.task.after:
            sender, (start, end) = simulation.steps[source], simulation.spans[source]
            ends = (sender.task.stream, sender.lane), (step.task.stream, step.lane)
            if ends[0] == ends[1] or end == start:
                continue
            event = {"name": "needs", "cat": "flow", "id": f"{first}.{source}.{number}"}
            (stream, lane), (to, row) = ends
            last = max(_nanoseconds(start), _nanoseconds(end) - 1)  # which is in the slice
            yield {**event, "ph": "s", "pid": first + stream, "tid": 2 * lane,
                   "ts": _microseconds(last)}  # fmt: skip
            yield {**event, "ph": "f", "bp": "e", "pid": first + to, "tid": 2 * row,
                   "ts": _microseconds(_nanoseconds(begin))}  # fmt: skip


def _phases(simulation: Simulation, first: int) -> Iterator[dict[str, Any]]:
    """Yield a slice for each phase of each step, at whatever speeds it ran."""
    open_: dict[int, tuple[Phase, float]] = {}
    ends: dict[int, float] = {}

    def closed(number: int) -> dict[str, Any]:
        phase, start = open_.pop(number)
        step = simulation.steps[number]
        name = _phase_name(phase, step.sent is None)
        at = first + step.task.stream, 2 * step.lane + 1
        return _slice(*at, name, "phase", (start, ends[number]), {})

    for piece in simulation.intervals:
        for number, (phase, _) in piece.running.items():
            if number in open_ and open_[number][0] is not phase:
                yield closed(number)
            open_.setdefault(number, (phase, piece.start))
            ends[number] = piece.end
        for number in [n for n in open_ if n not in piece.running]:
            yield closed(number)
    for number in list(open_):
        yield closed(number)


def _phase_name(phase: Phase, local: bool) -> str:
    parts = {"latency": phase.latency, "transfer": phase.transfer}
    parts["local" if local or phase.is_local else "reduction"] = phase.work
    return " + ".join(name for name, time in parts.items() if time)


def _uses(simulation: Simulation, first: int) -> Iterator[dict[str, Any]]:
    """Yield the used share of each port, link and interconnect, at each change."""
    for resource, changes in simulation.in_use.items():
        name = f"{resource_name(simulation, resource)} (% in use)"
        for time, share in changes:
            yield _counter(first + resource[0], name, time, {name: 100 * share})


def _slice(
    pid: int,
    tid: int,
    name: str,
    category: str,
    span: tuple[float, float],
    arguments: dict[str, Any],
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
        "args": arguments,
    }


def _counter(pid: int, name: str, time: float, values: Mapping[str, float]) -> dict[str, Any]:
    return {
        "ph": "C",
        "pid": pid,
        "tid": 0,
        "name": name,
        "ts": _microseconds(_nanoseconds(time)),
        "args": {**values},
    }


def _nanoseconds(time: float) -> int:
    return round(time * 1e9)


def _microseconds(nanoseconds: int) -> float:
    """Return microseconds that Perfetto reads as the same number of nanoseconds.

    Perfetto truncates to nanoseconds, and drops a slice that begins before the previous slice
    ends.
    """
    return (nanoseconds + 0.25) / 1e3
