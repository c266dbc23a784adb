"""Measured times beside predicted ones, as the pages of compare and calibrate show them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from collir.cost.calibration import Residual
from collir.targets.reports.page.tables import HtmlCell
from collir.targets.reports.text import bytes_text, seconds_text

MOST_WORST = 10
"""The number of predictions that are named as the furthest off."""

CLOSE = 0.25
"""The error up to which a prediction counts as close."""


@dataclass(frozen=True)
class PredictedPoint:
    """A measured time with its prediction.

    Attributes:
        name: a name in a sentence, such as ``all_reduce of 8 B on 4 ranks (times.txt:12)``.
        cells: the cells of its row before those of the times, by column.
        choices: the values that it is filtered by, by name.
    """

    name: str
    measured: float
    predicted: float
    cells: Mapping[str, HtmlCell]
    choices: Mapping[str, str]

    @property
    def ratio(self) -> float:
        """The predicted divided by the measured time."""
        return self.predicted / self.measured

    @property
    def error(self) -> float:
        """The error relative to the measured time."""
        return self.ratio - 1

    @property
    def distance(self) -> float:
        """The distance of the ratio from 1, on a logarithmic scale."""
        return abs(math.log(self.ratio)) if self.ratio > 0 else math.inf


@dataclass(frozen=True)
class PointsTable:
    """The table of points.

    Attributes:
        worst: a line for each of the points that are furthest off.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[HtmlCell]]
    worst: Sequence[str]


@dataclass(frozen=True)
class ErrorTable:
    """A table of errors, a row for each value of a choice."""

    columns: Sequence[str]
    rows: Sequence[Sequence[HtmlCell]]


def collective_point(residual: Residual, more: Mapping[str, str] | None = None) -> PredictedPoint:
    """Return the point of a collective.

    Args:
        more: choices that stand before the collective's own.
    """
    collective, source = residual.sample.collective, residual.sample.source
    own = dict(more or {})
    size, ranks = bytes_text(collective.size), str(collective.ranks)
    return PredictedPoint(
        f"{collective.kind} of {size} on {ranks} ranks ({source})",
        residual.sample.seconds,
        residual.predicted,
        {
            **{name: HtmlCell(value) for name, value in own.items()},
            "collective": HtmlCell(collective.kind),
            "ranks": HtmlCell(ranks, collective.ranks),
            "bytes": HtmlCell(size, collective.size),
            "from": HtmlCell(source),
        },
        {**own, "collective": collective.kind, "ranks": ranks, "source": _file(source)},
    )


def _file(source: str) -> str:
    """Return the file of a source such as ``times.txt:12``."""
    file, colon, line = source.rpartition(":")
    return file if colon and line.isdigit() else source


def worst_of(points: Sequence[PredictedPoint]) -> list[int]:
    """Return the numbers of the points that are furthest off, the worst first."""
    order = sorted(range(len(points)), key=lambda n: -points[n].distance)
    return order[:MOST_WORST]


def shown(points: Sequence[PredictedPoint]) -> PointsTable:
    """Return the table of points."""
    worst = worst_of(points)
    places = {number: place for place, number in enumerate(worst, 1)}
    rows = [
        [
            *point.cells.values(),
            HtmlCell(seconds_text(point.measured), point.measured),
            HtmlCell(seconds_text(point.predicted), point.predicted),
            HtmlCell(f"{point.ratio:.2f}", point.ratio),
            HtmlCell(str(places[n]), places[n]) if n in places else HtmlCell(""),
        ]
        for n, point in enumerate(points)
    ]
    columns = [*points[0].cells, "measured", "predicted", "ratio", "furthest off"]
    return PointsTable(columns, rows, [_line(points[n]) for n in worst])


def _line(point: PredictedPoint) -> str:
    return (
        f"{point.name}: measured {seconds_text(point.measured)}, predicted "
        f"{seconds_text(point.predicted)}, {point.error:+.1%}"
    )


def scatter(points: Sequence[PredictedPoint]) -> dict[str, Any]:
    """Return what the script draws of points."""
    worst = set(worst_of(points))
    return {
        "names": [*points[0].choices],
        "points": [
            [point.measured, point.predicted, int(n in worst), *point.choices.values()]
            for n, point in enumerate(points)
        ],
    }


def sentences(points: Sequence[PredictedPoint]) -> Iterator[str]:
    """Yield what matters of points, in three sentences."""
    middle = median(abs(point.error) for point in points)
    yield f"{len(points):,} predictions have a median error of {middle:.1%}."
    yield f"The furthest off is {_line(points[worst_of(points)[0]])}."
    close = sum(abs(point.error) <= CLOSE for point in points)
    long = sum(point.error > 0 for point in points)
    yield (
        f"{close:,} of them are within {CLOSE:.0%} of the measured times; {long:,} are longer than "
        f"measured, {len(points) - long:,} are not."
    )


def errors_by(points: Sequence[PredictedPoint], name: str) -> ErrorTable:
    """Return the errors for each value of a choice."""
    own: dict[str, list[PredictedPoint]] = {}
    for point in points:
        own.setdefault(point.choices[name], []).append(point)
    columns = [name, "times", "median error", "furthest off", "which"]
    return ErrorTable(columns, [_errors(value, group) for value, group in own.items()])


def _errors(value: str, points: Sequence[PredictedPoint]) -> list[HtmlCell]:
    middle = median(abs(point.error) for point in points)
    worst = max(points, key=lambda point: point.distance)
    return [
        HtmlCell(value),
        HtmlCell(str(len(points)), len(points)),
        HtmlCell(f"{middle:.1%}", middle),
        HtmlCell(f"{worst.error:+.1%}", worst.error),
        HtmlCell(worst.name),
    ]


def groups(points: Sequence[PredictedPoint]) -> list[ErrorTable]:
    """Return the errors by each choice that has several values, but for the ranks."""
    return [
        errors_by(points, name)
        for name in points[0].choices
        if name != "ranks" and len({point.choices[name] for point in points}) > 1
    ]
