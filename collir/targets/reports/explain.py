"""The time of a program in three sentences, where it goes, and what would make it faster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from shlex import quote
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.cost.network.group import CostError
from collir.cost.programs.accuracy import accuracy_of
from collir.cost.programs.critical import CriticalStep, TimeShare, critical_path, time_shares
from collir.cost.programs.kinds import has_kinds
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.cost.programs.whatif import BUFFER_FACTOR, Improvement, improvements, large_buffer_ratio
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.ir.progress import activity, passes_run
from collir.synthesis.options import TimedOptions
from collir.targets.reports.cost import title_of
from collir.targets.reports.memory import use_lines
from collir.targets.reports.simulate import resource_name
from collir.targets.reports.summary import sentences
from collir.targets.reports.text import (
    percent_text,
    ratio_text,
    seconds_text,
    table,
    table_rows,
    wrapped,
)
from collir.targets.reports.tried import LEAST, changes_by_passes, pass_text

LISTED = 10
"""The largest number of rows of a table; of a critical path, of each level of its loops."""

FEW = 3
"""The number of steps that are listed, the longest, where each takes next to nothing."""

_NOTHING = 0.005
"""The smallest share of the time that gets a line: a smaller share would print as 0%. In a path,
such steps that follow each other are summed up."""


@dataclass(frozen=True)
class ExplainTarget(TimedOptions, Target):
    """Each function in three sentences, where its time goes, and what would help.

    The sentences say how long it takes, what it waits for, and how much memory a device needs. What
    would help is simulated: twice the port or half the latency of a level; the cheapest programs
    for the collectives, alone (`decompose`) or several in a row (`fuse`); another placement
    (`place`, if all functions on the mesh name whole axes only). A change that a pass makes is
    followed by its command. The critical path and the uses of the memory come last.
    """

    name = "explain"

    limit: int = 10
    """Seconds for each search, for programs and for placements; 0: no limit."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        activity.set("simulates")
        simulations = simulate(module, self.cost_model())
        position = next(filter(None, map(Position.of, module.ops)), None)
        file = position.file if position else ""
        changes = changes_by_passes(module, simulations, self)
        activity.set("simulates better machines")
        blocks: list[list[str]] = []
        for simulation in simulations:
            target = pass_text("simulate", self)
            lines = explanation(simulation, changes[simulation.name], file, target)
            title = wrapped(title_of(simulation))
            summary = [f"  {line}" for x in sentences(simulation) for line in wrapped(x, 2)]
            blocks.append([*title, *(summary if simulation.time else ()), *lines[len(title) :]])
        output.write("\n".join("\n".join(lines) + "\n" for lines in blocks))
        output.writelines(f"{line}\n" for line in accuracy_of(simulations))


def explanation(
    simulation: Simulation, changes: Sequence[Improvement], file: str, target: str
) -> list[str]:
    """Return the lines of a function, without the sentences that sum it up.

    Args:
        changes: the times of the function after passes.
        file: the file of the function.
        target: the target that shows the time, for commands.
    """
    if not simulation.time:
        return [*wrapped(title_of(simulation)), "  nothing that takes time"]
    lines = [
        *_where(simulation),
        *_helpful(simulation, changes, file, target),
        *_critical(simulation),
        *_memory(simulation),
    ]
    return [*wrapped(title_of(simulation)), *(f"  {line}" for line in lines)]


_OF_KERNELS = {
    "operations": "operations of kernels",
    "memory": "bytes of kernels, in memory",
    "launch": "launches of kernels",
    "host": "waiting for the host",
}

_WHY = {"": "first", "operand": "needs", "stream": "its stream, behind", "order": "behind"}


def _critical(simulation: Simulation) -> list[str]:
    return ["critical path:", *table((), [*_link_rows(simulation, simulation.time)], left=1)]


def _link_rows(
    simulation: Simulation, total: float, times: int = 1, depth: int = 1
) -> Iterator[list[str]]:
    """Yield the rows of a critical path; that of an iteration stands below its loop.

    Args:
        total: the seconds of which the shares are.
        times: how often these steps run.
        depth: one more than the number of loops around them.
    """
    spans, indent = simulation.spans, "  " * depth
    took = {n: spans[n][1] - spans[n][0] for n in range(len(spans))}
    links = [link for link in critical_path(simulation) if took[link.number] > 0]
    for part in _parts(links, took, _NOTHING * total / times):
        link, seconds = part[0], sum(took[link.number] for link in part)
        step, before = simulation.steps[link.number], link.waited_for
        predecessor = "" if before is None else f" {simulation.steps[before].name}"
        yield [
            f"{indent}{_more(len(part)) if len(part) > 1 else _step_text(simulation, step)}",
            seconds_text(seconds),
            percent_text(times * seconds, total),
            "" if len(part) > 1 else f"{_WHY[link.why]}{predecessor}",
        ]
        if len(part) == 1 and step.loop and len(simulation.places) == 1:
            yield from _link_rows(step.loop.body, total, times * step.loop.times, depth + 1)


