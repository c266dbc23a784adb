"""The work of ``collir synthesize``: make trees, choose among them, and write them once proven."""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from collir.algorithms.checking import check
from collir.algorithms.msccl_xml import text_of
from collir.dialects.machine import MachineOp
from collir.importing.algorithms.msccl_xml import read_msccl_xml
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, Sources
from collir.machine import Level
from collir.syntax.machines import shipped
from collir.syntax.writer import write
from collir.synthesis.trees.declared import declared_text, pieces_for, program_using
from collir.synthesis.trees.graph import (
    CapacityGraph,
    NoTreesError,
    graph_of_level,
    graph_of_machine,
)
from collir.synthesis.trees.program import program_of_trees
from collir.synthesis.trees.schedules import MOST_TREES, TreeProblem, TreeSchedule
from collir.targets.reports.sizes import bytes_of
from collir.targets.reports.text import bytes_text, rate_text, seconds_text, table
from collir.tools.api import parse
from collir.tools.measured import machine_named
from collir.tools.shell import UsageError, check_folders, write_whole

MOST_LINKS = 4096
"""The most links of trees that a .coll file has a send for."""

MOST_RANKS = 128
"""The most ranks that trees are made for, which may take minutes."""

FEWER = (8, 4, 3, 2, 1)
"""Numbers of trees that are tried where a runtime takes no more."""


def run(options: argparse.Namespace) -> int:
    """Print the report, and write the algorithm; return the exit status."""
    if options.trees is not None and not 1 <= options.trees <= MOST_TREES:
        raise UsageError(f"--trees is from 1 to {MOST_TREES}")
    try:
        size = bytes_of(options.size)
    except ValueError as error:
        raise UsageError(f"--size: {error}") from error
    check_folders(options.output)
    op = _machine(options)
    problem = _problem(options, op)
    schedules = _schedules(problem, options.trees)
    chosen = min(schedules, key=lambda schedule: schedule.seconds(size))
    is_coll = str(options.output or "").endswith(".coll")
    text = (
        _declared(problem, chosen, op, size, options)
        if is_coll
        else _proven(problem, chosen, options)
    )
    if options.output:
        write_whole(options.output, text)
    where = f"@{op.sym_name.data}{f', level {options.level}' if options.level else ''}"
    if options.json:
        print(json.dumps(_as_json(problem, schedules, chosen, size, where), indent=2))
    else:
        levels = [x for x in op.value().levels if options.level in (None, x.name)]
        print("\n".join(_report(problem, schedules, chosen, size, where, levels, options)))
    return 0


# --- what is asked for ---------------------------------------------------------------------------


def _machine(options: argparse.Namespace) -> MachineOp:
    text: str = options.machine
    if text in shipped() and not Path(text).exists():
        text = f"@{text}"
    return machine_named(text, options.name, Sources(), "to synthesize trees for")


def _problem(options: argparse.Namespace, op: MachineOp) -> TreeProblem:
    """Return the collective on the graph of the machine or of its level."""
    try:
        graph = _graph(options, op)
    except NoTreesError as error:
        raise DiagnosticError(Diagnostic(str(error), Position.of(op))) from error
    if options.root is not None:
        if options.collective not in ("broadcast", "reduce"):
            raise UsageError(f"--root is for broadcast and reduce: {options.collective} has none")
        if not 0 <= options.root < graph.ranks:
            raise UsageError(f"--root is a rank from 0 to {graph.ranks - 1}, not {options.root}")
    return TreeProblem(graph, options.collective, options.root or 0)


def _graph(options: argparse.Namespace, op: MachineOp) -> CapacityGraph:
    machine = op.value()
    name: str | None = options.level
    levels = {level.name: level for level in machine.levels}
    if name is not None and name not in levels:
        raise UsageError(
            f"machine @{machine.name} has no level '{name}': its levels are {', '.join(levels)}"
        )
    ranks = machine.devices if name is None else levels[name].size
    if ranks > MOST_RANKS:
        inner = [level.name for level in machine.levels if level.size <= MOST_RANKS]
        hint = f": --level {inner[-1]} takes its children alone" if inner and not name else ""
        raise NoTreesError(f"{ranks} ranks are more than the {MOST_RANKS} that trees are made for"
                           f"{hint}")  # fmt: skip
    return graph_of_machine(machine) if name is None else graph_of_level(levels[name])


