"""What there is to say of a simulation first, in three sentences."""

from collections.abc import Iterator

from collir.cost.programs.critical import critical_path
from collir.cost.programs.simulation import Simulation
from collir.targets.reports.memory import memory_lines
from collir.targets.reports.text import percent_text, seconds_text

_CLOSE = 0.995
"""The part of a time from which on a bound is as good as reached."""

_WAITS = 3
"""The collectives that a summary names."""


def sentences(simulation: Simulation) -> Iterator[str]:
    """Yield what there is to say of a function first: its time, what it waits for, its memory."""
    time, mesh = simulation.time, simulation.mesh
    name, count = f"@{simulation.name}", mesh.machine.devices
    least = f", and no order of its steps takes less than {seconds_text(simulation.bound)}"
    bound = least if simulation.bound < _CLOSE * time else ""
    yield f"{name} takes {seconds_text(time)} on {count} devices of @{mesh.machine.name}{bound}."
    waits = sorted(waits_of(simulation).items(), key=lambda x: -x[1])
    waited = sum(seconds for _, seconds in waits)
    if waits and time:
        listed = [
            f"{percent_text(seconds, time)} for {kind} over {over}"
            for (kind, over), seconds in waits[:_WAITS]
        ]
        others = f", {len(waits) - _WAITS} others" if len(waits) > _WAITS else ""
        share = percent_text(waited, time)
        yield f"{share} of it waits for collectives: {', '.join(listed)}{others}."
    elif time:
        yield "It waits for no collective."
    text = memory_lines(simulation)[0]
    yield f"{text[0].upper()}{text[1:]}."


def waits_of(simulation: Simulation) -> dict[tuple[str, str], float]:
    """Return the seconds of the critical path that are collectives, by kind and axes."""
    found: dict[tuple[str, str], float] = {}
    for link in critical_path(simulation):
        step, (start, end) = simulation.steps[link.number], simulation.spans[link.number]
        if step.loop:
            for key, seconds in waits_of(step.loop.body).items():
                found[key] = found.get(key, 0.0) + step.loop.times * seconds
        elif step.sent:
            key = step.kind, step.over(simulation.mesh)
            found[key] = found.get(key, 0.0) + end - start
    return found
