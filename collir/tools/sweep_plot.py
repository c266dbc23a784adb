"""The plot of ``collir sweep --plot``: time against memory, by matplotlib."""

import math
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.syntax.units import bytes_text
from collir.synthesis.sweeping.configuration import PREFETCHED, Configuration
from collir.tools.sweep_model import Model
from collir.tools.sweep_output import BestConfigurations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MISSING = "a plot needs matplotlib: pip install 'collir[plot]'"


def check_installed() -> None:
    """Check that matplotlib is installed, without importing it, which takes long.

    Raises:
        DiagnosticError: it is not.
    """
    if find_spec("matplotlib") is None:
        raise DiagnosticError(Diagnostic(_MISSING))


STRATEGIES = {
    "stages": ("C0", "^"),
    "ZeRO-3": ("C1", "s"),
    "tensor": ("C2", "D"),
    "data alone": ("C4", "o"),
}
"""The colour and the marker of configurations by what divides the model."""


def strategy_of(c: Configuration, tensor: Collection[str]) -> str:
    """Return what divides the model first: stages, ZeRO-3, one of the axes that divide weights, or
    nothing."""
    if c.stages > 1:
        return "stages"
    if c.zero >= PREFETCHED:
        return "ZeRO-3"
    return "tensor" if any(c.degrees[axis] > 1 for axis in tensor) else "data alone"


def svg(model: Model, found: Sequence[BestConfigurations], memory: float) -> str:
    """Plot the estimates of all configurations, and those that are simulated, with their numbers;
    return SVG.

    Args:
        memory: the bytes of a device.

    Raises:
        DiagnosticError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DiagnosticError(Diagnostic(_MISSING)) from error
    with mpl.rc_context({"svg.hashsalt": "collir", "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.5 * len(found), 4.5), layout="constrained", dpi=150)
        [row] = figure.subplots(1, len(found), squeeze=False)
        for axes, outcome in zip(row, found, strict=True):
            _draw(axes, outcome, model.step.tensor, memory)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _draw(axes: "Axes", found: BestConfigurations, tensor: Collection[str], memory: float) -> None:
    """Draw the configurations on a number of devices."""
    for strategy, (colour, marker) in STRATEGIES.items():
        own = [e for c, e in found.estimates if strategy_of(c, tensor) == strategy]
        if own:
            times, sizes = [e.time for e in own], [e.memory / 1e9 for e in own]
            look = {"s": 9, "color": colour, "marker": marker, "linewidths": 0, "alpha": 0.5}
            axes.scatter(times, sizes, label=strategy, rasterized=len(own) > 500, **look)
    if math.isfinite(memory):
        axes.axhline(memory / 1e9, color="0.3", linestyle="--", linewidth=1)
        text, coordinates = f"{bytes_text(memory)} of a device", ("axes fraction", "data")
        place = 1, memory / 1e9
        axes.annotate(text, place, xycoords=coordinates, ha="right", va="bottom", fontsize=8)
    points = [(node.time, node.memory / 1e9) for _, node in found.best]
    look = {"markerfacecolor": "white", "markeredgecolor": "black", "markersize": 11}
    axes.plot(*zip(*points, strict=True), "o", label="simulated, with its number", **look)
    for number, point in enumerate(points, 1):
        axes.annotate(str(number), point, ha="center", va="center", fontsize=7)
    if found.front:
        front = [node for _, node in found.front]
        times, sizes = [n.time for n in front], [n.memory / 1e9 for n in front]
        axes.step(times, sizes, where="post", color="black", label="front, simulated")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="seconds of a step",
        ylabel="GB of a device",
        title=f"{found.devices} devices",
    )
    axes.legend(fontsize="small", loc="best")
