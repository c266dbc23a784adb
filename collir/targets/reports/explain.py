"""What bounds a program, where its time goes, and what would help."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from shlex import quote
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.cost.network.group import CostError
from collir.cost.programs.critical import Link, TimeShare, critical_path, time_shares
from collir.cost.programs.simulation import SimulatedStep, Simulation, simulate
from collir.cost.programs.whatif import LARGER, Change, improvements, per_byte
from collir.dialects.machine import MeshOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.ir.remarks import current_pass, passes_run
from collir.layout import Mesh
from collir.synthesis.placement.meshes import place
from collir.synthesis.placement.placements import best_placements, functions_on
from collir.synthesis.placement.unplacing import unplaced_copy
from collir.synthesis.programs.choices import TIE, SearchOptions
from collir.synthesis.programs.decomposing import decompose_by_search
from collir.synthesis.programs.fusion import fuse
from collir.targets.reports.cost import CostingTarget, title_of
from collir.targets.reports.placements import placement_text
from collir.targets.reports.simulate import memory_text, resource_name
from collir.targets.reports.text import percent_text, ratio_text, seconds_text, table

CHUNKS = 16
"""The most chunks that programs are tried in."""

LISTED = 20
"""The most steps of a critical path that are listed."""

_LEAST = 1.005
"""A gain that is worth a line."""

_NOTHING = 0.005
"""A part of the time that is not: it is shown as 0%."""


@dataclass(frozen=True)
class ExplainTarget(CostingTarget):
    """What bounds each function, where its time goes, and what would help, the most first.

    Each thing that may help is simulated: twice the port or half the latency of a level, the
    cheapest programs for the collectives (as `decompose` finds them) or for several in a row (as
    `fuse` does), another placement of the mesh with its cheapest programs (as `place` finds it,
    where all functions on it name whole axes only), and what a byte takes in larger buffers. Below
    what passes do is the command that does it; what gains next to nothing is left out.
    """

    name = "explain"

    limit: int = 10
    """Seconds for each search, for programs and for placements; 0: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit < 0:
            raise ValueError("limit is 0 (none) or more seconds")

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        current_pass("simulates")
        found = simulate(module, self.cost_model())
        where = next(filter(None, map(Position.of, module.ops)), None)
        file = where.file if where else ""
        whole, in_chunks = (self._programs(module.clone(), chunks) for chunks in (1, CHUNKS))
        current_pass("looks for fewer steps")
        together = self._fused(module.clone())
        elsewhere = {
            op.sym_name.data: self._elsewhere(module, op.value(), whole)
            for op in module.ops
            if isinstance(op, MeshOp) and op.value().placed
        }
        current_pass("simulates better machines")
        blocks: list[list[str]] = []
        for one in found:
            decompose = self._pass("decompose")
            others = [Change("its cheapest program", whole[one.name], decompose)]
            if together[one.name] < whole[one.name] * (1 - TIE):
                fuse = self._pass("fuse")
                others.append(Change("its steps in a row as fewer", together[one.name], fuse))
            if in_chunks[one.name] * _LEAST < whole[one.name]:
                passes = self._pass("decompose", f"chunks={CHUNKS}")
                others.append(Change("its cheapest in chunks", in_chunks[one.name], passes))
            if (moved := elsewhere.get(one.mesh.name)) is not None:
                passes = f"{self._pass('place', 'again=true')},{decompose}"
                others.append(Change(placement_text(moved[0]), moved[1][one.name], passes))
            blocks.append(explanation(one, others, file, self._pass("simulate")))
        output.write("\n".join("\n".join(lines) + "\n" for lines in blocks))

    def _pass(self, name: str, *options: str) -> str:
        """A pass or target as it is written, with the costs that are asked for here."""
        given = [
            f"{one.name}={getattr(self, one.name)}"
            for one in fields(CostingTarget)
            if getattr(self, one.name) != one.default
        ]
        braces = " ".join((*given, *options))
        return f"{name}{{{braces}}}" if braces else name

    def _programs(self, module: ModuleOp, chunks: int) -> dict[str, float]:
        """Seconds of every function with the cheapest programs for its collectives, which take
        their place."""
        seconds = float(self.limit) or None
        decompose_by_search(
            module, SearchOptions(self.cost_model(), seconds=seconds, chunks=chunks)
        )
        return self._times(module)

    def _fused(self, module: ModuleOp) -> dict[str, float]:
        """The same, where steps in a row become others."""
        fuse(module, SearchOptions(self.cost_model(), seconds=float(self.limit) or None))
        return self._times(module)

    def _times(self, module: ModuleOp) -> dict[str, float]:
        return {one.name: one.time for one in simulate(module, self.cost_model())}

    def _elsewhere(
        self, module: ModuleOp, mesh: Mesh, here: Mapping[str, float]
    ) -> tuple[Mesh, Mapping[str, float]] | None:
        """The best placement of a mesh, with the seconds of all functions; None if it is no better
        than what they take ``here`` with their cheapest programs."""
        copied = unplaced_copy(module, mesh)
        if copied is None:
            return None
        copy, op = copied
        found = best_placements(copy, op, self.cost_model(), 1, float(self.limit) or None).found
        if not found or found[0].mesh.sub_axes == mesh.sub_axes:
            return None
        place(op, found[0].mesh)
        there = self._programs(copy, 1)
        names = [one.sym_name.data for one in functions_on(module, mesh.name)]
        better = sum(here[name] for name in names) > _LEAST * sum(there[name] for name in names)
        return (found[0].mesh, there) if better else None


