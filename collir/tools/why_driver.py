"""The collectives of a program: their costs, their sources, and changes that would remove them."""

import argparse
import json
import logging
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.network.group import CostError
from collir.cost.programs.accuracy import accuracy_lines
from collir.cost.programs.removals import RemovableCollective, collectives, time_without
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.auto import is_auto
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.targets.reports.page.target import Section, Shown, page
from collir.targets.reports.placements import placement_text
from collir.targets.reports.text import bytes_text, percent_text, ratio_text, seconds_text, table
from collir.tools.functions import keep_functions, reported
from collir.tools.hlo import import_hlo
from collir.tools.hlo_options import axes_of, text_of
from collir.tools.shell import UsageError, check_folders, write_whole

CHANGES = (
    "place{again=true limit=10}",
    "overlap",
    "fuse",
    "bucket",
    "decompose",
    "cse,fuse,bucket,overlap",
    "unshard,shard,cse,fuse,overlap",
)
"""The passes that are tried, each alone, and together."""

_MOST_LAYOUTS = 8
"""The most layouts of a change that a report lists."""

_LEAST = 1e-3
"""The part of the time of a program that a change gains at least."""


@dataclass(frozen=True)
class TriedPasses:
    """Passes that were tried.

    Attributes:
        seconds: those of the function then.
        exposed: the seconds that the collectives of each line make it longer; of other layouts,
            whose collectives are others, nothing.
        layouts: the arguments that lie in another way then, as ``%w: f32[64, 64@model]``, and the
            axes of the mesh if these do.
    """

    passes: str
    seconds: float
    exposed: Mapping[int, float]
    layouts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Why:
    """A collective.

    Attributes:
        exposed: the seconds that the function would save if this collective took none.
        change: the passes that reduce ``exposed`` most, if any, with the seconds left.
    """

    sent: RemovableCollective
    exposed: float
    source: str
    level: str
    change: tuple[str, float] | None


def run(options: argparse.Namespace) -> int:
    """Print the report; return the exit status."""
    if options.top < 1:
        raise UsageError("--top is a positive number")
    check_folders(options.html)
    file, text = text_of(options.file)
    sources: Mapping[str, str] = {}
    if text.lstrip().startswith("HloModule"):
        imported = import_hlo(text, file, mesh=axes_of(options.mesh), machine=options.machine)
        text, sources = imported.text, imported.sources
        for problem in imported.problems:
            print(f"{file}: warning: {problem}", file=sys.stderr)
    elif options.mesh or options.machine:
        raise UsageError("--mesh and --machine go with a program of XLA")
    module = collir.parse(text, file)
    names = [options.function] if options.function else []
    keep_functions(module, names)
    passes = options.passes or "propagate" * any(map(is_auto, functions_of(module)))
    if passes:
        collir.run_passes(module, passes)
    reports = reported(module, names)
    simulations = [x for x in collir.simulate(module) if x.name in reports]
    if not simulations:
        raise DiagnosticError(Diagnostic(f"{file} has no functions"))
    explained = [(x, _whys(x, module, sources, options.top)) for x in simulations]
    if options.html:
        shown = [Shown(x, sections=[_section(x, *rest)]) for x, rest in explained]
        write_whole(options.html, page(shown, file, text))
    if options.json:
        print(json.dumps([_as_json(x, *rest) for x, rest in explained], indent=2))
        return 0
    for simulation, (whys, changes, count) in explained:
        print("\n".join(_report(simulation, whys, changes, count)))
    return 0


def _whys(
    simulation: Simulation, module: ModuleOp, sources: Mapping[str, str], top: int
) -> tuple[list[Why], list[TriedPasses], int]:
    """Return the collectives of a function, those that it waits for longest first; the changes that
    help; and the number of all of its collectives."""
    sent = sorted(collectives(simulation), key=lambda x: -x.alone)
    exposed = {x.path: simulation.time - time_without(simulation, x.path) for x in sent[: 2 * top]}
    changes = [*_changes(simulation, module)] if sent else []
    of_line: dict[int, float] = {}
    for x in sent:
        of_line[x.step.line] = of_line.get(x.step.line, 0.0) + exposed.get(x.path, 0.0)
    whys: list[Why] = []
    for x in sent[: 2 * top]:
        seconds = exposed[x.path]
        best = _best(x, seconds, of_line[x.step.line], changes)
        whys.append(Why(x, seconds, _source(x, sources), x.step.crosses(simulation.mesh), best))
    return sorted(whys, key=lambda x: (-x.exposed, -x.sent.alone))[:top], changes, len(sent)


def _source(x: RemovableCollective, sources: Mapping[str, str]) -> str:
    """Return the line that a collective comes from: of the user's Python, if that is known."""
    return sources.get(x.step.result, f"line {x.step.line}" if x.step.line else "")


def _changes(simulation: Simulation, module: ModuleOp) -> Iterator[TriedPasses]:
    """Yield the passes that make a function faster, the best first."""
    changes: list[TriedPasses] = []
    [function] = [f for f in functions_of(module) if f.sym_name.data == simulation.name]
    takes_parts = any(dist_type(x).partial for x in function.body.block.args)
    for passes in CHANGES:
        if takes_parts and "unshard" in passes:
            continue  # which would take whole sums
        changed = module.clone()
        try:
            with _quiet():
                collir.run_passes(changed, passes)
            [made] = [x for x in collir.simulate(changed) if x.name == simulation.name]
        except (DiagnosticError, CostError, ValueError):
            continue
        if made.time < simulation.time * (1 - _LEAST):
            exposed: dict[int, float] = {}
            for x in collectives(made) if "unshard" not in passes else ():
                own = made.time - time_without(made, x.path)
                exposed[x.step.line] = exposed.get(x.step.line, 0.0) + own
            layouts = tuple(_layouts(function, changed))
            changes.append(TriedPasses(passes, made.time, exposed, layouts))
    yield from sorted(changes, key=lambda x: x.seconds)


