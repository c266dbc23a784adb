"""The output of ``collir sweep``: tables, JSON and CSV."""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from collir.cost.programs.accuracy import STEP, accuracy_lines
from collir.cost.programs.exposed import Spent
from collir.syntax.units import bytes_text, digits, seconds_text
from collir.synthesis.sweeping.configuration import REPLICA, UNSTAGED, Configuration, Recompute
from collir.synthesis.sweeping.groups import ConfigurationEstimate
from collir.targets.reports.text import table, wrapped
from collir.tools.sweep_model import Model, bound_of_time
from collir.tools.sweep_search import ConfigurationNode, time_margin

Listed = tuple[tuple[Configuration, ConfigurationEstimate], ConfigurationNode]
"""A configuration that is simulated, with its estimate."""


BAND = 0.055
"""The mean error of simulated steps of training on several nodes (docs/training.md); times that
differ by less are a tie."""


@dataclass(frozen=True)
class BestConfigurations:
    """The best configurations on a number of devices.

    Attributes:
        possible: the number of configurations that may fit, by their estimates.
        refused: the number of the others, for each reason.
        smallest: the least memory of the configurations that do not fit; infinite if all fit.
        best: the best ones, fastest first, each with its estimate and its simulation.
        complete: whether all that may be faster were simulated.
        reason: why the search ended early.
        front: the front of time against memory, if it is asked for.
        estimates: the estimates of all configurations, even those that do not fit.
        measured: the measured seconds of the first ones, if they are asked for.
        failed: the number of configurations that could not be simulated, as they turned out to have
            no program, for each reason.
    """

    devices: int
    possible: int
    refused: Counter[str]
    smallest: float = math.inf
    best: Sequence[Listed] = ()
    complete: bool = True
    reason: str = ""
    front: Sequence[Listed] = ()
    estimates: Sequence[tuple[Configuration, ConfigurationEstimate]] = ()
    measured: Sequence[float] = ()
    failed: Counter[str] = field(default_factory=Counter[str])


Swept = tuple[Model, Sequence[BestConfigurations]]
"""A model on a machine, and the best configurations on each number of devices."""


def as_text(model: Model, found: Sequence[BestConfigurations], sort: str = "rank") -> str:
    """Return tables for people, one for each number of devices, ordered by a column of the CSV."""
    step = model.step
    lines = [
        f"@{step.function}, {step.batch} = {step.parameters[step.batch]}, on {model.machine.name}"
    ]
    if model.division:
        lines.append(model.division.text(step))
    for outcome in found:
        total = outcome.possible + sum(outcome.refused.values())
        lines += [
            "",
            f"{outcome.devices} devices: {total:,} configurations, {outcome.possible:,} may fit",
        ]
        for reason, count in outcome.refused.most_common():
            lines += wrapped(f"  {count:,} not: {reason}")
        for reason, count in outcome.failed.most_common():
            lines += wrapped(f"  {count:,} have no program: {reason}")
        if not outcome.best:
            lines.append("  none fits")
            continue
        lines += _table(model, outcome.best, [record[sort] for record in records(model, [outcome])])
        if outcome.complete:
            lines += _left_out(outcome)
        else:
            lines.append(f"  not complete: {outcome.reason or 'the search was ended'}; best so far")
        (best, _), _ = outcome.best[0]
        lines += [f"  mesh of 1: {placement(model, best)}", f"  passes of 1: -p '{best.passes}'"]
        if paid := _paid(model, outcome.best[0]):
            listed = ", ".join(f"{value} {name}" for name, value in paid.items())
            lines.append(f"  cost of 1: {listed}")
        if outcome.front:
            lines += [
                "",
                "  less memory, of the front of the estimates:",
                *_table(model, outcome.front, range(len(outcome.front))),
            ]
    if len(found) > 1:
        lines += ["", *_scaling(model, found)]
    if any(outcome.best for outcome in found):
        lines += [f"  {line}" for line in accuracy_lines(model.machine, [STEP])]
    return "\n".join(lines) + "\n"


def _table(model: Model, listed: Sequence[Listed], keys: Sequence[Any]) -> list[str]:
    """Return the lines of a table whose rows are in the order of keys."""
    rows = columns_of(model, listed)
    order = sorted(range(len(rows)), key=keys.__getitem__)
    lines = [[str(number + 1), *rows[number].values()] for number in order]
    return [f"  {line}" for line in table(["", *rows[0]], lines, 1)]


def _left_out(found: BestConfigurations) -> Iterator[str]:
    """Yield the facts known of the configurations that were not simulated."""
    if found.possible > len(found.best):
        ratios = [estimate.timed() / node.time - 1 for (_, estimate), node in found.best]
        margin = min(time_margin(configuration) for configuration, _ in found.estimates)
        yield from wrapped(
            f"  others are slower, unless an estimate is {100 * margin:g}% above its simulation; "
            f"those of the listed are {min(ratios):+.1%} to {max(ratios):+.1%}"
        )


