"""The summary of a simulation, in three sentences."""

from collections.abc import Iterator

from collir.cost.programs.critical import critical_path
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.targets.reports.memory import memory_lines
from collir.targets.reports.text import percent_text, seconds_text

_CLOSE = 0.995
"""The part of a time from which on a bound is as good as reached."""

_WAITS = 3
"""The most collectives that a summary names."""

_NOTHING = 0.005
"""The smallest share of the time that a summary names: a smaller one would print as 0%."""


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
        between = {x.over(mesh): between_text(x.crosses(mesh)) for x, _ in _waited(simulation)}
        named = [x for x in waits[:_WAITS] if x[1] >= _NOTHING * time] or waits[:1]
        listed = [
            f"{f'{_share_text(seconds, time)} for ' * (len(waits) > 1)}{kind}"
            f"{f' over {over}' * bool(over)} {between[over]}"
            for (kind, over), seconds in named
        ]
        if more := len(waits) - len(named):
            listed.append(f"{more} other{'s' * (more > 1)}")
        share = _share_text(waited, time)
        yield (f"{share[0].upper()}{share[1:]} of it waits for collectives: {', '.join(listed)}.")
    elif time:
        yield "It waits for no collective."
    text = memory_lines(simulation)[0]
    yield f"{text[0].upper()}{text[1:]}."


def waits_of(simulation: Simulation) -> dict[tuple[str, str], float]:
    """Return the seconds of the critical path that are collectives, by kind and axes."""
    waits: dict[tuple[str, str], float] = {}
    for step, seconds in _waited(simulation):
        key = step.kind, step.over(simulation.mesh)
        waits[key] = waits.get(key, 0.0) + seconds
    return waits


def _waited(simulation: Simulation) -> Iterator[tuple[SimulatedStep, float]]:
    """Yield the collectives of the critical path with their seconds, in all iterations of loops."""
    for link in critical_path(simulation):
        step, (start, end) = simulation.steps[link.number], simulation.spans[link.number]
        if step.loop:
            yield from ((x, step.loop.times * seconds) for x, seconds in _waited(step.loop.body))
        elif step.sent:
            yield step, end - start


def between_text(level: str) -> str:
    """Return where a collective sends that crosses a level: ``between nodes``."""
    if not level:
        return "inside devices"
    plural = "" if level.endswith("s") else "es" if level.endswith(("x", "ch", "sh")) else "s"
    return f"between {level}{plural}"


def _share_text(part: float, total: float) -> str:
    text = percent_text(part, total)
    return text if text != "0%" else "less than 1%"
