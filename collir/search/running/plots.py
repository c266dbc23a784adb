"""Plots of profiles by matplotlib."""

from io import StringIO

from collir.search.core.problem import SearchError
from collir.search.core.tasks import SearchProfile


def svg(profile: SearchProfile) -> str:
    """Plot nodes by depth and run times of tasks by the depth of their roots; return SVG.

    Raises:
        SearchError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SearchError("a plot needs matplotlib: pip install 'collir[plot]'") from error
    with mpl.rc_context({"svg.hashsalt": "collir", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        counts, times = figure.subplots(1, 2)
        for name in ("nodes", "pruned", "dominated", "backtracks"):
            if any(numbers := getattr(profile, name)):
                counts.plot(range(len(numbers)), numbers, marker=".", label=name)
        counts.set(xlabel="depth", ylabel="number", yscale="symlog", title="by depth")
        counts.legend()
        if profile.tasks:
            depths, seconds, _ = zip(*profile.tasks, strict=True)
            times.plot(depths, [max(value, 1e-7) for value in seconds], ".", alpha=0.4)
        times.set(xlabel="depth of the root", ylabel="seconds", yscale="log", title="tasks")
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