def excess(listed: Sequence[Listed]) -> str:
    """Return the sentence that an estimate was above its simulation by more than its margin."""
    for (configuration, estimate), node in listed:
        above, margin = estimate.timed() / node.time - 1, time_margin(configuration)
        if above > margin:
            return (
                f"an estimate was {above:.0%} above its simulation, and others may be: a search "
                f"allows for {100 * margin:g}%"
            )
    return ""


def _scaling(model: Model, found: Sequence[BestConfigurations]) -> list[str]:
    """Return a table of the best time for each number of devices."""
    head = ["devices", "time", "speedup", "efficiency", "memory"]
    rows: list[list[str]] = []
    best = [(outcome.devices, outcome.best[0][1]) for outcome in found if outcome.best]
    first, slowest = best[0]
    for devices, node in best:
        speedup = slowest.time / node.time
        efficiency = f"{speedup * first / devices:.1%}"
        times = seconds_text(node.time), f"{speedup:.2f}x", efficiency, bytes_text(node.memory)
        rows.append([str(devices), *times])
    return [f"  {line}" for line in table(head, rows, 0)]


def placement(model: Model, configuration: Configuration) -> str:
    """Return the sizes of the axes at each level of the machine."""
    return ", ".join(
        f"{name} = {_placed(model, sizes)}"
        for name, sizes in configuration.axes
        if name != REPLICA or configuration.degrees[name] > 1
    )


def _placed(model: Model, sizes: Sequence[int]) -> str:
    levels = zip(model.machine.level_names, sizes, strict=True)
    return " * ".join(f"{level}:{size}" for level, size in levels if size > 1) or "1"


def settings(model: Model, listed: Listed) -> dict[str, str]:
    """Return the columns of a configuration that is simulated."""
    (configuration, _), node = listed
    values = _values(model, configuration, node)
    assert node.spent is not None
    return {
        "time": seconds_text(node.time),
        "exposed": f"{node.spent.exposed / node.time:.1%}",
        **_rate(values),
        _mfu_of(model): f"{values['mfu']:.1%}" if values["mfu"] else "-",
        "memory": bytes_text(node.memory),
        **{name: str(size) for name, size in configuration.degrees.items()},
        **choices(configuration),
        "bound by": bound_of_time(node.spent),
    }


def columns_of(model: Model, listed: Sequence[Listed]) -> list[dict[str, str]]:
    """Return the columns of configurations, without that of copies if none of them has several."""
    rows = [settings(model, each) for each in listed]
    if all(row.get(REPLICA) == "1" for row in rows):
        for row in rows:
            del row[REPLICA]
    return rows


def _mfu_of(model: Model) -> str:
    """Return the name of the part of the devices' rate that the model takes."""
    return "causal MFU" if model.causal else "MFU"


def choices(configuration: Configuration) -> dict[str, str]:
    """Return what a configuration chooses besides its mesh."""
    staged = configuration.schedule
    if configuration.chunks > 1:
        staged += f" x{configuration.chunks}"
    if own := configuration.layers:
        staged += f", {min(own)} or {max(own)} layers"
    return {
        "microbatches": str(configuration.microbatches),
        "schedule": "-" if staged == UNSTAGED else staged,
        "recompute": recompute_text(configuration.recompute),
        "ZeRO": str(configuration.zero),
        "sequence": ",".join(configuration.sequence) or "-",
    }


def recompute_text(recompute: Recompute) -> str:
    """Return what is computed again in a word."""
    if isinstance(recompute, bool):
        return "full" if recompute else "none"
    return "+".join(recompute)


def _rate(values: dict[str, Any]) -> dict[str, str]:
    """Return the column of a rate."""
    if "tokens_per_second" in values:
        return {"tokens/s": f"{values['tokens_per_second']:,.0f}"}
    return {"rows/s": digits(values["rows_per_second"])}


def _values(model: Model, configuration: Configuration, node: ConfigurationNode) -> dict[str, Any]:
    rows = configuration.batch / node.time
    values: dict[str, Any] = {
        "seconds": node.time,
        "rows_per_second": rows,
        "mfu": model.least_seconds / node.time / configuration.devices,
        "memory_bytes": node.memory,
    }
    if words := model.step.words:
        values["tokens_per_second"] = rows * words
    device, device_hours = model.machine.slowest, configuration.devices * node.time / 3600
    if device and device.price:
        values["usd"] = device_hours * device.price
    if device and device.power:
        values["watt_hours"] = device_hours * device.power
    return values


def _paid(model: Model, listed: Listed) -> dict[str, str]:
    """Return what 10^12 words, or 10^9 rows, cost and take, as far as the machine says that."""
    (configuration, _), node = listed
    values = _values(model, configuration, node)
    words = model.step.words
    name, count = ("10^12 tokens", 1e12 / words) if words else ("10^9 rows", 1e9)
    steps = count / configuration.batch
    paid: dict[str, str] = {}
    if "usd" in values:
        paid[f"USD per {name}"] = f"{steps * values['usd']:,.0f}"
    if "watt_hours" in values:
        paid[f"MWh per {name}"] = f"{steps * values['watt_hours'] / 1e6:,.1f}"
    return paid


