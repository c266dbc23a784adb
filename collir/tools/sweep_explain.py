"""The text of ``collir sweep --explain`` and ``--compare``, of simulated configurations."""

from collections.abc import Iterator, Sequence

from collir.syntax.units import bytes_text, seconds_text
from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.groups import ConfigurationEstimate
from collir.targets.reports.text import table
from collir.tools.sweep_model import Model
from collir.tools.sweep_output import BestConfigurations, Listed, choices, placement, settings

CHANGES = 8
"""The changes that are listed."""


def explained(model: Model, found: BestConfigurations, rank: int, memory: float) -> str:
    """Return the bounds of a configuration, and the effects of single changes.

    Args:
        rank: its number in the table, from 1.
        memory: the bytes of a device.
    """
    listed = found.best[rank - 1]
    (configuration, estimate), node = listed
    times = ", ".join(f"{name} {seconds_text(time)}" for name, time in _times(listed).items())
    lines = [
        "",
        f"{rank} of {found.devices} devices, {seconds_text(node.time)}: {times}",
        f"  mesh: {placement(model, configuration)}",
        *_sending(listed),
    ]
    changes = sorted(_changes(model, configuration, found.estimates), key=lambda x: x[1].time)
    rows = [
        [
            text,
            f"{changed.time / estimate.time - 1:+.1%}",
            bytes_text(changed.memory),
            "" if changed.memory <= memory else "does not fit",
        ]
        for text, changed in changes[:CHANGES]
    ]
    if rows:
        head = ["one change, by estimates", "time", "memory", ""]
        lines += [f"  {line.rstrip()}" for line in table(head, rows, 1)]
    return "\n".join(lines) + "\n"


def compared(model: Model, found: BestConfigurations, ranks: Sequence[int]) -> str:
    """Return how two configurations differ, by their numbers in the table."""
    both = [found.best[rank - 1] for rank in ranks]
    columns = [
        {
            **settings(model, pair),
            **{name: seconds_text(time) for name, time in _times(pair).items()},
            "mesh": placement(model, pair[0][0]),
        }
        for pair in both
    ]
    left, right = columns
    rows = [[name, left[name], right[name]] for name in left if left[name] != right[name]]
    head = [f"{found.devices} devices", *map(str, ranks)]
    return "\n".join(["", *(line.rstrip() for line in table(head, rows, 1, 0))]) + "\n"


def _times(listed: Listed) -> dict[str, float]:
    """Return how a device of the busiest stage spends a step."""
    spent = listed[1].spent
    assert spent is not None
    return {"computing": spent.compute, "exposed": spent.exposed, "waiting": spent.idle}


def _sending(listed: Listed) -> Iterator[str]:
    """Yield the lines of a table of the sends of a device in the busiest stage, and the parts of
    them that computations do not hide."""
    spent = listed[1].spent
    assert spent is not None
    sending = sorted(spent.sending.items(), key=lambda item: -item[1].exposed)
    rows = [[name, seconds_text(x.total), seconds_text(x.exposed)] for name, x in sending]
    if rows:
        yield from (f"  {line}" for line in table(["sending", "time", "exposed"], rows, 1))


def _changes(
    model: Model,
    configuration: Configuration,
    estimates: Sequence[tuple[Configuration, ConfigurationEstimate]],
) -> Iterator[tuple[str, ConfigurationEstimate]]:
    """Yield the configurations that differ in one choice, each with its choice."""
    own = _chosen(model, configuration)
    for other, estimate in estimates:
        its = _chosen(model, other)
        if len(changed := [name for name in own if own[name] != its[name]]) == 1:
            [name] = changed
            yield its[name] if name == "mesh" else f"{name} {its[name]}", estimate


def _chosen(model: Model, c: Configuration) -> dict[str, str]:
    """Return the choices of a configuration; sequences that no axis can divide are not one."""
    whole = not c.sequence and any(c.degrees[axis] > 1 for axis in model.step.tensor)
    sequence = "whole" if whole else "divided"
    return {"mesh": placement(model, c), **choices(c), "sequence": sequence}
