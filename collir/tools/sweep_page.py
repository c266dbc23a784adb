"""The page of ``collir sweep --html``: all configurations as points, the simulated as a table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collir.cost.programs.accuracy import STEP, accuracy_lines
from collir.syntax.units import bytes_text, seconds_text
from collir.targets.reports.page.rendered import rendered
from collir.targets.reports.page.tables import HtmlCell
from collir.tools.sweep_model import Model
from collir.tools.sweep_output import (
    BestConfigurations,
    Listed,
    Swept,
    choices,
    columns_of,
    placement,
    record,
)
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
    shown = [(own, outcome) for own, outcomes in swept for outcome in outcomes if outcome.best]
    data = {
        "title": f"@{step.function} of {model.path}",
        "lines": [f"{step.batch} = {step.parameters[step.batch]}, {bytes_text(memory)} a device"],
        "tables": [_table(own, outcome) for own, outcome in shown],
        "accuracy": [*accuracy_lines(model.machine, [STEP])],
    }
    cells = [_cells(own, _listed(outcome)) for own, outcome in shown]
    return rendered("sweep", data, cells=cells)


def _listed(found: BestConfigurations) -> list[Listed]:
    """Return the best configurations, and the others on the front."""
    known = {configuration for (configuration, _), _ in found.best}
    return [*found.best, *(each for each in found.front if each[0][0] not in known)]


def _table(model: Model, found: BestConfigurations) -> dict[str, Any]:
    """Return what a page shows of a number of devices of a machine."""
    listed = _listed(found)
    rows = columns_of(model, listed)
    (best, _), node = listed[0]
    return {
        "title": f"{found.devices} devices of @{model.machine.name}",
        "sentences": [*_sentences(found, node.time, node.memory)],
        "columns": ["number", *rows[0]],
        "rows": [[str(number), *row.values()] for number, row in enumerate(rows, 1)],
        "kinds": [*STRATEGIES, _SIMULATED, _FRONT],
        "names": [*best.degrees, *choices(best)],
        "points": [*_points(model, found, listed)],
        "commands": [
            f"{number}: {placement(model, configuration)}\n   -p '{configuration.passes}'"
            for number, ((configuration, _), _) in enumerate(listed, 1)
        ],
    }  # fmt: skip


def _sentences(found: BestConfigurations, time: float, memory: float) -> Iterator[str]:
    total = found.possible + sum(found.refused.values())
    yield f"The fastest step takes {seconds_text(time)} and {bytes_text(memory)} of a device."
    yield f"Of {total:,} configurations, {found.possible:,} may fit into memory."
    if found.complete:
        yield "All that may be faster than the listed ones were simulated."
    else:
        yield f"Not complete: {found.reason or 'the search was ended'}; these are the best so far."


def _points(
    model: Model, found: BestConfigurations, listed: Sequence[Listed]
) -> Iterator[list[Any]]:
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


_RECORDED = {
    "time": "seconds",
    "tokens/s": "tokens_per_second",
    "rows/s": "rows_per_second",
    "MFU": "mfu",
    "causal MFU": "mfu",
    "memory": "memory_bytes",
    "ZeRO": "zero",
}
"""The fields of records that columns of other names show."""


def _cells(model: Model, listed: Sequence[Listed]) -> list[list[HtmlCell]]:
    """Return the rows of configurations; numbers are those of their records."""
    rows: list[list[HtmlCell]] = []
    for number, (own, row) in enumerate(zip(listed, columns_of(model, listed), strict=True), 1):
        known = record(model, own)
        known["exposed"] = known["exposed_seconds"] / known["seconds"]
        cells = [HtmlCell(text, _number(known, name)) for name, text in row.items()]
        rows.append([HtmlCell(str(number), number), *cells])
    return rows


def _number(known: Mapping[str, Any], name: str) -> float | None:
    """Return the number of a column; None if it shows a text."""
    value = known.get(_RECORDED.get(name, name))
    return value if isinstance(value, int | float) else None