def record(model: Model, listed: Listed) -> dict[str, Any]:
    """Return a configuration for programs: seconds, bytes and numbers."""
    (c, estimate), node = listed
    assert node.spent is not None
    sending = node.spent.sending
    return {
        **_values(model, c, node),
        **c.degrees,
        "placement": "; ".join(f"{n} = {_placed(model, sizes)}" for n, sizes in c.axes),
        "microbatches": c.microbatches,
        "schedule": c.schedule,
        "chunks": c.chunks,
        "layers": ",".join(map(str, c.layers)),
        "recompute": recompute_text(c.recompute),
        "zero": c.zero,
        "sequence": ",".join(c.sequence),
        "compute_seconds": node.spent.compute,
        "sending_seconds": sum(share.total for share in sending.values()),
        "exposed_seconds": node.spent.exposed,
        "idle_seconds": node.spent.idle,
        "bound_by": bound_of_time(node.spent),
        "estimated_seconds": estimate.time,
    }


def records(
    model: Model, found: Sequence[BestConfigurations], front: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the best configurations, or those of the front, for programs, with their ranks."""
    for outcome in found:
        listed = outcome.front if front else outcome.best
        measured = () if front else outcome.measured
        for rank, (own, seconds) in enumerate(zip_longest(listed, measured), 1):
            yield {
                "devices": outcome.devices,
                "rank": rank,
                **record(model, own),
                "complete": outcome.complete,
                "passes": own[0][0].passes,
            } | ({"measured_seconds": seconds} if seconds is not None else {})


def columns(model: Model, configuration: Configuration) -> list[str]:
    """Return the columns of a CSV with a row for each configuration, such as this one."""
    node = ConfigurationNode(0, time=1.0, spent=Spent(1.0))
    example = BestConfigurations(
        configuration.devices,
        1,
        Counter(),
        best=[((configuration, ConfigurationEstimate(1, 1)), node)],
    )
    return [*next(records(model, [example]))]


def as_machines(swept: Sequence[Swept]) -> str:
    """Return a table of the best time on each machine, if there are several."""
    if len(swept) < 2:
        return ""
    best = [
        (outcome.devices, outcome.best[0][1].time, model, outcome.best[0])
        for model, outcomes in swept
        for outcome in outcomes
        if outcome.best
    ]
    best.sort(key=lambda entry: entry[:2])
    rate = "tokens/s" if swept[0][0].step.words else "rows/s"
    mfu = _mfu_of(swept[0][0])
    costs = list(dict.fromkeys(name for *_, m, listed in best for name in _paid(m, listed)))
    rows: list[list[str]] = []
    fastest: dict[int, float] = {}
    for devices, time, model, listed in best:
        shown = settings(model, listed)
        ratio = time / fastest.setdefault(devices, time)
        tie = ", a tie" if 1 < ratio <= 1 + BAND else ""
        row = [f"@{model.machine.name}", str(devices), shown["time"], f"{ratio:.2f}x{tie}"]
        paid = _paid(model, listed)
        cells = [paid.get(name, "-") for name in costs]
        rows.append([*row, shown[rate], shown[mfu], shown["memory"], *cells])
    head = ["machine", "devices", "time", "of best", rate, mfu, "memory", *costs]
    band = f"A tie is within {100 * BAND:g}%, by which simulated steps are off (docs/training.md)."
    ties = [band] * any("tie" in row[3] for row in rows)
    return "\n".join(["", *table(head, rows, 1, 0), *ties, ""])


def as_json(swept: Sequence[Swept]) -> str:
    """Return all of it as JSON; of several machines, a list."""
    texts = [{"machine": model.machine.name, **_document(model, found)} for model, found in swept]
    text = {"machines": texts} if len(texts) > 1 else _document(*swept[0])
    return json.dumps(text, indent=2) + "\n"


def _document(model: Model, found: Sequence[BestConfigurations]) -> dict[str, Any]:
    counts = [
        {
            "devices": outcome.devices,
            "possible": outcome.possible,
            "refused": dict(outcome.refused),
            "failed": dict(outcome.failed),
            "complete": outcome.complete,
            "reason": outcome.reason,
        }
        for outcome in found
    ]
    text: dict[str, Any] = {"spaces": counts, "best": [*records(model, found)]}
    if any(outcome.front for outcome in found):
        text["front"] = [*records(model, found, front=True)]
    return text


def as_csv(swept: Sequence[Swept]) -> str:
    """Return the best configurations as CSV."""
    rows = [
        ({"machine": model.machine.name} if len(swept) > 1 else {}) | record
        for model, outcomes in swept
        for record in records(model, outcomes)
    ]
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
