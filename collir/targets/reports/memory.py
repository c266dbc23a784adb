"""The memory of a device in reports: the peak, where it is, and what it is for."""

from collections.abc import Iterator
from typing import Any

from collir.cost.programs.memory import AT_END, BufferUse, Peak
from collir.cost.programs.simulation import Simulation
from collir.targets.reports.text import bytes_text, percent_text, table


def memory_lines(simulation: Simulation) -> list[str]:
    """Return the largest memory use of a device, beside the size of its memory. If values have
    roles, also say at which step it is, and for which uses.

    Where kinds of devices differ, the kind with the fullest memory counts.
    """
    peak, memory, kind = simulation.fullest
    text = f"memory of a {kind or 'device'}: at most {bytes_text(peak)}"
    if memory is not None:
        text += f" of {bytes_text(memory)}{', more than it has' if peak > memory else ''}"
    if not simulation.has_roles:
        return [text]
    most = simulation.peak_on(simulation.fullest_class)
    return [f"{text}, {place_text(simulation, most)}", *use_lines(simulation)]


def use_lines(simulation: Simulation) -> list[str]:
    """Return a table of what the peak of the fullest devices is for, if values have roles."""
    if not simulation.has_roles:
        return []
    most = simulation.peak_on(simulation.fullest_class)
    rows = [
        [f"  {use}", bytes_text(size), percent_text(size, most.size)] for use, size in shares(most)
    ]
    return table((), rows, left=1)


def shares(peak: Peak) -> Iterator[tuple[BufferUse, float]]:
    """Yield the bytes for each use that a peak has, in the order of ``BufferUse``."""
    yield from ((use, peak.uses[use]) for use in BufferUse if peak.uses.get(use))


def place_text(simulation: Simulation, peak: Peak) -> str:
    """Return where a peak is: at a step, with its line, and inside of loops."""
    if peak.step is None:
        return "from the beginning"
    if peak.step == AT_END:
        return "at the end"
    step = simulation.steps[peak.step]
    text = f"{step.name} = {step.kind}"
    line = f" (line {step.line})" if step.line else ""
    if step.loop is None or len(simulation.places) > 1:
        return f"at {text}{line}"
    inside = place_text(step.loop.body, step.loop.peak)
    return f"in {text}{line}" if step.loop.peak.step is None else f"in {text}{line}, {inside}"


def memory_series(simulation: Simulation) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield the bytes that a device holds from each time on, by use if values have roles."""
    if not simulation.has_roles:
        yield from ((time, {"memory (bytes)": size}) for time, size in simulation.memory)
        return
    for time, uses in simulation.memory_by_use:
        yield time, {str(use): uses[use] for use in BufferUse if use in uses}


def peak_json(simulation: Simulation) -> dict[str, Any]:
    """Return where the peak of the fullest devices is and what it is for, if values have roles."""
    if not simulation.has_roles:
        return {}
    peak = simulation.peak_on(simulation.fullest_class)
    place = {"from_s": peak.time, "at": place_text(simulation, peak)}
    return {"peak": {**place, "uses": {str(use): size for use, size in shares(peak)}}}
