"""Which function, or which strategy, is fastest for which size of buffer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.cost.network.group import CostError
from collir.cost.programs.cost import FunctionCost, cost
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.ir.functions import functions_of
from collir.semantics.validation.proof import of_attribute
from collir.semantics.validation.validate import Outcome, compare
from collir.synthesis.programs.choices import SearchOptions
from collir.synthesis.programs.crossings import crossings, fastest
from collir.synthesis.programs.sizes import programs_by_size, rewritten, text_of
from collir.synthesis.programs.strategies import STRATEGIES, decompose_by_strategy
from collir.targets.reports.cost import CostingTarget, mesh_title
from collir.targets.reports.text import bytes_text, seconds_text, table

SEARCHED = "searched"
"""Beside the fixed strategies of ``decompose``: the cheapest programs of any."""

SIZES = (*(digit * 10.0**power for power in range(3, 10) for digit in (1, 3)), 1e10)
"""1 KB to 10 GB."""


@dataclass(frozen=True)
class Candidate:
    """A function as written or by a strategy; ``base`` are the bytes of its largest value.

    ``program`` says what a search has found.
    """

    name: str
    cost: FunctionCost
    base: float
    program: str = ""

    def time(self, size: float) -> float:
        """Seconds, where its largest argument or result has so many bytes on every rank.

        Raises:
            CostError: see ``step_cost``.
        """
        return self.cost.scaled(size / self.base).time


def largest_buffer(function: FuncOp) -> int:
    """Return the bytes of a function's largest argument or result on one rank; 1 without any."""
    values = (*function.args, *plan_buffers(function).returned)
    return max((dist_type(x).local_bytes(mesh_of(function)) for x in values), default=1)