def _schedules(problem: TreeProblem, trees: int | None) -> list[TreeSchedule]:
    """Return the schedules to choose from, each once."""
    if trees is not None:
        return [problem.with_trees(trees)]
    fastest = problem.fastest()
    others = (
        problem.overlapped(),
        problem.spread(),
        problem.with_trees(1),
        problem.with_trees_of_each(1),
        problem.shortest(),
    )
    schedules = [fastest]
    for schedule in others:
        better = schedule and all(
            schedule.bandwidth > x.bandwidth * (1 + 1e-9)
            or schedule.latency < x.latency * (1 - 1e-9)
            for x in schedules
        )
        if schedule and better:
            schedules.append(schedule)
    return schedules


# --- the algorithm -------------------------------------------------------------------------------


def _text(problem: TreeProblem, schedule: TreeSchedule, runtime: str) -> str:
    collective, ranks = problem.collective, problem.graph.ranks
    name = f"trees_{collective}"
    program = program_of_trees(name, collective, ranks, schedule.trees, problem.root)
    return text_of(program, runtime)


def _proven(problem: TreeProblem, chosen: TreeSchedule, options: argparse.Namespace) -> str:
    """Return the algorithm in MSCCL's XML, proven as it stands there.

    Raises:
        DiagnosticError: it is to be written, and the runtime does not take it.
    """
    text = _text(problem, chosen, options.runtime)
    read = read_msccl_xml(text.encode())
    checked = check(read.program)
    assert checked.is_right, checked.problems
    if options.output and (reasons := read.refused[options.runtime]):
        trees = f"{chosen.count} trees of {problem.graph.ranks} ranks"
        message = f"{options.runtime} does not take the {trees}: {reasons[0]}"
        message += _way_out(problem, chosen, options)
        raise DiagnosticError(Diagnostic(message))
    return text


