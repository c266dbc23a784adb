"""The picture of docs/training.md: predicted over measured times, and what the errors go with."""

from collections.abc import Sequence
from pathlib import Path

from measured.iteration import predicted_seconds
from measured.programs import machine
from measured.rows import NODE, Row

COLOURS = {1: "#4477aa", 2: "#66ccee", 4: "#228833", 8: "#ccbb44", 16: "#ee6677"}
"""The colour of each degree of tensor parallelism."""


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the errors of rows on one node and on several as SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "collir", "font.size": 9, "svg.fonttype": "none"})
    on = machine()
    figure = Figure(figsize=(9, 3.4))
    FigureCanvasSVG(figure)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, several in zip(panels, (False, True), strict=True):
        for tensor, colour in COLOURS.items():
            own = [r for r in rows if r.tensor == tensor and (r.gpus > NODE) == several]
            if own:
                errors = [100 * (predicted_seconds(row, on) / row.seconds - 1) for row in own]
                seconds = [row.seconds for row in own]
                panel.scatter(seconds, errors, 14, colour, label=f"{tensor}", alpha=0.8)
        panel.axhline(0, color="black", linewidth=0.8)
        panel.set_xscale("log")
        ticks = (5, 10, 20, 50) if several else (0.05, 0.1, 0.2, 0.5, 1)
        panel.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        panel.set_xticks([], minor=True)
        panel.set_xlabel("measured iteration, s")
        panel.set_title("64 to 512 GPUs" if several else "2 to 8 GPUs")
        panel.grid(alpha=0.3)
        panel.legend(title="tensor parallel", fontsize=8, title_fontsize=8)
    panels[0].set_ylabel("error of the prediction, %")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