@dataclass(frozen=True)
class CrossoverTarget(CostingTarget):
    """Which function is fastest for buffers of 1 KB to 10 GB, and where the fastest changes.

    Functions have equal types; a remark names those that do not compute the same.
    The size is that of a function's largest argument or result on one rank, and all buffers grow
    with it. Functions without collectives are left out.
    """

    name = "crossover"

    strategies: tuple[str, ...] = ()
    """Strategies of `decompose` that are tried on each function, and `searched`: the programs that
    a search finds for some of the sizes. By default all, if the file has one function only."""
    svg: bool = False
    """Print a plot (needs matplotlib: `pip install 'collir[plot]'`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (*STRATEGIES, SEARCHED)
        if unknown := [name for name in self.strategies if name not in known]:
            raise ValueError(f"strategies are among {', '.join(known)}, not '{unknown[0]}'")

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        candidates = self._candidates(module)
        compared = {one.cost.name for one in candidates}
        functions = [f for f in functions_of(module) if f.sym_name.data in compared]
        remarks = unlike(module, functions)
        if self.svg:
            output.write(plot(candidates, remarks))
        else:
            output.write("\n".join([*report(candidates), *remarks]) + "\n")

    def _candidates(self, module: ModuleOp) -> list[Candidate]:
        functions = functions_of(module)
        one = len(functions) == 1 and mesh_of(functions[0]).placed
        others = [name for name in (*STRATEGIES, SEARCHED) if name != "flat" and one]
        strategies = self.strategies or ("flat", *others)
        bases = [largest_buffer(function) for function in functions]
        found: list[Candidate] = []
        for strategy in strategies:
            if strategy == SEARCHED:
                for number, base in enumerate(bases):
                    new = self._searched(module, number, base)
                    listed = [one.cost.steps for one in found]
                    found += [one for one in new if one.cost.steps not in listed]
                continue
            by_strategy = module.clone()
            decompose_by_strategy(by_strategy, strategy)
            for each, base in zip(cost(by_strategy, self.cost_model()), bases, strict=True):
                name = each.name
                if len(strategies) > 1:
                    name = strategy if len(functions) == 1 else f"{each.name} {strategy}"
                if each.steps:
                    found.append(Candidate(name, each, base))
        if not found:
            raise DiagnosticError(Diagnostic("there is no function with collectives to compare"))
        return found

    def _searched(self, module: ModuleOp, number: int, base: float) -> list[Candidate]:
        """The programs that are cheapest for some size."""
        function = functions_of(module)[number]
        model = self.cost_model()
        first = "" if len(functions_of(module)) == 1 else f"{function.sym_name.data} "
        found: list[Candidate] = []
        for picked in programs_by_size(
            function, SearchOptions(model), (size / base for size in SIZES)
        ):
            if all(steps is None for steps in picked):
                continue  # as it is written
            each = cost(rewritten(module, number, picked), model)[number]
            name = f"{first}best {len(found) + 1}"
            found.append(Candidate(name, each, base, text_of(function, picked)))
        return found


def unlike(module: ModuleOp, functions: Sequence[FuncOp]) -> list[str]:
    """Return a remark on each function that is not proven to compute what the first one does.

    Raises:
        DiagnosticError: the types of functions differ.
    """
    first, *others = functions
    name = first.sym_name.data
    if errors := [error for other in others if (error := _other_types(first, other))]:
        raise DiagnosticError(errors)
    remarks: list[str] = []
    for other in others:
        verdict = compare(first, module, other, module, memory=0)
        if verdict.outcome is Outcome.SAME:
            continue
        what = f"that @{other.sym_name.data} computes what @{name} computes is not proven"
        if verdict.outcome is Outcome.DIFFERENT and verdict.how == "proof":
            what = f"@{other.sym_name.data} does not compute what @{name} computes"
        remarks.append(f"remark: {what}: {verdict.explanation}")
    return remarks


def _other_types(first: FuncOp, other: FuncOp) -> Diagnostic | None:
    """Return an error that names the first type in which two functions differ."""
    name = first.sym_name.data
    for what, texts in zip(
        ("argument", "result"), zip(*map(_types, (first, other)), strict=True), strict=True
    ):
        for number, (one, two) in enumerate(zip_longest(*texts, fillvalue="missing")):
            if one != two:
                return Diagnostic(
                    f"@{other.sym_name.data} cannot be compared with @{name}: its {what} {number} "
                    f"is {two}, that of @{name} is {one}; crossover compares functions of equal "
                    "types, or the strategies of a file with one function",
                    Position.of(other),
                    (note(f"@{name} is defined here", Position.of(first)),),
                )
    return None


def _types(function: FuncOp) -> tuple[list[str], list[str]]:
    """Return the types of arguments and of results, as written."""
    mesh, types = mesh_of(function), function.function_type
    inputs, outputs = (
        [of_attribute(one).text(mesh) for one in side] for side in (types.inputs, types.outputs)
    )
    return inputs, outputs


def report(candidates: Sequence[Candidate]) -> list[str]:
    """The lines of the table, and of where the fastest changes."""
    try:
        rows = [
            [
                bytes_text(size),
                *(seconds_text(one.time(size)) for one in candidates),
                fastest(candidates, size).name,
            ]
            for size in SIZES
        ]
        changes = crossings(candidates, SIZES)
    except CostError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error
    lines = table(["bytes/rank", *(one.name for one in candidates), "fastest"], rows, left=0)
    until = [f"from {bytes_text(at)} {one.name}" for at, one in changes[1:]]
    programs = [f"{one.name}: {one.program}" for one in candidates if one.program]
    first = candidates[0].cost
    how = f"costed {first.model.how(first.mesh.machine)}"
    return [*lines, "", f"fastest: {', '.join([changes[0][1].name, *until])}; {how}", *programs]


def plot(candidates: Sequence[Candidate], remarks: Sequence[str] = ()) -> str:
    """The times over the sizes, as SVG, with remarks below its title.

    Raises:
        DiagnosticError: matplotlib is not installed.
    """
    try:
        from collir.targets.reports.plots import lines
    except ImportError as error:
        message = "a plot needs matplotlib: install it with `pip install 'collir[plot]'`"
        raise DiagnosticError(Diagnostic(message)) from error
    mesh = candidates[0].cost.mesh
    names = ", ".join(dict.fromkeys(f"@{one.cost.name}" for one in candidates))
    return lines(
        "\n".join([f"{names} on {mesh_title(mesh)}", *remarks]),
        ("bytes per rank", "time"),
        {one.name: [(size, one.time(size)) for size in SIZES] for one in candidates},
        [at for at, _ in crossings(candidates, SIZES)[1:]],
    )
