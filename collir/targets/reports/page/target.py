"""Simulations as one page of HTML that a team can look at: no network, no server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

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

    The page has a summary of each function; what each pass changed; the machine with its axes and
    busy links; a timeline, beside that before the passes; the memory of a device over time; a table
    of all steps that leads to the lines of the program; and what would help. It needs no network,
    and its tables no script.
    """

    name = "html"

    limit: int = 3
    """Seconds for each search for what would help, for programs and for placements; 0: no limit."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        simulations = simulate(module, self.cost_model())
        position = next(filter(None, map(Position.of, module.ops)), None)
        file = position.file if position else ""
        stages, model = history.get(), self.cost_model()
        helpful = changes_by_passes(module, simulations, self)
        command = pass_text("simulate", self)
        functions = [
            Shown(
                x,
                changes=changes_of(x, stages, model) if stages else None,
                explained=explanation(x, helpful[x.name], file, command),
            )
            for x in simulations
        ]
        output.write(page(functions, file))


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


@dataclass(frozen=True)
class Shown:
    """A function that a page shows.

    Attributes:
        sentences: what is said first; by default its summary.
        sections: tables that stand below them.
        changes: what passes did to it.
        explained: the lines that explain it; by default without what passes would gain.
        beside: another timeline, on the same scale, with its title and that of the function's.
    """

    simulation: Simulation
    sentences: Sequence[str] = ()
    sections: Sequence[Section] = ()
    changes: Changes | None = None
    explained: Sequence[str] = ()
    beside: tuple[Mapping[str, Any], str, str] | None = None

    def data(self) -> dict[str, Any]:
        """Return what the script of the page shows of it."""
        data = function_data(self.simulation)
        if self.sentences:
            data["sentences"] = [*self.sentences]
        compared, *titles = self.beside or (None, "", "Timeline")
        if self.changes and self.changes.before and not compared:
            compared = timeline_data(self.changes.before, _MOST_BEFORE)
            titles = ["Timeline before the passes", "Timeline behind the passes"]
        return {**data, "beside": compared, "titles": titles}


def page(functions: Sequence[Shown], file: str, source: str | None = None) -> str:
    """Return the page of functions.

    Args:
        file: the file of the program.
        source: the text of the program, by default that of the file, if it can be read.

    Raises:
        DiagnosticError: jinja2 is not installed, or there is no function.
    """
    if not functions:
        raise DiagnosticError(Diagnostic("there is no function to show"))
    simulations = [x.simulation for x in functions]
    with drawn_on(None):
        explained = [
            x.explained or explanation(x.simulation, [], file, "simulate") for x in functions
        ]
        shown = [x.data() for x in functions]
    data = {
        "file": file, "passes": passes_run.get() or "", "functions": shown,
        "source": _source(file) if source is None else source.splitlines(),
        "accuracy": [*accuracy_of(simulations)], "columns": StepRow._fields,
    }  # fmt: skip
    return rendered(
        "page",
        data,
        rows=[rows_of(x["steps"], x["time"], _MOST_ROWS) for x in shown],
        most=_MOST_ROWS,
        sections=[x.sections for x in functions],
        drawings=[*map(drawings, simulations)],
        changes=[x.changes for x in functions],
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
