"""The page of ``collir calibrate --html``: fitted numbers with their intervals, and the times."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from collir.targets.reports.page.rendered import rendered
from collir.targets.reports.page.tables import HtmlCell
from collir.tools.points_page import PredictedPoint, errors_by, groups, scatter, sentences, shown

FITTED, HELD_BACK = "fitted", "held back"

KIND = "points"
"""The choice whose values are ``FITTED`` and ``HELD_BACK``."""

WIDTH = 240
"""The pixels of the chart of an interval."""

_LIMITS = (1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 16.0)
"""The ratios to the value at which the charts may end."""


@dataclass(frozen=True)
class Number:
    """A number of a machine after a fit, in SI units, and as texts.

    Attributes:
        low, high: the ends of its interval; infinite or 0 where it has none.
        given: its value before the fit; None if it had none.
        how: how it was found, or why it was not fitted.
    """

    name: str
    value: float
    low: float
    high: float
    given: float | None
    fitted: bool
    value_text: str
    interval_text: str
    given_text: str = ""
    how: str = ""


@dataclass(frozen=True)
class IntervalChart:
    """The chart of an interval relative to the value, in pixels.

    Attributes:
        low, high: the ends of its line.
        low_is_open, high_is_open: whether the interval goes on beyond the chart.
        given: the place of the value before the fit; None if it is unknown.
        beyond: -1 or 1 if that value is below or above the chart, else 0.
        label: the same in words.
    """

    low: float
    high: float
    low_is_open: bool
    high_is_open: bool
    given: float | None
    beyond: int
    fitted: bool
    label: str


def html(
    title: str,
    lines: Sequence[str],
    numbers: Sequence[Number],
    points: Sequence[PredictedPoint],
    coll: str,
) -> str:
    """Return the page of a calibration.

    Args:
        lines: a few words on the fit, such as the files.
        points: the fitted and the held back times, with ``KIND`` among their choices.
        coll: the machine, as ``.coll``.

    Raises:
        DiagnosticError: jinja2 is not installed.
    """
    data: dict[str, Any] = {
        "title": title,
        "lines": [*lines],
        "sentences": [*_sentences(numbers, points)],
        "numbers": [number.name for number in numbers],
        "accuracy": [],
        **scatter(points),
    }
    limit = _limit(numbers)
    own = groups(points)
    if len({point.choices[KIND] for point in points}) < 2:
        own.insert(0, errors_by(points, KIND))
    return rendered(
        "calibrate",
        data,
        script="points",
        styles=["points"],
        shown=shown(points),
        groups=own,
        columns=_columns(numbers),
        rows=[(_cells(number, numbers), _interval(number, limit)) for number in numbers],
        limit=limit,
        width=WIDTH,
        coll=coll,
    )


def _sentences(numbers: Sequence[Number], points: Sequence[PredictedPoint]) -> Iterator[str]:
    fitted = sum(number.fitted for number in numbers)
    kept = [point for point in points if point.choices[KIND] == HELD_BACK]
    used = len(points) - len(kept)
    yield f"{fitted} of {len(numbers)} numbers were fitted to {used:,} times."
    first, furthest, _ = sentences(kept or points)
    if kept:
        yield f"Of times that were held back, {first}"
        yield furthest
    else:
        yield f"No times were held back. Of the fitted times, {first}"
        yield furthest


def _columns(numbers: Sequence[Number]) -> list[str]:
    before = any(number.given is not None for number in numbers)
    return ["number", "value", "95 % interval", *["before", "how"] * before]


def _cells(number: Number, numbers: Sequence[Number]) -> list[HtmlCell]:
    """Return the cells of a number, in the order of the columns, behind its name.

    Intervals are sorted by the ratio of their ends.
    """
    width = number.high / number.low if number.low > 0 and number.high < math.inf else None
    cells = [HtmlCell(number.value_text, number.value), HtmlCell(number.interval_text, width)]
    if any(compared.given is not None for compared in numbers):
        cells += [HtmlCell(number.given_text, number.given), HtmlCell(number.how)]
    return cells


def _limit(numbers: Sequence[Number]) -> float:
    """Return the ratio at which the charts of intervals end."""
    ends = [
        abs(math.log(end / number.value))
        for number in numbers
        for end in (number.low, number.high)
        if number.fitted and number.value > 0 and 0 < end < math.inf
    ]
    most = math.exp(max(ends, default=0.0))
    return next((limit for limit in _LIMITS if limit >= most), _LIMITS[-1])


def _interval(number: Number, limit: float) -> IntervalChart | None:
    """Return the chart of a number; None if there is nothing to draw."""
    if number.value <= 0 or number.interval_text == "-":
        return None

    def place(end: float) -> float:
        ratio = math.log(end / number.value) / math.log(limit)
        return round(WIDTH / 2 * (1 + 0.9 * min(1.0, max(-1.0, ratio))), 1)

    low, high = number.low / number.value, number.high / number.value
    before = number.given / number.value if number.given else 1.0
    return IntervalChart(
        place(max(number.low, number.value / limit)),
        place(min(number.high, number.value * limit)),
        low < 1 / limit,
        high > limit,
        place(number.given) if number.given else None,
        (before > limit) - (before < 1 / limit),
        number.fitted,
        _label(number),
    )


def _label(number: Number) -> str:
    low, high = (f"{end / number.value:.3g}" for end in (number.low, number.high))
    before = f"; before, {number.given / number.value:.3g}" if number.given else ""
    return f"{number.name}: from {low} to {high} of the value{before}"
