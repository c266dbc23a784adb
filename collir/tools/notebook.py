"""Show results in notebooks: programs and costs as text, simulations, sweeps and searches as pages.

Without jinja2 there is no page; a notebook shows the line of ``repr`` then.
"""

import re
import sys
from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from collir.cost.formulas.costs import CostFormulas
    from collir.cost.formulas.function import CostFunction
    from collir.cost.programs.simulation import Simulation
    from collir.importing.models.imported import Imported
    from collir.targets.reports.pass_costs import PassCosts
    from collir.tools.hlo import ImportedHlo
    from collir.tools.search_output import Outcome

_HEIGHT = 720
"""The pixels of a page in a notebook."""

_MOST = 2**20
"""The most characters of a program that a notebook shows."""

_FUNCTION = re.compile(r"^(?:\w+ )*func (@.*?) \{$", re.MULTILINE | re.DOTALL)
"""The head of a function in ``.coll``."""


def framed(page: Callable[[], str], title: str) -> str | None:
    """Return a page in a frame; None if jinja2 is not installed."""
    from collir.ir.diagnostics import DiagnosticError
    from collir.targets.reports.page.rendered import check_installed

    try:
        check_installed()
    except DiagnosticError:
        return None
    return (
        f'<iframe srcdoc="{escape(page())}" title="{escape(title)}" width="100%" '
        f'height="{_HEIGHT}" style="border: 1px solid #888"></iframe>'
    )


def html_of(simulation: "Simulation") -> str | None:
    """Return the page of a simulation in a frame."""
    from collir.targets.reports.page.target import Shown, page

    return framed(lambda: page([Shown(simulation)], ""), repr(simulation))


def search_html(outcome: "Outcome") -> str | None:
    """Return the page of a search in a frame."""
    from collir.tools.search_page import html

    return framed(lambda: html(outcome), repr(outcome))


def module_html(module: "ModuleOp") -> str:
    """Return the functions of a module, with their types, and its text."""
    from collir.ir.diagnostics import DiagnosticError
    from collir.syntax.writer import write

    try:
        return program_html(write(module))
    except DiagnosticError:  # operations of other dialects
        return program_html(str(module))


def imported_html(imported: "Imported | ImportedHlo") -> str:
    """Return the functions of a program that was imported, and its text."""
    return program_html(imported.text)


def program_html(text: str) -> str:
    """Return the functions of a program, with their types, and its text."""
    heads = (re.sub(r"\s+", " ", head).replace(" (", "(", 1) for head in _FUNCTION.findall(text))
    items = "".join(f"<li><code>{escape(head)}</code></li>" for head in heads)
    return f"{f'<ul>{items}</ul>' if items else ''}{_preformatted(text)}"


def formulas_html(costs: "CostFormulas | CostFunction") -> str:
    """Return the report of formulas of costs."""
    from collir.cost.formulas.function import CostFunction
    from collir.targets.reports.formulas import report_lines

    formulas = costs.formulas if isinstance(costs, CostFunction) else costs
    return _preformatted("\n".join(report_lines(formulas, {})))


def pass_costs_html(costs: "PassCosts") -> str:
    """Return the tables of what passes save."""
    return _preformatted(costs.text)


def _preformatted(text: str) -> str:
    left_out = f"\n... {len(text) - _MOST:,} characters more" if len(text) > _MOST else ""
    style = "max-height: 40em; overflow: auto"
    return f'<pre tabindex="0" style="{style}">{escape(text[:_MOST] + left_out)}</pre>'


_SHOWN: Iterable[tuple[str, str, Callable[[Any], str | None]]] = (
    ("xdsl.dialects.builtin", "ModuleOp", module_html),
    ("collir.importing.models.imported", "Imported", imported_html),
    ("collir.tools.hlo", "ImportedHlo", imported_html),
    ("collir.cost.programs.simulation", "Simulation", html_of),
    ("collir.cost.formulas.costs", "CostFormulas", formulas_html),
    ("collir.cost.formulas.function", "CostFunction", formulas_html),
    ("collir.targets.reports.pass_costs", "PassCosts", pass_costs_html),
    ("collir.search.running.results", "Optimum", search_html),
    ("collir.search.running.results", "Decision", search_html),
    ("collir.search.running.results", "Enumeration", search_html),
)
"""The module and the name of each type that notebooks show, and the function that shows it."""


def register() -> None:
    """Let a notebook that runs now show results so."""
    ipython: Any = sys.modules["IPython"].get_ipython()
    if ipython is not None:
        formatter = ipython.display_formatter.formatters["text/html"]
        for module, name, function in _SHOWN:
            formatter.for_type_by_name(module, name, function)
