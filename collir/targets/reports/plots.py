"""Plots as SVG, by matplotlib."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import cycle

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from collir.targets.reports.bars import Bar
from collir.targets.reports.text import bytes_unit, seconds_unit

_STYLE = {"svg.hashsalt": "collir", "svg.fonttype": "none", "text.parse_math": False}
"""Settings that give the same text for the same plot, and take a $ in a name as it is."""


Colour = tuple[float, float, float]
Point = tuple[float, float]
Line = tuple[Point, Point]

_EDGES = {True: "black", False: "white"}
"""The colour of a bar's edge, by whether it is marked."""

_LETTER = 0.008
"""The width of a letter on a bar, as a share of the width of the chart."""


@dataclass(frozen=True)
class TimeChart:
    """The bars, curves and memory of a chart over time.

    Attributes:
        lanes: names from top to bottom.
        shares: named curves from 0 to 1, as (start, value).
        memory: the bytes held, as (start, value), by the place of the devices.
    """

    title: str
    end: float
    lanes: Sequence[str]
    bars: Sequence[Bar]
    shares: Mapping[str, Sequence[tuple[float, float]]]
    memory: Mapping[str, Sequence[tuple[float, float]]]


_WIDTH = 10.0
"""The width of a chart over time, in inches."""

_SIGN, _SMALL_LETTER, _LINE = 0.6, 0.075, 0.18
"""The widths of the sign of a legend with its spaces, and of a letter behind it, and the height of
a line, in inches."""


def timelines(charts: Sequence[TimeChart]) -> str:
    """Return timelines below each other as SVG: bars on lanes, shares in use if there are some,
    memory."""
    heights = [height for chart in charts for height in _heights(chart)]
    kinds = sorted({bar.kind for chart in charts for bar in chart.bars})
    with mpl.rc_context(_STYLE):
        colours = dict(zip(kinds, cycle(_colours()), strict=False))
        handles = _legend(colours)
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = max(1, min(6, int(_WIDTH / (_SIGN + _SMALL_LETTER * longest))))
        height = sum(heights) + 0.5 + _LINE * math.ceil(len(handles) / columns)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        grid = figure.subplots(len(heights), squeeze=False, gridspec_kw={"height_ratios": heights})
        rows = iter(grid[:, 0])
        for chart in charts:
            _draw(chart, [next(rows) for _ in _heights(chart)], colours)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize="small")
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return _numbered(text.getvalue())


def _legend(colours: Mapping[str, Colour]) -> list[Patch]:
    """Return the signs of a legend: of the kinds of steps, and of the edges of bars."""
    handles = [Patch(color=colour, label=kind) for kind, colour in colours.items()]
    return handles + [
        Patch(facecolor="lightgrey", edgecolor=_EDGES[marked], label=label)
        for marked, label in ((True, "on the critical path"), (False, "not on it"))
    ]


def _heights(chart: TimeChart) -> list[float]:
    """Return the heights of the parts of a chart: lanes, shares if there are some, and memory."""
    return [0.5 + 0.5 * len(chart.lanes), *([1.2] if chart.shares else []), 1.0]


def _colours() -> list[Colour]:
    """Return 40 colours of bars, strong ones first."""
    pairs, more = (mpl.colormaps[name].colors for name in ("tab20", "tab20b"))
    return [*pairs[::2], *pairs[1::2], *more]


def _draw(chart: TimeChart, rows: Sequence[Axes], colours: Mapping[str, Colour]) -> None:
    """Draw a chart in its rows."""
    bars, *between, memory = rows
    second, time_unit = seconds_unit(chart.end)
    held = [size for points in chart.memory.values() for _, size in points]
    byte, size_unit = bytes_unit(max(held, default=0))
    _bars(bars, chart, colours, second)
    for shares in between:
        for name, points in chart.shares.items():
            shares.step(*_steps(points, chart.end, second, 0.01), where="post", label=name)
        shares.set(ylabel="% in use", ylim=(0, 105))
        shares.legend(loc="upper right", fontsize="small")
    for name, points in chart.memory.items():
        color = "black" if len(chart.memory) == 1 else None
        corners = _steps(points, chart.end, second, byte)
        memory.step(*corners, where="post", color=color, label=name)
    if len(chart.memory) > 1:
        memory.legend(loc="upper right", fontsize="small")
    memory.set(ylabel=f"{size_unit} held", xlabel=time_unit, ylim=(0, None))
    for axes in rows:
        axes.set_xlim(0, max(chart.end, 1e-12) / second)


def _numbered(svg: str) -> str:
    """Return an SVG with numbered clips, because matplotlib's names of them vary."""
    names = dict.fromkeys(re.findall(r'<clipPath id="(\w+)"', svg))
    for number, name in enumerate(names):
        svg = svg.replace(name, f"clip{number}")
    return svg


def _bars(axes: Axes, chart: TimeChart, colours: Mapping[str, Colour], unit: float) -> None:
    places = [chart.lanes.index(bar.lane) for bar in chart.bars]
    starts = [bar.start / unit for bar in chart.bars]
    widths = [(bar.end - bar.start) / unit for bar in chart.bars]
    edges = [_EDGES[bar.marked] for bar in chart.bars]
    fills = [colours[bar.kind] for bar in chart.bars]
    # All at once: each call looks at everything that is drawn already.
    axes.barh(places, widths, 0.7, starts, color=fills, edgecolor=edges, linewidth=0.8)
    for bar, place, start, width in zip(chart.bars, places, starts, widths, strict=True):
        letters = width / (chart.end / unit * _LETTER)
        if text := next((text for text in bar.texts if len(text) <= letters), None):
            axes.text(start + width / 2, place, text, ha="center", va="center", fontsize=8)
    axes.set(title=chart.title, yticks=range(len(chart.lanes)), yticklabels=chart.lanes)
    axes.set_ylim(len(chart.lanes) - 0.5, -0.5)


