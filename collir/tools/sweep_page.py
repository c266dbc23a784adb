"""The page of ``collir sweep --html``: all configurations as points, the simulated as a table."""

from collections.abc import Iterator, Sequence
from typing import Any

from collir.cost.programs.accuracy import STEP, accuracy_lines
from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.sweeping.configuration import REPLICA
from collir.targets.reports.page.rendered import rendered
from collir.tools.sweep_model import Model
from collir.tools.sweep_output import Found, Listed, Swept, choices, placement, settings
from collir.tools.sweep_plot import STRATEGIES, strategy_of

MOST_POINTS = 20_000
"""The most configurations of a picture: the fastest ones."""

_SIMULATED, _FRONT = "simulated", "simulated, of the front"


def html(swept: Sequence[Swept], memory: float) -> str:
    """Return the page.

    Args:
        memory: the bytes of a device.

    Raises:
        DiagnosticError: jinja2 is not installed.
    """
    [(model, _), *_] = swept
    step = model.step
    data = {
        "title": f"@{step.function} of {model.path}",
        "lines": [f"{step.batch} = {step.parameters[step.batch]}, {bytes_text(memory)} a device"],
        "tables": [_table(own, each) for own, found in swept for each in found if each.best],
        "accuracy": [*accuracy_lines(model.machine, [STEP])],
    }
    return rendered("sweep", data)


def _table(model: Model, found: Found) -> dict[str, Any]:
    """Return what a page shows of a number of devices of a machine."""
    listed = [*found.best]
    known = {configuration for (configuration, _), _ in listed}
    listed += [x for x in found.front if x[0][0] not in known]
    rows = [settings(model, each) for each in listed]
    if all(row.get(REPLICA) == "1" for row in rows):
        rows = [{name: x for name, x in row.items() if name != REPLICA} for row in rows]
    (best, _), node = listed[0]
    return {
        "title": f"{found.devices} devices of @{model.machine.name}",
        "sentences": [*_sentences(found, node.time, node.memory)],
        "columns": ["number", *rows[0]],
        "rows": [[str(number), *row.values()] for number, row in enumerate(rows, 1)],
        "keys": [
            [number, *map(_key, row.values())] for number, row in enumerate(rows, 1)
        ],
        "kinds": [*STRATEGIES, _SIMULATED, _FRONT],
        "names": [*best.degrees, *choices(best)],
        "points": [*_points(model, found, listed)],
        "commands": [
            f"{number}: {placement(model, configuration)}\n   -p '{configuration.passes}'"
            for number, ((configuration, _), _) in enumerate(listed, 1)
        ],
    }  # fmt: skip


def _sentences(found: Found, time: float, memory: float) -> Iterator[str]:
    total = found.possible + sum(found.refused.values())
    yield f"The fastest step takes {seconds_text(time)} and {bytes_text(memory)} of a device."
    yield f"Of {total:,} configurations, {found.possible:,} may fit into memory."
    if found.complete:
        yield "All that may be faster than the listed ones were simulated."
    else:
        yield f"Not complete: {found.reason or 'the search was ended'}; these are the best so far."


def _points(model: Model, found: Found, listed: Sequence[Listed]) -> Iterator[list[Any]]:
    """Yield the time, the memory, the kind and the choices of each configuration."""
    kinds = [*STRATEGIES]
    fastest = sorted(found.estimates, key=lambda x: x[1].time)[:MOST_POINTS]
    for c, estimate in fastest:
        kind = kinds.index(strategy_of(c, model.step.tensor))
        yield [estimate.time, estimate.memory, kind, *map(str, c.degrees.values()),
               *choices(c).values()]  # fmt: skip
    for number, ((c, _), node) in enumerate(listed):
        kind = len(kinds) + (number >= len(found.best))
        yield [node.time, node.memory, kind, *map(str, c.degrees.values()), *choices(c).values()]


_FACTORS = {
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9,
    "TB": 1e12,
}  # fmt: skip


def _key(text: str) -> float | str:
    """Return what a cell is sorted by: its number, with its unit, or its text."""
    number, _, unit = text.replace(",", "").partition(" ")
    try:
        return float(number.rstrip("%")) * _FACTORS.get(unit, 1.0)
    except ValueError:
        return text