def _declared(
    problem: TreeProblem, chosen: TreeSchedule, op: MachineOp, size: int,
    options: argparse.Namespace,
) -> str:  # fmt: skip
    """Return a program that declares the algorithm and uses it, proven as it stands there."""
    if problem.root:
        raise UsageError("the root of an algorithm in .coll is rank 0: leave out --root")
    links = sum(len(tree.links) for tree in chosen.trees)
    if links > MOST_LINKS:
        raise UsageError(
            f"{chosen.count} trees have {links} links, and {MOST_LINKS} are written at most: "
            "--trees 1 has fewer"
        )
    name, ranks = f"trees_{problem.collective}", problem.graph.ranks
    pieces = pieces_for(chosen, size)
    algorithm = declared_text(name, problem.collective, chosen.trees, pieces)
    machine = write(ModuleOp([op.clone()]))
    levels = [level for level in op.value().levels if options.level in (None, level.name)]
    others = [level for level in op.value().levels if level not in levels]
    axes = [f"rank = {' * '.join(f'{x.name}:{x.size}' for x in levels)}"]
    axes += [f"other_{x.name} = {x.name}:{x.size}" for x in others]
    mesh = f"mesh @all on @{op.sym_name.data} {{ {', '.join(axes)} }}\n"
    elements = -(-size // 4 // ranks) * ranks
    text = "\n".join([machine, mesh, algorithm, program_using(problem.collective, elements, name)])
    _ = parse(text, str(options.output))  # which proves it
    return text


def _way_out(problem: TreeProblem, chosen: TreeSchedule, options: argparse.Namespace) -> str:
    """Return what to do if the runtime does not take an algorithm, in words."""
    runtime: str = options.runtime
    other_runtime = "msccl" if runtime == "rccl" else "rccl"
    ways = [f"--runtime {other_runtime}"] * (not _refused(problem, chosen, other_runtime))
    most = max(
        sum(tree.count for tree in chosen.trees if tree.root == root) for root in problem.roots
    )
    for count in FEWER:
        if count < most and not _refused(problem, fewer := problem.with_trees(count), runtime):
            ways.append(f"--trees {count} ({100 * fewer.bandwidth / problem.bound:.1f}% of the "
                        "bound)")  # fmt: skip
            break
    return f"; {' or '.join(ways)} fits" if ways else ""


def _refused(problem: TreeProblem, schedule: TreeSchedule, runtime: str) -> list[str]:
    return read_msccl_xml(_text(problem, schedule, runtime).encode()).refused[runtime]


# --- the report ----------------------------------------------------------------------------------


def _share(problem: TreeProblem, schedule: TreeSchedule) -> float:
    """Return the part of the bound that a schedule reaches; 1 up to rounding."""
    share = schedule.bandwidth / problem.bound
    return 1.0 if share > 1 - 1e-9 else share


def _report(
    problem: TreeProblem, schedules: Sequence[TreeSchedule], chosen: TreeSchedule, size: int,
    where: str, levels: Sequence[Level], options: argparse.Namespace,
) -> Iterator[str]:  # fmt: skip
    root = f" from rank {problem.root}" if problem.collective == "broadcast" else ""
    root = f" to rank {problem.root}" if problem.collective == "reduce" else root
    yield f"{problem.collective}{root} of {problem.graph.ranks} ranks on {where}"
    bound = problem.bound
    yield (
        f"  bound: {rate_text(bound)} (busbw {rate_text(bound * problem.per_bus)}), "
        f"{seconds_text(size / bound)} for {bytes_text(size)}"
    )
    yield ""
    rows = [
        (
            schedule.name,
            _range_text(schedules, schedule),
            str(schedule.count),
            str(schedule.depth),
            rate_text(schedule.bandwidth),
            rate_text(schedule.bandwidth * problem.per_bus),
            _gap_text(1 - _share(problem, schedule)),
            seconds_text(schedule.latency),
            seconds_text(schedule.seconds(size)),
            "chosen" if schedule is chosen else "",
        )
        for schedule in schedules
    ]
    head = ("", "fastest", "trees", "depth", "algbw", "busbw", "gap", "latency", bytes_text(size),
            "")  # fmt: skip
    yield from (f"  {line}".rstrip() for line in table(head, rows, 2))
    yield ""
    yield f"  {_proof(problem, max(schedules, key=lambda x: x.bandwidth))}"
    yield f"  proven: the algorithm implements {problem.collective}, without races or deadlocks"
    yield from (f"  {note}" for note in _notes(problem, levels))
    if str(options.output or "").endswith(".coll"):
        pieces = pieces_for(chosen, size)
        yield f"  {options.output}: a program that uses it, with {pieces} pieces of each block"
    elif options.output:
        yield f"  {options.output}: the algorithm for {options.runtime}"


def _gap_text(gap: float) -> str:
    return f"{100 * gap:.1f}%" if gap else "0"


def _range_text(schedules: Sequence[TreeSchedule], schedule: TreeSchedule) -> str:
    """Return the sizes at which a schedule takes the least time."""
    low, high = 0.0, math.inf
    for rival in schedules:
        slope = 1 / rival.bandwidth - 1 / schedule.bandwidth
        ahead = schedule.latency - rival.latency
        if slope > 0:
            low = max(low, ahead / slope)
        elif slope < 0:
            high = min(high, ahead / slope)
        elif ahead > 0:
            return "never"
    if low >= high:
        return "never"
    if high == math.inf:
        return f"from {bytes_text(low)}" if low else "always"
    return f"{bytes_text(low)} to {bytes_text(high)}" if low else f"to {bytes_text(high)}"


def _proof(problem: TreeProblem, best: TreeSchedule) -> str:
    """Return what is known of the bandwidth of the best trees."""
    if _share(problem, best) == 1.0:
        return "optimal: no schedule has more bandwidth than these trees, as they reach the bound"
    gap = _gap_text(1 - _share(problem, best))
    if problem.collective == "all_reduce":
        return f"not proven optimal: they are {gap} below a bound that may not be reachable"
    return f"the gap is {gap}: other numbers of trees may come closer"


def _notes(problem: TreeProblem, levels: Sequence[Level]) -> Iterator[str]:
    """Yield what of a machine the bound and the trees leave out."""
    if any(below > 1 for below in problem.graph.below):
        yield "a port that devices share counts as equal parts, one for each of them"
    for level in levels:
        if level.taper > 1:
            yield f"the taper of level '{level.name}' counts as ports of 1/{level.taper:g}"
        if level.nvls:
            yield f"switches of level '{level.name}' neither reduce nor copy here (nvls)"


def _as_json(
    problem: TreeProblem, schedules: Sequence[TreeSchedule], chosen: TreeSchedule, size: int,
    where: str,
) -> dict[str, object]:  # fmt: skip
    bound = problem.bound
    return {
        "collective": problem.collective,
        "machine": where,
        "ranks": problem.graph.ranks,
        "root": problem.root if len(problem.roots) == 1 else None,
        "size": size,
        "bound": {
            "algbw": bound,
            "busbw": bound * problem.per_bus,
            "seconds": size / bound,
        },
        "schedules": [
            {
                "name": schedule.name,
                "chosen": schedule is chosen,
                "optimal": _share(problem, schedule) == 1.0,
                "gap": 1 - _share(problem, schedule),
                "algbw": schedule.bandwidth,
                "busbw": schedule.bandwidth * problem.per_bus,
                "latency": schedule.latency,
                "seconds": schedule.seconds(size),
                "count": schedule.count,
                "depth": schedule.depth,
                "trees": [
                    {"root": tree.root, "count": tree.count, "parents": [*tree.parents]}
                    for tree in schedule.trees
                ],
            }
            for schedule in schedules
        ],
    }
