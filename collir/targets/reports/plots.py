# pyright: basic
"""Plots as SVG, by matplotlib."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Patch

_STYLE: Any = {"svg.hashsalt": "collir", "svg.fonttype": "none", "text.parse_math": False}
"""The same text for the same plot, and names as they are: a $ is no formula."""


@dataclass(frozen=True)
class Bar:
    """Something that takes time: on which lane, from when to when, of what kind."""

    lane: str
    start: float
    end: float
    text: str
    kind: str
    marked: bool = False


@dataclass(frozen=True)
class Timeline:
    """What happens over time.

    Attributes:
        lanes: from top to bottom.
        shares: named curves from 0 to 1, as (from when, value).
        memory: bytes, as (from when, value).
    """

    title: str
    end: float
    lanes: Sequence[str]
    bars: Sequence[Bar]
    shares: Mapping[str, Sequence[tuple[float, float]]]
    memory: Sequence[tuple[float, float]]


def timelines(charts: Sequence[Timeline]) -> str:
    """Timelines below each other: bars on lanes, shares in use, memory; times in milliseconds."""
    heights = [h for chart in charts for h in (0.5 + 0.5 * len(chart.lanes), 1.2, 1.0)]
    kinds = sorted({bar.kind for chart in charts for bar in chart.bars})
    colours = {kind: f"C{number % 10}" for number, kind in enumerate(kinds)}
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10, sum(heights) + 0.8), layout="constrained")
        rows = figure.subplots(len(heights), squeeze=False, gridspec_kw={"height_ratios": heights})
        for number, chart in enumerate(charts):
            bars, shares, memory = (rows[3 * number + row][0] for row in range(3))
            _bars(bars, chart, colours)
            for name, points in chart.shares.items():
                shares.step(*_steps(points, chart.end, 1e3, 100), where="post", label=name)
            shares.set(ylabel="% in use", ylim=(0, 105))
            if chart.shares:
                shares.legend(loc="upper right", fontsize="small")
            memory.step(*_steps(chart.memory, chart.end, 1e3, 1e-6), where="post", color="black")
            memory.set(ylabel="MB held", xlabel="ms", ylim=(0, None))
            for axes in (bars, shares, memory):
                axes.set_xlim(0, max(chart.end, 1e-12) * 1e3)
        handles = [Patch(color=colours[kind], label=kind) for kind in kinds]
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize="small")
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return _numbered(text.getvalue())


def _numbered(svg: str) -> str:
    """With the clips numbered: matplotlib names them by the last digits of a layout, which vary."""
    names = dict.fromkeys(re.findall(r'<clipPath id="(\w+)"', svg))
    for number, name in enumerate(names):
        svg = svg.replace(name, f"clip{number}")
    return svg


def _bars(axes: Any, chart: Timeline, colours: Mapping[str, str]) -> None:
    for bar in chart.bars:
        place, width = chart.lanes.index(bar.lane), (bar.end - bar.start) * 1e3
        edge = "black" if bar.marked else "white"
        start = bar.start * 1e3
        axes.barh(place, width, 0.7, start, color=colours[bar.kind], edgecolor=edge, linewidth=0.8)
        if width > chart.end * 1e3 * 0.012 * len(bar.text):
            axes.text(start + width / 2, place, bar.text, ha="center", va="center", fontsize=8)
    axes.set(title=chart.title, yticks=range(len(chart.lanes)), yticklabels=chart.lanes)
    axes.set_ylim(len(chart.lanes) - 0.5, -0.5)


def _steps(
    points: Sequence[tuple[float, float]], end: float, time: float, size: float
) -> tuple[list[float], list[float]]:
    """The corners of a curve, to the end."""
    last = points[-1][1] if points else 0.0
    whole = [*points, (end, last)]
    return [at * time for at, _ in whole], [value * size for _, value in whole]


def lines(
    title: str,
    labels: tuple[str, str],
    series: Mapping[str, Sequence[tuple[float, float]]],
    marks: Sequence[float] = (),
) -> str:
    """Named lines of (x, y) on logarithmic axes, and dotted verticals at ``marks``."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        for name, points in series.items():
            axes.loglog(*zip(*points, strict=True), label=name)
        for at in marks:
            axes.axvline(at, color="grey", linewidth=0.5, linestyle="dotted")
        axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
        axes.legend()
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