def _parts(
    links: Sequence[CriticalStep], took: Mapping[int, float], least: float
) -> list[Sequence[CriticalStep]]:
    """Return the rows of a path: listed steps, and neighbouring other steps summed up in one row.

    Steps between listed ones share a row there, or if there are too many such rows, one row at the
    end.

    Args:
        took: the seconds of each step.
        least: the seconds of a step that gets a row.
    """
    largest = sorted((link.number for link in links), key=lambda number: -took[number])
    listed = [number for number in largest[:LISTED] if took[number] >= least] or largest[:FEW]
    parts: list[Sequence[CriticalStep]] = []
    for is_listed, group in groupby(links, lambda link: link.number in listed):
        row = [*group]
        parts += [[link] for link in row] if is_listed else [row]
    if len(parts) <= LISTED:
        return parts
    del listed[LISTED - 1 :]
    alone: list[Sequence[CriticalStep]] = [[link] for link in links if link.number in listed]
    return [*alone, [link for link in links if link.number not in listed]]


def _more(count: int) -> str:
    return f"... and {count} more"


def _step_text(simulation: Simulation, step: SimulatedStep) -> str:
    text = f"{step.name} = {step.kind}"
    if step.at and has_kinds(simulation.mesh):
        text += f" at {step.at}"
    return (
        f"{text} over {step.over(simulation.mesh)} ({step.sent.algorithm})" if step.sent else text
    )


def _where(simulation: Simulation) -> list[str]:
    total = simulation.time
    rows = [
        (_cause(simulation, share), share.time)
        for share in time_shares(simulation)
        if share.time >= _NOTHING * total
    ]
    if len(rows) > LISTED:
        rest = rows[LISTED - 1 :]
        rows[LISTED - 1 :] = [(_more(len(rest)), sum(seconds for _, seconds in rest))]
    cells = [[f"  {cause}", seconds_text(x), percent_text(x, total)] for cause, x in rows]
    return ["where its time goes:", *table((), cells, left=1)]


def _cause(simulation: Simulation, share: TimeShare) -> str:
    resource = "" if share.resource is None else resource_name(simulation, share.resource)
    match share.cause:
        case "latency":
            if share.resource is None:
                return "start of collectives"
            level = simulation.mesh.machine.levels[share.resource.level]
            above = f"{level.parents.level.name} or " if level.parents else ""
            return f"latency of {above}{level.name}"
        case "transfer":
            return f"bytes through the {resource}"
        case "shared":
            return f"other steps on the {resource}"
        case "iterations":
            return "iterations like those before them"
        case "local":
            return "steps that send nothing"
        case "operations" | "memory" | "launch" | "host":
            return _OF_KERNELS[share.cause]
        case _:
            return "reducing"


def _helpful(
    simulation: Simulation, pass_changes: Sequence[Improvement], file: str, target: str
) -> list[str]:
    try:
        changes = [*improvements(simulation), *pass_changes]
        byte = large_buffer_ratio(simulation)
    except CostError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error
    changes = [change for change in changes if simulation.time > change.time * LEAST]
    changes.sort(key=lambda change: change.time)
    cells = [
        [f"  {change.what}", seconds_text(change.time), ratio_text(simulation.time, change.time)]
        for change in changes
    ]
    lines: list[str] = []
    for change, row in zip(changes, table_rows((), cells, left=1), strict=True):
        lines += [
            *row,
            *([f"    {_command(change.passes, file, target)}"] if change.passes else []),
        ]
    larger = (
        f"  buffers {BUFFER_FACTOR:.0f} times as large: a byte takes {100 * byte:.0f}% of the time"
    )
    return ["what would help:", *lines, larger]


def _memory(simulation: Simulation) -> list[str]:
    lines = use_lines(simulation)
    return ["memory by use:", *lines] if lines else []


def _command(passes: str, file: str, target: str) -> str:
    """Return the command that runs further passes and then shows the time."""
    all_passes = ",".join(filter(None, (passes_run.get(), passes)))
    source = "-" if file == "<stdin>" else file
    return f"collopt {quote(source)} -p {quote(all_passes)} -t {quote(target)}"
