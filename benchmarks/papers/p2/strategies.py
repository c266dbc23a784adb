"""The sequences of steps that can replace each collective of a program, cheapest first.

    python benchmarks/papers/p2/strategies.py FILE.coll [NAME=VALUE ...] [--json]

They are those that `decompose` chooses from, or all programs of P² (`method=enumerate`).
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import IO, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import ArgSpecParseError
from xdsl.utils.target import Target

from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.collectives import collective_of
from collir.cost.steps import seconds_sent
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_placeholder
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError, Sources
from collir.ir.functions import check_no_weights, check_programs, functions_of
from collir.layout.coll import ALL_REDUCE
from collir.layout.types import without_formulas
from collir.synthesis.options import ParallelOptions
from collir.synthesis.programs.build import dims_of
from collir.synthesis.programs.choices import needs_search, placed_mesh, priced_programs
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.programs.states import StatePaths, is_unordered
from collir.synthesis.programs.steps import CollectiveStep, StepSequence
from collir.synthesis.propagation.propagate import explicit
from collir.synthesis.searching import gap_of, remark_cut_off, search_workers, session
from collir.targets.reports.terminal import drawn_on
from collir.targets.reports.text import bytes_text, ratio_text, seconds_text, table, wrapped
from collir.tools import api
from collir.tools.functions import for_report, keep_functions, reported
from collir.tools.missing_rows import locating_missing_rows
from collir.tools.pass_pages import target_page
from collir.tools.shell import CommandParser, function_name, run_tool
from collir.tools.specifications import check_text, configured, usage_error

sys.path.insert(0, str(Path(__file__).parents[1]))
from p2.candidates import p2_candidates_within
from p2.enumerate import RuleReading

METHODS = ("shortest", "enumerate")


@dataclass(frozen=True)
class Strategies:
    """The candidates for an operation of a function.

    Attributes:
        count: the number of candidates of the method; None if they are too many to count.
        baseline: the cost of the operation as one step; None for a redistribution.
        bound: the lower bound of all programs, in seconds.
        ended: why the search was cut off, so that there may be better candidates; or "".
        gap: the largest share of the best time by which another candidate may be faster; None if
            it is not known.
    """

    function: str
    op: DistOp
    candidates: list[StepSequence]
    count: int | None
    baseline: StepCost | None
    bound: float
    ended: str = ""
    gap: float | None = 0.0

    @property
    def proven(self) -> bool:
        """Return whether no candidate that is faster is missing."""
        return not (self.ended or self.gap)


@dataclass(frozen=True)
class StrategiesReport(ParallelOptions, Target):
    """Sequences of steps for every collective of a placed mesh, cheapest first.

    As JSON, an entry for each collective, candidates cheapest first; seconds. An entry says whether
    the first candidate is `proven` to be the best; if not, it has the reason why the search
    `ended`, and the `gap`: the largest share of the first's time by which another program may be
    faster.
    """

    name = "strategies"

    method: str = "shortest"
    """The programs to search: `shortest`, the cheapest of any length, for every collective and
    redistribution; or `enumerate`, all programs of P² up to a size, for every all_reduce."""
    top: int = 10
    """The number of programs to show."""
    memory: float | int = 0.0
    """The bytes that operand and result of a step may take together, as a multiple of those of the
    whole operation; 0: any number."""
    front: bool = False
    """Show only programs such that no other program is cheaper and needs no more memory."""
    chunks: int = 1
    """The largest number of chunks that a program may run in."""
    size: int = 5
    """The largest number of steps, with `method=enumerate`."""
    reading: str = RuleReading.MASTER_ALL_REDUCE.value
    """The reading of P²'s rules, with `method=enumerate`: `master-all-reduce`, `literal` or
    `no-master`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in METHODS:
            raise ValueError(f"method is {' or '.join(METHODS)}, not '{self.method}'")
        if min(self.top, self.chunks) < 1 or not 1 <= self.size <= 6:
            raise ValueError("top and chunks are 1 or more, size 1 to 6 steps")
        if self.memory < 0:
            raise ValueError("memory is 0 or more")
        if self.method == "enumerate" and (self.memory or self.front or self.chunks > 1):
            raise ValueError("memory, front and chunks are of method=shortest")
        if self.chunks > 1 and (self.memory or self.front):
            raise ValueError("memory and front are of steps on the whole value: leave out chunks")
        plain = self.size == 5 and self.reading == RuleReading.MASTER_ALL_REDUCE
        if self.method == "shortest" and not plain:
            raise ValueError("size and reading are of method=enumerate")
        if self.reading not in list(RuleReading):
            raise ValueError(f"reading is one of {', '.join(RuleReading)}, not '{self.reading}'")

    def strategies(self, module: ModuleOp) -> list[Strategies]:
        """Return the candidates for every operation that has alternatives.

        Raises:
            DiagnosticError: a mesh is not placed, or an operation has no cost.
        """
        functions = functions_of(module)
        check_programs(functions, "has no cost", redistributions=True, nested=True)
        check_no_weights(functions, "has no strategies")
        with meshes_remembered(), search_workers(self.workers):
            return [
                self._strategies(function.sym_name.data, op)
                for function in functions
                for op in function.body.walk()
                if isinstance(op, DistOp) and self._looked_at(op)
            ]

    def _looked_at(self, op: DistOp) -> bool:
        return op.kind is ALL_REDUCE if self.method == "enumerate" else needs_search(op)

    def _strategies(self, function: str, op: DistOp) -> Strategies:
        model, mesh = self.cost_model(), placed_mesh(op)
        baseline = None if is_placeholder(op) else _baseline(op, model)
        if self.method == "enumerate":
            assert baseline is not None
            reading = RuleReading(self.reading)
            candidates, ended = p2_candidates_within(
                collective_of(op, mesh), model, self.size, reading, self.seconds
            )
            bound = baseline.shared_bound
            gap = 0.0
            if ended:
                gap = gap_of(candidates[0].time if candidates else None, bound)
                remark_cut_off(op, f"programs of this {op.mnemonic}", ended, self.seconds, gap)
            count = None if ended else len(candidates)
            return Strategies(function, op, candidates, count, baseline, bound, ended, gap)
        options = SearchOptions(
            model, self.top, self.memory or None, self.seconds, chunks=self.chunks
        )
        priced = priced_programs(op, options, seconds_sent(baseline) if baseline else None)
        result = replace(priced.first, candidates=tuple(priced.candidates), ended=priced.ended)
        if priced.gap:
            result = replace(result, gap=priced.gap)
        if self.front:
            candidates, ended = pareto_programs(op, options)
            gap = None if ended else result.gap
            result = replace(
                result, candidates=tuple(candidates), ended=ended or result.ended, gap=gap
            )
        bound = result.least if baseline is None else baseline.shared_bound
        return Strategies(
            function,
            op,
            list(result.candidates),
            _count(op, options),
            baseline,
            bound,
            result.ended,
            result.gap,
        )

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Write the tables."""
        tables = [
            "\n".join(_lines(strategies, self.top, self.cost_model())) + "\n"
            for strategies in self.strategies(module)
        ]
        noun = ALL_REDUCE.name if self.method == "enumerate" else "collective"
        output.write("\n".join(tables) or f"there is no {noun}\n")

    def as_json(self, module: ModuleOp) -> list[dict[str, Any]]:
        """Return the entries of JSON."""
        model = self.cost_model()
        return [_json(strategies, self.top, model) for strategies in self.strategies(module)]


def _count(op: DistOp, options: SearchOptions) -> int | None:
    """Return the number of programs on the whole value; None if the order of shards matters."""
    mesh = mesh_of(op)
    source, target = (without_formulas(dist_type(x)) for x in (op.operands[0], op.result))
    memory = None
    if options.memory is not None:
        memory = options.memory * (source.local_bytes(mesh) + target.local_bytes(mesh))
    if not is_unordered(source, target):
        return None
    return StatePaths(mesh, source, target, options.model, memory).count()


def pareto_programs(op: DistOp, options: SearchOptions) -> tuple[list[StepSequence], str]:
    """Return the programs that no other program beats in both time and memory, cheapest first.

    Each program is the cheapest of those that need less memory than the program before it. The
    memory of a program is the most that operand and result of any of its steps take together.

    Returns:
        The programs; and the reason why a search was cut off, or "". If there is a reason, programs
        may be missing.

    Raises:
        DiagnosticError: see ``search_programs``.
    """
    mesh, ended = mesh_of(op), ""
    end_bytes = sum(dist_type(value).local_bytes(mesh) for value in (op.operands[0], op.result))
    front: list[StepSequence] = []
    while len(front) < options.top:
        memory = front[-1].memory / end_bytes * (1 - 1e-9) if front else options.memory
        found = priced_programs(op, replace(options, memory=memory, top=1), None)
        ended = ended or found.ended
        if not found.candidates:
            break
        best = found.candidates[0]
        if front and best.time <= front[-1].time * (1 + 1e-9):
            front.pop()
        front.append(best)
    return front, ended


def _baseline(op: DistOp, model: CostModel) -> StepCost:
    try:
        return step_cost(collective_of(op, mesh_of(op)), model)
    except CostError as error:
        raise DiagnosticError.at(op, str(error)) from error


def _lines(strategies: Strategies, top: int, model: CostModel) -> list[str]:
    mesh, baseline = mesh_of(strategies.op), strategies.baseline
    if baseline is None:
        operation = f"{strategies.op.mnemonic} to {dist_type(strategies.op.result).text(mesh)}"
    else:
        operation = (
            f"{strategies.op.mnemonic} over {', '.join(mesh.short(baseline.collective.axes))}"
        )
    count = ""
    if strategies.count is not None:
        count = f" {strategies.count} candidate{'s' * (strategies.count != 1)},"
    own = None if baseline is None else seconds_sent(baseline)
    as_one_step = "" if own is None else f" as one step {seconds_text(own)},"
    costing = model.how(mesh.machine)
    bound = f" bound {seconds_text(strategies.bound)}, costed {costing}"
    title = f"@{strategies.function}: {operation}:{count}{as_one_step}{bound}"
    if strategies.ended:
        title += "; not all of them looked at in the time given"
    elif strategies.gap:
        title += "; not all of them timed with what devices copy"
    if not strategies.candidates:
        why = "that was found in the time given" if strategies.ended else "within so much memory"
        return [*wrapped(title), f"  there is no program {why}"]
    sized = any(candidate.memory for candidate in strategies.candidates)
    rows = [
        [
            "; ".join([*_texts(candidate), *_in_chunks(candidate)]) or "nothing",
            *([bytes_text(candidate.memory)] if sized else []),
            seconds_text(candidate.time),
            ratio_text(candidate.time, strategies.bound),
            ratio_text(own, candidate.time) if own is not None and candidate.time else "",
        ]
        for candidate in strategies.candidates[:top]
    ]
    head = [
        "program",
        *(["memory"] if sized else []),
        "time",
        "of bound",
        "faster" if baseline else "",
    ]
    return [*wrapped(title), *(f"  {line}" for line in table(head, rows, left=1))]


def _paid(candidate: StepSequence) -> Iterator[tuple[CollectiveStep, StepCost | None]]:
    """Yield the steps, each with its cost if it sends."""
    costs = iter(candidate.costs)
    for step in candidate.steps:
        yield step, next(costs) if step.does.sends else None


def _in_chunks(candidate: StepSequence) -> list[str]:
    return [f"in {candidate.pipeline.chunks} chunks"] if candidate.pipeline else []


def _texts(candidate: StepSequence) -> Iterator[str]:
    mesh = candidate.mesh
    for step, cost in _paid(candidate):
        text = step.kind
        if step.to is not None:
            yield f"{text} to {step.to.text(mesh)}"
            continue
        text += f" {', '.join(mesh.short(step.axes))}"
        if step.dim is not None:
            text += f" dim {step.dim}" + (f" to {step.target}" if step.target is not None else "")
        if cost is not None and cost.collective.at_root:
            text += f" root {', '.join(sorted(cost.collective.at_root))}"
        yield text


def _json(strategies: Strategies, top: int, model: CostModel) -> dict[str, Any]:
    listed = strategies.candidates[:top]
    return {
        "function": strategies.function,
        "collective": strategies.op.mnemonic,
        "count": strategies.count,
        "candidates": [_candidate_json(strategies.op, candidate) for candidate in listed],
        "baseline_s": None if strategies.baseline is None else seconds_sent(strategies.baseline),
        "bound_s": strategies.bound,
        "costed": model.how(mesh_of(strategies.op).machine),
        "proven": strategies.proven,
        "ended": strategies.ended or None,
        "gap": strategies.gap,
    }


def _candidate_json(op: DistOp, candidate: StepSequence) -> dict[str, Any]:
    mesh = candidate.mesh
    dims = dims_of(mesh, dist_type(op.operands[0]), dist_type(op.result), candidate.steps)
    program: list[dict[str, Any]] = []
    for (step, cost), dim in zip(_paid(candidate), dims, strict=True):
        root = [] if cost is None else sorted(cost.collective.at_root)
        entry: dict[str, Any] = {"op": step.kind, "over": list(step.axes), "dim": dim, "root": root}
        if step.target is not None:
            entry["to"] = step.target
        if step.to is not None:
            entry["to"] = step.to.text(mesh)
        program.append(entry)
    fields: dict[str, Any] = {"program": program, "time_s": candidate.time}
    if candidate.copies:
        fields["copies_s"] = candidate.copies
    if candidate.pipeline:
        fields["chunks"] = candidate.pipeline.chunks
    return fields | ({"memory_bytes": candidate.memory} if candidate.memory else {})


# --- the command ----------------------------------------------------------------------------------


def report(options: str = "") -> StrategiesReport:
    """Return a report with options, such as ``"top=3 model=p2"``.

    Raises:
        UsageError: there is no such option, or it takes no such value.
    """
    text = f"{StrategiesReport.name}{{{options}}}" if options else StrategiesReport.name
    try:
        check_text(text)
        return configured(StrategiesReport, parse_spec(text))
    except (ArgSpecParseError, ValueError) as error:
        raise usage_error(error) from error


def text_of(module: ModuleOp, options: str = "") -> str:
    """Return the tables of a module."""
    output = StringIO()
    with session(), locating_missing_rows(module):
        report(options).emit(api.context(), explicit(module), output)
    return output.getvalue()


def json_of(module: ModuleOp, options: str = "") -> list[dict[str, Any]]:
    """Return the entries of a module."""
    with session(), locating_missing_rows(module):
        return report(options).as_json(explicit(module))


def _arguments() -> argparse.ArgumentParser:
    _, _, options = target_page(StrategiesReport).partition("\nOptions:\n")
    parser = CommandParser(
        prog="strategies.py",
        description="The sequences of steps that can replace each collective, cheapest first.",
        epilog=f"options of the report:\n{options}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="a program on a placed mesh; -: standard input")
    add(
        "options",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="options of the report, see below",
    )
    add("--json", action="store_true", help="print the sequences as JSON")
    add("--function", type=function_name, metavar="NAME", help="this function only (default: all)")
    add("--debug", action="store_true", help="show tracebacks of our errors")
    return parser


def _run(words: Sequence[str], sources: Sources) -> int:
    arguments = _arguments().parse_args(words)
    options = " ".join(arguments.options)
    report(options)  # refused before the file is read
    standard = arguments.file == "-"
    source = sys.stdin.read() if standard else Path(arguments.file)
    module = api.parse(source, "<stdin>", sources)
    names = [arguments.function] if arguments.function else []
    keep_functions(module, names)
    module = for_report(explicit(module), reported(module, names))
    if arguments.json:
        text = json.dumps(json_of(module, options), indent=2) + "\n"
    else:
        with drawn_on(sys.stdout):
            text = text_of(module, options)
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sources = Sources()
    return run_tool("strategies.py", sources, "--debug" in words, lambda: _run(words, sources))


if __name__ == "__main__":
    sys.exit(main())