def _layouts(function: FuncOp, changed: ModuleOp) -> Iterator[str]:
    """Yield how the axes of the mesh and the arguments of a function lie, where that is another
    way than before."""
    name = function.sym_name.data
    [changed_function] = [f for f in functions_of(changed) if f.sym_name.data == name]
    before, after = mesh_of(function), mesh_of(changed_function)
    if placement_text(before) != placement_text(after):
        yield f"mesh @{after.name} {{ {placement_text(after)} }}"
    for x, y in zip(function.body.block.args, changed_function.body.block.args, strict=True):
        own = dist_type(y).text(after)
        if own != dist_type(x).text(before):
            yield f"%{y.name_hint}: {own}"


@contextmanager
def _quiet() -> Generator[None]:
    """Keep remarks of tried passes from being shown."""
    logger = logging.getLogger("collir")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _best(
    x: RemovableCollective, exposed: float, of_line: float, changes: Sequence[TriedPasses]
) -> tuple[str, float] | None:
    """Return the passes behind which a function waits least for a collective, and how long.

    Args:
        of_line: the seconds that all collectives of its line make the function longer.
    """
    left = [
        (c.exposed.get(x.step.line, 0.0) / of_line * exposed, len(c.passes), c.passes)
        for c in changes
        if exposed > 0 and "unshard" not in c.passes
    ]
    least = min(left, default=None)
    if least is None or least[0] > exposed * (1 - _LEAST):
        return None
    return least[2], max(0.0, least[0])


def _report(
    simulation: Simulation,
    whys: Sequence[Why],
    changes: Sequence[TriedPasses],
    count: int,
) -> Iterator[str]:
    paths = [x.path for x in collectives(simulation)]
    waited = simulation.time - time_without(simulation, *paths)
    head = f"@{simulation.name}: {seconds_text(simulation.time)}"
    if not count:
        yield f"{head}, and it sends nothing"
        return
    share = percent_text(min(waited, simulation.time), simulation.time)
    yield f"{head}, of which it waits {seconds_text(waited)} ({share}) for collectives"
    mesh = simulation.mesh
    columns, rows = _cells(simulation, whys)
    yield from (f"  {line}" for line in table(columns, rows, 4))
    if count > len(whys):
        yield f"  {count - len(whys)} more are left out (--top)"
    yield from _change_lines(simulation, changes)
    yield from accuracy_lines(mesh.machine, [x.sent.step.kind for x in whys])


def _cells(simulation: Simulation, whys: Sequence[Why]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the rows of a table of collectives; how often each runs, if one runs
    several times."""
    mesh, in_loops = simulation.mesh, any(x.sent.times > 1 for x in whys)
    columns = ["collective", "from", "over", "crosses", "bytes", *["times"] * in_loops, "alone",
               "exposed", "less with", "left"]  # fmt: skip
    rows: list[list[str]] = []
    for x in whys:
        step = x.sent.step
        change, left = x.change or ("", 0.0)
        rows.append([
            f"%{step.result} = {step.kind}", x.source, step.over(mesh), x.level,
            bytes_text(step.size), *[str(x.sent.times)] * in_loops, seconds_text(x.sent.alone),
            seconds_text(x.exposed), f"-p {change}" if change else "",
            seconds_text(left) if change else "",
        ])  # fmt: skip
    return columns, rows


def _section(
    simulation: Simulation, whys: Sequence[Why], changes: Sequence[TriedPasses], count: int
) -> Section:
    """Return what a page shows of the collectives of a function."""
    columns, rows = _cells(simulation, whys)
    more = count - len(whys)
    left_out = [f"{more} more are left out (--top)"] if more else []
    lines = [*left_out, *(line.strip() for line in _change_lines(simulation, changes))]
    return Section("Collectives, and what would remove them", columns, rows, lines)


def _change_lines(simulation: Simulation, changes: Sequence[TriedPasses]) -> Iterator[str]:
    """Yield the changes that make a function faster."""
    if not changes:
        yield "no pass that was tried makes it faster"
    for change in changes:
        ratio = ratio_text(simulation.time, change.seconds)
        faster = "" if ratio == "-" else f" ({ratio} as fast)"
        yield f"  -p {change.passes}: {seconds_text(change.seconds)}{faster}"
        shown = change.layouts[:_MOST_LAYOUTS]
        yield from (f"    {layout}" for layout in shown)
        if more := len(change.layouts) - len(shown):
            yield f"    and {more} more (--json has all)"


def _as_json(
    simulation: Simulation, whys: Sequence[Why], changes: Sequence[TriedPasses], count: int
) -> dict[str, Any]:
    return {
        "function": simulation.name,
        "seconds": simulation.time,
        "collectives": count,
        "listed": [
            {
                "result": x.sent.step.result,
                "collective": x.sent.step.kind,
                "from": x.source,
                "over": x.sent.step.over(simulation.mesh),
                "crosses": x.level,
                "bytes": x.sent.step.size,
                "times": x.sent.times,
                "seconds_alone": x.sent.alone,
                "seconds_exposed": x.exposed,
                "less_with": x.change[0] if x.change else None,
                "seconds_left": x.change[1] if x.change else None,
            }
            for x in whys
        ],
        "changes": [
            {"passes": x.passes, "seconds": x.seconds, "layouts": x.layouts} for x in changes
        ],
    }
