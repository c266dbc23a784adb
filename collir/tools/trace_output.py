"""A run beside its prediction, as text and as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from collir.importing.traces.compared import Compared, Late, TimeShares
from collir.targets.reports.text import (
    bytes_text,
    percent_text,
    ratio_text,
    seconds_text,
    table,
    wrapped,
)

LISTED = 20
"""The most rows of a table of a report; JSON and the page have all."""

_CLOSE = 0.02
"""The part by which a prediction is as good as the time that was measured."""

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A title, the columns and the rows of a table."""


def sentences(compared: Compared) -> Iterator[str]:
    """Yield what there is to say first: the times, who is waited for, and what is exposed."""
    measured, predicted = compared.seconds, compared.simulation.time
    off = predicted / measured - 1 if measured else 0.0
    apart = f"{abs(off):.1%} {'less' if off < 0 else 'more'}" if abs(off) > _CLOSE else "as long"
    ranks = _count(len(compared.trace.ranks), "rank")
    yield (
        f"A step takes {seconds_text(measured)} (the median of {compared.count} on {ranks}), and "
        f"@{compared.simulation.name} is predicted to take {seconds_text(predicted)}, {apart}."
    )
    if compared.late:
        yield " ".join(map(_late_text, compared.late))
    elif len(compared.trace.ranks) > 1:
        yield "No rank is waited for much longer than the others."
    first = compared.trace.ranks[0].rank
    own, should = compared.parts[first], compared.predicted_parts
    yield (
        f"Rank {first} sends for {seconds_text(own.exposed)} of a step while it does not compute "
        f"({seconds_text(should.exposed)} predicted), and idles for "
        f"{seconds_text(own.idles)} ({seconds_text(should.idles)} predicted)."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _late_text(late: Late) -> str:
    text = (
        f"The others wait {seconds_text(late.seconds)} of a step for rank {late.rank} "
        f"({percent_text(late.share, 1.0)} of all waiting)"
    )
    reasons: list[str] = []
    if late.idles > 0 and late.gap:
        during = f" in {late.gap.during}" if late.gap.during else ""
        before = f", {seconds_text(late.gap.seconds)} of it{during} before {late.gap.before}"
        reasons.append(f"it idles {seconds_text(late.idles)} longer than they do{before}")
    if late.computes > 0 and late.computes > 0.3 * late.idles:
        reasons.append(f"it computes {seconds_text(late.computes)} longer")
    return f"{text}: {', and '.join(reasons)}." if reasons else f"{text}."


def tables(compared: Compared) -> Iterator[Table]:
    """Yield the tables of a report."""
    mesh = compared.simulation.mesh
    yield (
        "Collectives",
        ["step", "over", "bytes", "times", "measured", "predicted", "ratio", "waited", "last"],
        [
            [
                f"{' '.join(row.path)} = {row.step.kind}", row.step.over(mesh),
                bytes_text(row.step.size), str(row.times), seconds_text(row.measured),
                seconds_text(row.predicted), _ratio(row.predicted, row.measured),
                seconds_text(row.waited) if row.last is not None else "",
                f"rank {row.last}" if row.last is not None else "",
            ]
            for row in compared.collectives
        ],
    )  # fmt: skip
    if compared.sums:
        yield (
            "Collectives that send the same in other parts",
            ["collective", "over", "in the program", "that ran", "bytes", "measured", "predicted"],
            [
                [x.kind, ", ".join(x.axes), str(x.steps), str(x.ran), bytes_text(x.size),
                 seconds_text(x.measured), seconds_text(x.predicted)]
                for x in compared.sums
            ],
        )  # fmt: skip
    if compared.extra:
        yield (
            "Collectives that are not in the program",
            ["collective", "bytes", "ranks", "times", "measured"],
            [
                [label, bytes_text(size) if size else "", str(ranks or ""), str(times),
                 seconds_text(seconds)]
                for label, size, ranks, times, seconds in compared.extra
            ],
        )  # fmt: skip
    if compared.missing:
        yield (
            "Collectives of the program that did not run",
            ["step", "over", "bytes", "times", "predicted"],
            [
                [f"{' '.join(x.path)} = {x.kind}", x.step.over(mesh), bytes_text(x.size),
                 str(times), seconds_text(times * (x.end - x.start))]
                for x, times in compared.missing
            ],
        )  # fmt: skip
    if compared.products:
        yield (
            "Products of matrices",
            ["sizes", "operations", "ran", "in the program", "measured", "predicted", "ratio"],
            [
                [
                    x.text or "-", f"{x.operations:.3g}", f"{x.ran:g}", str(x.expected),
                    seconds_text(x.measured) if x.ran else "",
                    seconds_text(x.predicted) if x.expected else "",
                    _ratio(x.predicted, x.measured) if x.ran and x.expected else "",
                ]
                for x in compared.products
            ],
        )  # fmt: skip
    yield "A step of each rank", ["", *_PARTS], [*_part_rows(compared)]
    if compared.gaps:
        yield (
            "Gaps, in which a rank neither computes nor sends",
            ["before", "the host says", "rank", "time"],
            [
                [x.before or "the end of the step", x.during, str(x.rank), seconds_text(x.seconds)]
                for x in compared.gaps
            ],
        )


_PARTS = ("computes", "sends", "exposed", "idles", "all")


def _part_rows(compared: Compared) -> Iterator[list[str]]:
    for rank, parts in compared.parts.items():
        yield [f"rank {rank}", *_part_cells(parts)]
    yield ["predicted", *_part_cells(compared.predicted_parts)]
    measured, predicted = compared.rest
    yield ["not products", seconds_text(measured), "", "", "", ""]
    yield ["predicted", seconds_text(predicted), "", "", "", ""]


def _part_cells(parts: TimeShares) -> list[str]:
    times = (parts.computes, parts.sends, parts.exposed, parts.idles, parts.total)
    return [*map(seconds_text, times)]


def _ratio(predicted: float, measured: float) -> str:
    return ratio_text(predicted, measured) if measured else ""


def report(compared: Compared) -> list[str]:
    """Return the lines of a report."""
    trace, simulation = compared.trace, compared.simulation
    lines = wrapped(
        f"{trace.tool}: {_count(len(trace.ranks), 'rank')}, {trace.events:,} events, beside "
        f"@{simulation.name} on @{simulation.mesh.machine.name}, costed "
        f"{simulation.model.how(simulation.mesh.machine)}"
    )
    lines += [f"  {line}" for x in sentences(compared) for line in wrapped(x, 2)]
    for title, head, rows in tables(compared):
        if not rows:
            continue
        lines.append(f"  {title.lower()}:")
        left = 2 if title.startswith(("Collectives", "Gaps")) else 1
        lines += [f"    {line}" for line in table(head, rows[:LISTED], left)]
        if len(rows) > LISTED:
            lines.append(f"    ... and {len(rows) - LISTED} more (--json has all)")
    total = sum(len(x) for steps in compared.steps.values() for _, x in steps[: compared.count])
    lines.append(
        f"  {percent_text(compared.share_matched, 1.0)} of the {total} collectives that ran are "
        "steps of the program"
    )
    for remark in compared.remarks:
        lines += [f"  {line}" for line in wrapped(remark, 2)]
    return lines


def as_json(compared: Compared) -> dict[str, Any]:
    """Return the comparison for programs: seconds and bytes."""
    simulation = compared.simulation

    def parts(x: TimeShares) -> dict[str, float]:
        return {
            "computes_s": x.computes, "sends_s": x.sends, "exposed_s": x.exposed,
            "idles_s": x.idles, "total_s": x.total,
        }  # fmt: skip

    return {
        "tool": compared.trace.tool,
        "events": compared.trace.events,
        "ignored": compared.trace.ignored,
        "function": simulation.name,
        "machine": simulation.mesh.machine.name,
        "steps": compared.count,
        "measured_s": compared.seconds,
        "predicted_s": simulation.time,
        "matched": compared.share_matched,
        "ranks": [{"rank": rank, **parts(x)} for rank, x in compared.parts.items()],
        "predicted": parts(compared.predicted_parts),
        "late": [
            {"rank": x.rank, "waited_s": x.seconds, "share": x.share,
             "computes_longer_s": x.computes, "idles_longer_s": x.idles,
             "before": x.gap.before if x.gap else None, "during": x.gap.during if x.gap else None}
            for x in compared.late
        ],
        "collectives": [
            {"path": [*x.path], "line": x.step.line, "collective": x.step.kind,
             "over": x.step.over(simulation.mesh), "bytes": x.step.size, "times": x.times,
             "measured_s": x.measured, "predicted_s": x.predicted, "alone_s": x.alone,
             "waited_s": x.waited, "last": x.last}
            for x in compared.collectives
        ],
        "sums": [
            {"collective": x.kind, "over": [*x.axes], "in_program": x.steps, "ran": x.ran,
             "bytes": x.size, "measured_s": x.measured, "predicted_s": x.predicted}
            for x in compared.sums
        ],
        "not_in_program": [
            {"collective": label, "bytes": size, "ranks": ranks, "times": times,
             "measured_s": seconds}
            for label, size, ranks, times, seconds in compared.extra
        ],
        "did_not_run": [
            {"path": [*x.path], "collective": x.kind, "bytes": x.size, "times": times}
            for x, times in compared.missing
        ],
        "products": [
            {"sizes": x.text, "operations": x.operations, "ran": x.ran, "in_program": x.expected,
             "measured_s": x.measured, "predicted_s": x.predicted}
            for x in compared.products
        ],
        "gaps": [
            {"rank": x.rank, "time_s": x.seconds, "before": x.before, "during": x.during}
            for x in compared.gaps
        ],
        "remarks": compared.remarks,
    }  # fmt: skip