def explanation(found: Simulation, others: Sequence[Change], file: str, target: str) -> list[str]:
    """The lines of a function.

    Args:
        others: what it takes after passes.
        file: where it stands.
        target: what shows how long it takes.
    """
    if not found.time:
        return [title_of(found), "  nothing that takes time"]
    return [
        title_of(found),
        *(f"  {line}" for line in _critical(found)),
        *(f"  {line}" for line in _where(found)),
        *(f"  {line}" for line in _helpful(found, others, file, target)),
        f"  {memory_text(found)}",
    ]


_WHY = {"": "first", "operand": "needs", "stream": "its stream, behind", "order": "behind"}


def _critical(found: Simulation) -> list[str]:
    spans = found.spans
    links = [one for one in critical_path(found) if spans[one.number][1] > spans[one.number][0]]
    more = len(links) - LISTED
    return [
        "critical path:",
        *_rows([_link_row(found, link) for link in links[:LISTED]]),
        *([f"  ... and {more} more"] if more > 0 else []),
    ]


def _link_row(found: Simulation, link: Link) -> list[str]:
    start, end = found.spans[link.number]
    before = "" if link.waited_for is None else f" %{found.steps[link.waited_for].result}"
    return [
        f"  {_step_text(found, found.steps[link.number])}",
        seconds_text(end - start),
        percent_text(end - start, found.time),
        f"{_WHY[link.why]}{before}",
    ]


def _step_text(found: Simulation, step: SimulatedStep) -> str:
    text = f"%{step.result} = {step.kind}"
    return f"{text} over {step.over(found.mesh)} ({step.sent.algorithm})" if step.sent else text


def _where(found: Simulation) -> list[str]:
    rows = [
        [f"  {_cause(found, one)}", seconds_text(one.time), percent_text(one.time, found.time)]
        for one in time_shares(found)
        if one.time >= _NOTHING * found.time
    ]
    return ["where its time goes:", *_rows(rows)]


def _cause(found: Simulation, one: TimeShare) -> str:
    where = "" if one.resource is None else resource_name(found, one.resource)
    match one.cause:
        case "latency":
            level = "" if one.resource is None else found.mesh.machine.levels[one.resource[0]].name
            return f"latency of {level}" if level else "latency"
        case "transfer":
            return f"bytes through the {where}"
        case "shared":
            return f"other steps on the {where}"
        case "local":
            return "steps that send nothing"
        case _:
            return "reducing"


def _helpful(found: Simulation, others: Sequence[Change], file: str, target: str) -> list[str]:
    try:
        changes = [*improvements(found), *others]
        byte = per_byte(found)
    except CostError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error
    changes = [one for one in changes if found.time > one.time * _LEAST]
    changes.sort(key=lambda one: one.time)
    rows = _rows(
        [
            [f"  {one.what}", seconds_text(one.time), ratio_text(found.time, one.time)]
            for one in changes
        ]
    )
    lines: list[str] = []
    for one, row in zip(changes, rows, strict=True):
        lines += [row, *([f"    {_command(one.passes, file, target)}"] if one.passes else [])]
    larger = f"  buffers {LARGER:.0f} times as large: a byte takes {100 * byte:.0f}% of the time"
    return ["what would help:", *lines, larger]


def _command(passes: str, file: str, target: str) -> str:
    """What runs passes behind those that have been run, and shows how long it takes then."""
    every = ",".join(filter(None, (passes_run.get(), passes)))
    return (
        f"collopt {quote('-' if file == '<stdin>' else file)} -p {quote(every)} -t {quote(target)}"
    )


def _rows(rows: Sequence[Sequence[str]]) -> list[str]:
    return table(rows[0], rows[1:], left=1) if rows else []