def _steps(
    points: Sequence[tuple[float, float]], end: float, time: float, size: float
) -> tuple[list[float], list[float]]:
    """Return the corners of a curve up to the end, in units of ``time`` and ``size``."""
    last = points[-1][1] if points else 0.0
    corners = [*points, (end, last)]
    return [at / time for at, _ in corners], [value / size for _, value in corners]


def lines(
    title: str,
    labels: tuple[str, str],
    series: Mapping[str, Sequence[tuple[float, float]]],
    marks: Sequence[float] = (),
) -> str:
    """Return named lines of (bytes, seconds) on logarithmic axes as SVG.

    ``marks`` are the bytes at which the fastest line changes, drawn as dotted verticals.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        for name, points in series.items():
            axes.loglog(*zip(*points, strict=True), label=name)
        for number, at in enumerate(marks):
            label = "" if number else "the fastest changes"
            axes.axvline(at, color="grey", linewidth=1, linestyle="dotted", label=label)
        for axis, unit in ((axes.xaxis, bytes_unit), (axes.yaxis, seconds_unit)):
            axis.set_major_locator(LogLocator(numticks=20))
            axis.set_major_formatter(_quantities(unit))
            axis.set_minor_formatter(NullFormatter())
        axes.set(xlabel=labels[0], ylabel=labels[1])
        axes.set_title(title, wrap=True)
        axes.legend()
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


CLOSE = 1.1
"""The factor below which the next best function is close."""


def regions(
    title: str,
    labels: tuple[str, str],
    points: tuple[Sequence[float], Sequence[float]],
    names: Sequence[str],
    best: NDArray[np.int64],
    gains: NDArray[np.float64],
    equations: Mapping[tuple[int, int], str],
) -> str:
    """Return the regions of a plane in which each of some named functions is the best as SVG, on
    logarithmic axes, with the lines between them.

    Args:
        points: the values along both axes, ascending.
        best: the numbers of the best functions, by rows of the second axis; -1 for none.
        gains: by which factor the next one is worse; pale where it is less than ``CLOSE``.
        equations: texts for the lines between two functions, by their numbers, the smaller first.
    """
    shown = [number for number in range(len(names)) if (best == number).any()]
    colours = _colours()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        picture = np.ones((*best.shape, 4))
        for number in shown:
            picture[best == number, :3] = to_rgb(colours[number % len(colours)])
        picture[..., 3] = np.where(best < 0, 0, np.where(gains < CLOSE, 0.35, 0.8))
        edges = [_edges(values) for values in points]
        axes.pcolormesh(*edges, picture, rasterized=True)
        borders = _borders(best, *edges)
        listed = [line for lines in borders.values() for line in lines]
        axes.add_collection(LineCollection(listed, colors="black", linewidths=1))
        for pair, equation in equations.items():
            _name_line(axes, borders[pair], equation, math.sqrt(edges[0][0] * edges[0][-1]))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.12g}"))
            axis.set_minor_formatter(NullFormatter())
        limits = [(values[0], values[-1]) for values in edges]
        axes.set(xlabel=labels[0], ylabel=labels[1], xlim=limits[0], ylim=limits[1])
        axes.set_title(title, wrap=True)
        handles = [Patch(color=colours[n % len(colours)], alpha=0.8, label=names[n]) for n in shown]
        if (gains[best >= 0] < CLOSE).any():
            handles.append(
                Patch(color="grey", alpha=0.35, label=f"pale: by less than {CLOSE - 1:.0%}")
            )
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return _numbered(text.getvalue())


def _name_line(axes: Axes, lines: Sequence[Line], text: str, middle: float) -> None:
    """Write a text beside the middle of a line, towards the middle of the plot."""
    (x, y), _ = sorted(lines)[len(lines) // 2]
    side = 1 if x < middle else -1
    axes.annotate(
        text,
        (x, y),
        (8 * side, 8),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        fontsize="small",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
    )


def _edges(values: Sequence[float]) -> list[float]:
    """Return the edges of cells around values on a logarithmic scale."""
    logs = np.log2(values)
    steps = np.diff(logs) if len(logs) > 1 else np.ones(1)
    inner = logs[:-1] + np.diff(logs) / 2
    edges = np.concatenate([[logs[0] - steps[0] / 2], inner, [logs[-1] + steps[-1] / 2]])
    return (2.0**edges).tolist()


def _borders(
    best: NDArray[np.int64], xs: Sequence[float], ys: Sequence[float]
) -> dict[tuple[int, int], list[Line]]:
    """Return the lines between cells of different numbers, from edge to edge, by these numbers."""
    numbers: list[list[int]] = best.tolist()
    borders: dict[tuple[int, int], list[Line]] = {}

    def add(one: int, other: int, line: Line) -> None:
        borders.setdefault((min(one, other), max(one, other)), []).append(line)

    for row, column in np.argwhere(best[:, 1:] != best[:, :-1]).tolist():
        line = (xs[column + 1], ys[row]), (xs[column + 1], ys[row + 1])
        add(numbers[row][column], numbers[row][column + 1], line)
    for row, column in np.argwhere(best[1:] != best[:-1]).tolist():
        line = (xs[column], ys[row + 1]), (xs[column + 1], ys[row + 1])
        add(numbers[row][column], numbers[row + 1][column], line)
    return borders


def _quantities(unit_of: Callable[[float], tuple[float, str]]) -> FuncFormatter:
    """Return the formatter of an axis that gives each tick its own unit."""

    def text(value: float, _position: int | None = None) -> str:
        factor, unit = unit_of(value)
        return f"{value / factor:g} {unit}"

    return FuncFormatter(text)
