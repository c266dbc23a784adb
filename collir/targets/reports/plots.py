# pyright: basic
"""Plots as SVG, by matplotlib."""

from collections.abc import Mapping, Sequence
from io import StringIO

import matplotlib as mpl
from matplotlib.figure import Figure


def lines(
    title: str,
    labels: tuple[str, str],
    series: Mapping[str, Sequence[tuple[float, float]]],
    marks: Sequence[float] = (),
) -> str:
    """Named lines of (x, y) on logarithmic axes, and dotted verticals at ``marks``."""
    with mpl.rc_context({"svg.hashsalt": "collir", "svg.fonttype": "none"}):
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
