"""The changes of a function by each pass: its cost, and the lines of its program."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.selection import copy_with_functions, erase_other_functions
from collir.syntax.writer import write
from collir.targets.reports.pass_costs import FunctionAt, change_text
from collir.targets.reports.text import bytes_text, seconds_text
from collir.transforms.as_run import as_run

_MOST_COMPARED = 4_000
"""The most lines of a program that are compared."""

_MOST_SHOWN = 300
"""The most lines of a comparison that a page shows."""

_CONTEXT = 2
"""The lines around those that differ."""


class Line(NamedTuple):
    """A line of a comparison: ``+``, ``-``, a space, or ``@`` for where it is."""

    sign: str
    text: str


@dataclass(frozen=True)
class FunctionAfterPass:
    """A function after a pass, or before the first pass.

    Attributes:
        done: the name of the pass.
        cells: its time, how much that changed, bytes through the outermost level, memory, and
            collectives; none if it has no cost.
        said: remarks in place of the cells, or beside them.
        lines: the shown lines that differ from the function before the pass.
        added, removed: the number of all lines that the pass added and removed.
    """

    done: str
    cells: Sequence[str]
    said: str
    lines: Sequence[Line] = ()
    added: int = 0
    removed: int = 0


@dataclass(frozen=True)
class Changes:
    """The changes of a function by passes.

    Attributes:
        level: the outermost level that has several children.
        rows: the function before the first pass, and after each pass that changed it.
        kept: the passes that changed nothing.
        before: its simulation before the first pass, if it has a cost then and is another now.
    """

    level: str
    rows: Sequence[FunctionAfterPass]
    kept: Sequence[str]
    before: Simulation | None

    @property
    def columns(self) -> Sequence[str]:
        """The titles of the cells of a row."""
        return "after", "time", "change", f"through {self.level}", "memory", "collectives"


@dataclass(frozen=True)
class _Stage:
    """A function after a pass: its program, and its simulation or why it has none."""

    done: str
    text: str
    simulation: Simulation | None
    problem: str


def changes_of(
    simulation: Simulation, stages: Sequence[tuple[str, ModuleOp]], model: CostModel
) -> Changes:
    """Return what passes did to a function.

    Args:
        simulation: that behind all passes.
        stages: the module before the first pass and after each, with the name of the pass.
    """
    first, *rest = _stages(simulation.name, stages, model)
    rows, kept, before = [_change(None, first)], list[str](), first
    for stage in rest:
        if stage.text and stage.text == before.text:
            kept.append(stage.done)
        else:
            rows.append(_change(before, stage))
        before = stage
    level = FunctionAt.of(simulation).level
    return Changes(level, rows, kept, first.simulation if len(rows) > 1 else None)


def _change(before: _Stage | None, stage: _Stage) -> FunctionAfterPass:
    """Return what a pass did.

    Args:
        before: the function before it; None if no pass has run.
    """
    lines = [*_differing(before.text, stage.text)] if before else []
    left = ""
    if len(lines) > _MOST_SHOWN:
        left = f"{len(lines) - _MOST_SHOWN} more lines are left out"
    elif before and not lines:
        left = "its lines are not compared: they are too many, or cannot be written in .coll"
    earlier = before.simulation.time if before and before.simulation else None
    cells = _cells(stage.simulation, earlier) if stage.simulation else ()
    count = Counter(line.sign for line in lines)
    said = "; ".join(filter(None, (stage.problem, left)))
    return FunctionAfterPass(stage.done, cells, said, lines[:_MOST_SHOWN], count["+"], count["-"])


def _stages(
    name: str, stages: Sequence[tuple[str, ModuleOp]], model: CostModel
) -> Iterator[_Stage]:
    """Yield a function after each pass; what did not change is not simulated again."""
    last: _Stage | None = None
    for done, module in stages:
        if name not in (function.sym_name.data for function in functions_of(module)):
            last = _Stage(done, "", None, f"there is no @{name} yet")
        elif (text := _text(name, module)) and last and last.text == text:
            last = _Stage(done, text, last.simulation, last.problem)
        else:
            last = _Stage(done, text, *_simulated(name, module, model))
        yield last


def _text(name: str, module: ModuleOp) -> str:
    """Return a function with all that it needs; nothing if it cannot be written."""
    try:
        return write(copy_with_functions(module, [name]))
    except DiagnosticError:
        return ""


def _simulated(name: str, module: ModuleOp, model: CostModel) -> tuple[Simulation | None, str]:
    try:
        run = as_run(module.clone())
        erase_other_functions(run, [name])
        [simulation] = [x for x in simulate(run, model) if x.name == name]
    except DiagnosticError as error:
        return None, f"no cost: {error.diagnostics[0].message}"
    return simulation, ""


def _cells(simulation: Simulation, earlier: float | None) -> Sequence[str]:
    figures = FunctionAt.of(simulation)
    change = "" if earlier is None else change_text(earlier, figures.time)
    sizes = bytes_text(figures.outermost), bytes_text(figures.peak)
    return seconds_text(figures.time), change, *sizes, str(figures.collectives)


def _differing(before: str, after: str) -> Iterator[Line]:
    """Yield the lines in which two programs differ, and a few around them."""
    texts = before.splitlines(), after.splitlines()
    if not all(texts) or max(map(len, texts)) > _MOST_COMPARED:
        return
    for number, line in enumerate(unified_diff(*texts, n=_CONTEXT, lineterm="")):
        if number > 1:  # behind the names of two files
            yield Line(line[0], line if line[0] == "@" else line[1:])
