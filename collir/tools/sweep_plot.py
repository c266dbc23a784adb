# pyright: basic
"""The plot of ``collir sweep --plot``: time against memory, by matplotlib."""

from collections.abc import Sequence
from importlib.util import find_spec
from io import StringIO

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.tools.sweep_output import Found

_MISSING = "a plot needs matplotlib: pip install 'collir[plot]'"


def check_installed() -> None:
    """Check that matplotlib is installed, without the time that importing it takes.

    Raises:
        DiagnosticError: it is not.
    """
    if find_spec("matplotlib") is None:
        raise DiagnosticError(Diagnostic(_MISSING))


def svg(found: Sequence[Found], memory: float) -> str:
    """Plot the estimates of all configurations, and those that are simulated; return SVG.

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
        figure = Figure(figsize=(4.5 * len(found), 4), layout="constrained")
        for axes, each in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
            fits = [e for _, e in each.estimates if e.memory <= memory]
            others = [e for _, e in each.estimates if e.memory > memory]
            for estimates, colour, label in (
                (others, "0.8", "estimates that do not fit"),
                (fits, "C0", "estimates"),
            ):
                if estimates:
                    times, sizes = [e.time for e in estimates], [e.memory / 1e9 for e in estimates]
                    axes.scatter(times, sizes, s=6, color=colour, linewidths=0, label=label)
            nodes = [node for _, node in each.best]
            axes.plot(
                [node.time for node in nodes],
                [node.memory / 1e9 for node in nodes],
                "o",
                color="C3",
                markersize=5,
                label="the fastest, simulated",
            )
            if each.front:
                front = [node for _, node in each.front]
                times, sizes = [n.time for n in front], [n.memory / 1e9 for n in front]
                axes.step(times, sizes, where="post", color="C3", label="front, simulated")
            axes.set(
                xscale="log",
                yscale="log",
                xlabel="seconds of a step",
                ylabel="GB of a device",
                title=f"{each.devices} devices",
            )
            axes.legend(fontsize="small")
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
