"""Simulations as one page of HTML that a team can look at: no network, no server."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.programs.accuracy import accuracy_of
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.ir.progress import history, passes_run
from collir.synthesis.options import TimedOptions
from collir.targets.reports.explain import explanation
from collir.targets.reports.page.changes import Changes, changes_of
from collir.targets.reports.page.data import StepRow, function_data, rows_of, timeline_data
from collir.targets.reports.page.rendered import rendered
from collir.targets.reports.page.topology import drawings
from collir.targets.reports.terminal import drawn_on
from collir.targets.reports.tried import changes_by_passes, pass_text

_MOST_ROWS = 200
"""The rows of a table that stand in the page without a script."""

_MOST_BEFORE = 2_000
"""The most steps that are drawn of a function before the passes: the longest ones."""

_MOST_SOURCE = 2**20
"""The most bytes of a source file that a page shows."""


@dataclass(frozen=True)
class HtmlTarget(TimedOptions, Target):
    """A report as one page of HTML, for people (needs jinja2: `pip install 'collir[html]'`).

    The page has a summary of each function; what each pass changed, if some ran; pictures of the
    levels of the machine, with the axes on them and how busy their links are; a timeline with its
    dependencies, where the iterations of loops open, and that before the passes on the same scale;
    the memory of a device over time; all steps as a table that sorts, is searched, and leads to the
    lines of the program; and what would help. It needs no network, and its tables no script.
    """

    name = "html"

    limit: int = 3
    """Seconds for each search for what would help, for programs and for placements; 0: no limit."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        simulations = simulate(module, self.cost_model())
        position = next(filter(None, map(Position.of, module.ops)), None)
        file = position.file if position else ""
        stages = history.get()
        changes = [changes_of(x, stages, self.cost_model()) for x in simulations if stages]
        helpful = changes_by_passes(module, simulations, self)
        command = pass_text("simulate", self)
        explained = [explanation(x, helpful[x.name], file, command) for x in simulations]
        output.write(page(simulations, file, changes=changes, explained=explained))


@dataclass(frozen=True)
class Section:
    """A table of a function that a page shows below its summary.

    Attributes:
        lines: what is said below it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[str] = ()


def page(
    simulations: Sequence[Simulation],
    file: str,
    sections: Sequence[Section] = (),
    source: str | None = None,
    changes: Sequence[Changes] = (),
    explained: Sequence[Sequence[str]] = (),
) -> str:
    """Return the page of simulations.

    Args:
        file: the file of the program.
        sections: one for each simulation, or none.
        source: the text of the program, by default that of the file, if it can be read.
        changes: what passes did to each function, or none.
        explained: the lines that explain each function; by default without what passes would gain.

    Raises:
        DiagnosticError: jinja2 is not installed, or there is no function.
    """
    if not simulations:
        raise DiagnosticError(Diagnostic("there is no function to show"))
    with drawn_on(None):
        explained = explained or [explanation(x, [], file, "simulate") for x in simulations]
        functions = [*map(function_data, simulations)]
    data = {
        "file": file, "passes": passes_run.get() or "", "functions": functions,
        "source": _source(file) if source is None else source.splitlines(),
        "accuracy": [*accuracy_of(simulations)], "columns": StepRow._fields,
    }  # fmt: skip
    for function, change in zip_longest(functions, changes):
        before = change and change.before
        function["before"] = timeline_data(before, _MOST_BEFORE) if before else None
    rows = [rows_of(x["steps"], x["time"], _MOST_ROWS) for x in functions]
    return rendered(
        "page",
        data,
        rows=rows,
        most=_MOST_ROWS,
        sections=[*sections],
        drawings=[drawings(x) for x in simulations],
        changes=[*changes],
        explained=explained,
    )


def _source(file: str) -> list[str]:
    """Return the lines of a file; none if it cannot be read, or is too long to show."""
    path = Path(file)
    try:
        if not file or not path.is_file() or path.stat().st_size > _MOST_SOURCE:
            return []
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
