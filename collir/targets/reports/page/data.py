"""Data of simulations for the script and the template of a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from collir.cost.programs.critical import critical_path
from collir.cost.programs.memory import BufferUse
from collir.cost.programs.simulation import Simulation
from collir.targets.reports.memory import memory_lines, memory_series
from collir.targets.reports.simulate import resource_name, stream_name
from collir.targets.reports.summary import sentences
from collir.targets.reports.text import bytes_text, percent_text, seconds_text

MOST_STEPS = 20_000
"""The most steps of a function that a page draws: the longest ones."""

MOST_POINTS = 4_000
"""The most points of a curve."""


def function_data(simulation: Simulation) -> dict[str, Any]:
    """Return what a page shows of a function: times in seconds, sizes in bytes."""
    return {
        **timeline_data(simulation),
        "sentences": [*sentences(simulation)],
        "memory": _memory(simulation),
        "ports": [*_ports(simulation)],
        "levels": [*_levels(simulation)],
        "axes": [*_axes(simulation)],
    }


def exposed_spans(simulation: Simulation) -> list[tuple[float, float]]:
    """Return when something is sent and no device computes."""
    devices = len(simulation.mesh.machine.levels)
    spans: list[tuple[float, float]] = []
    for piece in simulation.intervals:
        streams = {simulation.steps[n].task.stream for n in piece.running}
        if not streams or devices in streams:
            continue
        if spans and spans[-1][1] == piece.start:
            spans[-1] = spans[-1][0], piece.end
        else:
            spans.append((piece.start, piece.end))
    return spans


class StepRow(NamedTuple):
    """A step, as the script and the table of a page have it: times in seconds, sizes in bytes.

    Attributes:
        lane: the number of its row of the timeline.
        line: the line of the program; 0 if that is not known.
        body: the number of the timeline that opens in it; -1 if none does.
        needs: the numbers of the steps that it waits for.
    """

    name: str
    kind: str
    over: str
    algorithm: str
    bytes: float
    start: float
    end: float
    alone: float
    lane: int
    line: int
    critical: int
    body: int
    needs: list[int]
    at: str

    @property
    def time(self) -> float:
        """The seconds that it takes."""
        return self.end - self.start


def _lane_names(simulation: Simulation) -> list[str]:
    """Return the names of the rows of a timeline: a stream of the devices of each place."""
    return [
        ", ".join(filter(None, (stream_name(simulation, stream), place)))
        for stream in range(simulation.streams)
        for place in simulation.places
    ]


def timeline_data(simulation: Simulation, most: int = MOST_STEPS) -> dict[str, Any]:
    """Return the steps of a function, and those of the iterations of its loops.

    Args:
        most: how many steps it has at most: the longest ones.
    """
    path = {link.number for link in critical_path(simulation)}
    bodies = list[dict[str, Any]]()
    spans = [*zip(simulation.steps, simulation.spans, strict=True)]
    order = range(len(spans))
    if len(spans) > most:
        longest = sorted(order, key=lambda n: spans[n][1][0] - spans[n][1][1])
        order = sorted(longest[:most])
    place = {number: at for at, number in enumerate(order)}
    streams = [x.task.stream * len(simulation.places) + x.lane for x, _ in spans]
    used = sorted({streams[number] for number in order})
    names = _lane_names(simulation)
    steps: list[StepRow] = []
    for number in order:
        step, (start, end) = spans[number]
        body = -1
        if (inside := step.loop or step.pipelined) is not None:
            body = len(bodies)
            times = step.loop.times if step.loop else 1
            title = f"{step.name} = {step.kind}"
            bodies.append({**timeline_data(inside.body, most), "title": title, "times": times})
        steps.append(StepRow(
            step.name, step.kind, step.over(simulation.mesh),
            step.sent.algorithm if step.sent else "", step.size, start, end, step.task.time,
            used.index(streams[number]), step.line, int(number in path), body,
            [place[n] for n in step.task.after if n in place], step.at,
        ))  # fmt: skip
    return {
        "name": simulation.name,
        "time": simulation.time,
        "bound": simulation.bound,
        "lanes": [names[n] for n in used],
        "steps": steps,
        "left_out": len(spans) - len(steps),
        "exposed": exposed_spans(simulation),
        "bodies": bodies,
    }


def _memory(simulation: Simulation) -> dict[str, Any]:
    """Return the bytes that a device holds over time, by use."""
    peak, limit, _ = simulation.fullest
    series = _thinned([*memory_series(simulation)])
    order = [str(use) for use in BufferUse]
    uses_there = {name for _, sizes in series for name in sizes}
    uses = [name for name in order if name in uses_there] or sorted(uses_there)
    return {
        "peak": peak,
        "limit": limit,
        "times": [time for time, _ in series],
        "uses": [
            {"name": use, "bytes": [sizes.get(use, 0) for _, sizes in series]} for use in uses
        ],
        "lines": memory_lines(simulation),
    }


def _ports(simulation: Simulation) -> Iterator[dict[str, Any]]:
    """Yield the share of each port and link that is in use over time, the busiest first."""
    for resource in sorted(simulation.busy, key=lambda x: -simulation.busy[x]):
        changes = _thinned([*simulation.in_use.get(resource, ())])
        busy = simulation.busy[resource]
        yield {
            "name": resource_name(simulation, resource),
            "busy": busy,
            "share": busy / simulation.time if simulation.time else 0.0,
            "times": [time for time, _ in changes],
            "used": [share for _, share in changes],
        }


def _thinned(points: Sequence[Any]) -> Sequence[Any]:
    """Return at most as many points as a curve has."""
    step = -(-len(points) // MOST_POINTS)
    return points if step < 2 else [*points[::step], points[-1]]


def _levels(simulation: Simulation) -> Iterator[dict[str, Any]]:
    """Yield the levels of the machine, the outermost first, with what is on each."""
    mesh = simulation.mesh
    busy: dict[int, float] = {}
    for resource, seconds in simulation.busy.items():
        busy[resource.level] = max(busy.get(resource.level, 0.0), seconds)
    for number, level in enumerate(mesh.machine.levels):
        axes = [f"{x.axis}:{x.size}" for x in mesh.by_name.values() if x.level == level.name]
        yield {
            "name": level.name,
            "children": level.size,
            "axes": ", ".join(axes) or "-",
            "busy": busy.get(number, 0.0),
            "share": busy.get(number, 0.0) / simulation.time if simulation.time else 0.0,
        }


def _axes(simulation: Simulation) -> Iterator[dict[str, Any]]:
    for axis in simulation.mesh.axes:
        factors = " * ".join(f"{x.level}:{x.size}" for x in axis.factors or ())
        yield {"name": axis.name, "size": axis.size, "levels": factors or "-"}


def rows_of(steps: Sequence[StepRow], total: float, most: int) -> list[Mapping[str, str]]:
    """Return the longest steps as cells of a table, for readers without a script."""
    return [
        {
            "step": step.name, "kind": step.kind, "over": step.over, "algorithm": step.algorithm,
            "bytes": bytes_text(step.bytes) if step.bytes else "",
            "start": seconds_text(step.start), "time": seconds_text(step.time),
            "share": percent_text(step.time, total) if total else "",
            "alone": seconds_text(step.alone), "line": str(step.line or ""),
            "critical": "yes" if step.critical else "",
        }
        for step in sorted(steps, key=lambda step: -step.time)[:most]
    ]  # fmt: skip
