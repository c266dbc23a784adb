"""What bounds a program, where its time goes, and what would help."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.cost.critical import Link, Spent, critical_path, spent
from collir.cost.group import CostError
from collir.cost.simulation import Simulation, Step, simulate
from collir.cost.whatif import LARGER, Change, improvements, per_byte
from collir.dialects.machine import MeshOp
from collir.layout import Mesh
from collir.syntax.diagnostics import Diagnostic, DiagnosticError
from collir.synthesis.fusion import TIE, fused
from collir.synthesis.meshes import place
from collir.synthesis.placements import best_placements, functions_on
from collir.synthesis.strategies import Wanted, synthesised
from collir.synthesis.unplacing import unplaced_copy
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


@dataclass(frozen=True)
class ExplainTarget(CostingTarget):
    """What bounds each function, where its time goes, and what would help, the most first.

    Each thing that may help is simulated: twice the port or half the latency of a level, the
    cheapest programs for the collectives (as `decompose` finds them) or for several in a row (as
    `fuse` does), another placement of the mesh with its cheapest programs (as `place` finds it,
    where all functions on it name whole axes only), and what a byte takes in larger buffers.
    """

    name = "explain"

    limit: int = 10
    """Seconds for each search, for programs and for placements; 0: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit < 0:
            raise ValueError("limit is 0 (none) or more seconds")

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = simulate(module, self.cost_model())
        whole, in_chunks = (self._programs(module.clone(), chunks) for chunks in (1, CHUNKS))
        together = self._fused(module.clone())
        elsewhere = {
            op.sym_name.data: self._elsewhere(module, op.value(), whole)
            for op in module.ops
            if isinstance(op, MeshOp) and op.value().placed
        }
        blocks: list[list[str]] = []
        for one in found:
            others = [Change("its cheapest program (decompose)", whole[one.name])]
            if together[one.name] < whole[one.name] * (1 - TIE):
                others.append(Change("its steps in a row as fewer (fuse)", together[one.name]))
            if in_chunks[one.name] < whole[one.name]:
                what = f"its cheapest in chunks (decompose{{chunks={CHUNKS}}})"
                others.append(Change(what, in_chunks[one.name]))
            moved = elsewhere.get(one.mesh.name)
            there = moved and Change(f"{placement_text(moved[0])} (place)", moved[1][one.name])
            blocks.append(explanation(one, others, there))
        output.write("\n".join("\n".join(lines) + "\n" for lines in blocks))

    def _programs(self, module: ModuleOp, chunks: int) -> dict[str, float]:
        """Seconds of every function with the cheapest programs for its collectives, which take
        their place."""
        seconds = float(self.limit) or None
        synthesised(module, Wanted(self.cost_model(), seconds=seconds, chunks=chunks))
        return self._times(module)

    def _fused(self, module: ModuleOp) -> dict[str, float]:
        """The same, where steps in a row become others."""
        fused(module, Wanted(self.cost_model(), seconds=float(self.limit) or None))
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


def explanation(
    found: Simulation, others: Sequence[Change] = (), elsewhere: Change | None = None
) -> list[str]:
    """The lines of a function.

    Args:
        others: what other programs for it take.
        elsewhere: what it takes on the best placement for all functions, which may be more.
    """
    if not found.time:
        return [title_of(found), "  nothing that takes time"]
    return [
        title_of(found),
        *(f"  {line}" for line in _critical(found)),
        *(f"  {line}" for line in _where(found)),
        *(f"  {line}" for line in _helpful(found, others, elsewhere)),
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


def _step_text(found: Simulation, step: Step) -> str:
    text = f"%{step.result} = {step.kind}"
    return f"{text} over {step.over(found.mesh)} ({step.sent.algorithm})" if step.sent else text


def _where(found: Simulation) -> list[str]:
    rows = [
        [f"  {_cause(found, one)}", seconds_text(one.time), percent_text(one.time, found.time)]
        for one in spent(found)
    ]
    return ["where its time goes:", *_rows(rows)]


def _cause(found: Simulation, one: Spent) -> str:
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


def _helpful(found: Simulation, others: Sequence[Change], elsewhere: Change | None) -> list[str]:
    try:
        changes = [*improvements(found), *others]
        byte = per_byte(found)
    except CostError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error
    changes = [one for one in changes if found.time > one.time * _LEAST]
    changes += [elsewhere] if elsewhere else []
    rows = [
        [f"  {one.what}", seconds_text(one.time), ratio_text(found.time, one.time)]
        for one in sorted(changes, key=lambda one: one.time)
    ]
    larger = f"  buffers {LARGER:.0f} times as large: a byte takes {100 * byte:.0f}% of the time"
    return ["what would help:", *_rows(rows), larger]


def _rows(rows: Sequence[Sequence[str]]) -> list[str]:
    return table(rows[0], rows[1:], left=1) if rows else []
