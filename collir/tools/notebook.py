"""Show results in notebooks: a simulation is its page."""

import sys
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collir.cost.programs.simulation import Simulation

_HEIGHT = 720
"""The pixels of a page in a notebook."""


def html_of(simulation: "Simulation") -> str:
    """Return the page of a simulation in a frame."""
    from collir.targets.reports.page.target import page

    text = escape(page([simulation], ""))
    title = escape(repr(simulation))
    return (
        f'<iframe srcdoc="{text}" title="{title}" width="100%" height="{_HEIGHT}" '
        'style="border: 1px solid #888"></iframe>'
    )


def register() -> None:
    """Let a notebook that runs now show results so."""
    ipython: Any = sys.modules["IPython"].get_ipython()
    if ipython is not None:
        formatter = ipython.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("collir.cost.programs.simulation", "Simulation", html_of)
