"""The fastest function, or strategy, for each size of buffer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.target import Target

from collir.cost.network.group import CostError
from collir.cost.options import CostOptions
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import check_no_weights, functions_of, refuse_nested
from collir.ir.selection import copy_with_functions
from collir.semantics.validation.proof import type_of_attribute
from collir.semantics.validation.validate import Outcome, compare
from collir.synthesis.programs.crossings import crossings, fastest
from collir.synthesis.programs.fixed import STRATEGIES
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.programs.sizes import programs_by_size, rewritten, text_of
from collir.synthesis.programs.strategies import decompose_by_strategy
from collir.targets.reports.cost import mesh_title
from collir.targets.reports.text import bytes_text, seconds_text, table, wrapped

SEARCHED = "searched"
"""The name for the cheapest programs of any strategy."""

SIZES = (*(digit * 10.0**power for power in range(3, 10) for digit in (1, 3)), 1e10)
"""The sizes of the table in bytes: 1 KB to 10 GB."""


@dataclass(frozen=True)
class FunctionVariant:
    """A function as written, or rewritten by a strategy.

    ``base`` is the size of its largest value in bytes; ``program`` is the program that a search
    returned.
    """

    name: str
    simulation: Simulation
    base: float
    program: str = ""

    def time(self, size: float) -> float:
        """Return the seconds if the largest argument or result has ``size`` bytes on every rank.

        Raises:
            CostError: see ``step_cost``.
        """
        return self.simulation.scaled(size / self.base).time


def largest_buffer(function: FuncOp) -> int:
    """Return the bytes of a function's largest argument or result on one rank; 1 without any."""
    values = (*function.args, *plan_buffers(function).returned)
    return max((dist_type(x).local_bytes(mesh_of(function)) for x in values), default=1)


@dataclass(frozen=True)
class CrossoverTarget(CostOptions, Target):
    """The fastest function for buffers of 1 KB to 10 GB, and the sizes at which it changes.

    Functions of equal types are compared; a remark names those that do not compute the same. The
    size is that of a function's largest argument or result on one rank, and all buffers grow with
    it. Functions without collectives are left out.
    """

    name = "crossover"

    strategies: tuple[str, ...] = ()
    """Strategies of `decompose` to apply to each function, and `searched`, the programs that a
    search finds for some of the sizes. The default is `flat` for functions that share their types
    with another one, and all strategies for the others."""
    svg: bool = False
    """Print a plot (needs matplotlib: `pip install 'collir[plot]'`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (*STRATEGIES, SEARCHED)
        if unknown := [name for name in self.strategies if name not in known]:
            raise ValueError(f"strategies are among {', '.join(known)}, not '{unknown[0]}'")

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        refuse_nested(functions_of(module), "is not compared by sizes")
        compared: dict[str, tuple[list[FunctionVariant], list[str]]] = {}
        for alike in by_types(module):
            if candidates := self._candidates(alike):
                names = {candidate.simulation.name for candidate in candidates}
                functions = [f for f in functions_of(alike) if f.sym_name.data in names]
                title = ", ".join(f"@{function.sym_name.data}" for function in functions)
                compared[title] = candidates, unlike(functions)
        if not compared:
            raise DiagnosticError(Diagnostic("there is no function with collectives to compare"))
        if self.svg and len(compared) > 1:
            message = f"a plot has functions of equal types, not {' and '.join(compared)}"
            raise DiagnosticError(Diagnostic(f"{message}: choose some with --function"))
        if self.svg:
            output.write("".join(plot(*both) for both in compared.values()))
            return
        blocks = [
            [
                *([f"{title}:"] if len(compared) > 1 else []),
                *report(candidates),
                *(line for remark in remarks for line in wrapped(remark)),
            ]
            for title, (candidates, remarks) in compared.items()
        ]
        output.write("\n\n".join("\n".join(lines) for lines in blocks) + "\n")

    def _candidates(self, module: ModuleOp) -> list[FunctionVariant]:
        functions = functions_of(module)
        single = len(functions) == 1 and mesh_of(functions[0]).placed
        alternatives = [name for name in (*STRATEGIES, SEARCHED) if name != "flat" and single]
        strategies = self.strategies or ("flat", *alternatives)
        if strategies != ("flat",):
            check_no_weights(functions, "has no strategies to compare")
        bases = [largest_buffer(function) for function in functions]
        candidates: list[FunctionVariant] = []
        for strategy in strategies:
            if strategy == SEARCHED:
                for number, base in enumerate(bases):
                    searched = self._searched(module, number, base)
                    listed = [candidate.simulation.collectives for candidate in candidates]
                    candidates += [x for x in searched if x.simulation.collectives not in listed]
                continue
            by_strategy = module.clone()
            decompose_by_strategy(by_strategy, strategy)
            simulations = simulate(by_strategy, self.cost_model())
            for simulation, base in zip(simulations, bases, strict=True):
                name = simulation.name
                if len(strategies) > 1:
                    name = strategy if len(functions) == 1 else f"{name} {strategy}"
                if simulation.collectives:
                    candidates.append(FunctionVariant(name, simulation, base))
        return candidates

    def _searched(self, module: ModuleOp, number: int, base: float) -> list[FunctionVariant]:
        """Return the programs that are cheapest for some size."""
        function = functions_of(module)[number]
        model = self.cost_model()
        prefix = "" if len(functions_of(module)) == 1 else f"{function.sym_name.data} "
        candidates: list[FunctionVariant] = []
        for choices in programs_by_size(
            function, SearchOptions(model), (size / base for size in SIZES)
        ):
            if all(steps is None for steps in choices):
                continue  # the function as written is a candidate already
            simulation = simulate(rewritten(module, number, choices), model)[number]
            name = f"{prefix}best {len(candidates) + 1}"
            candidates.append(FunctionVariant(name, simulation, base, text_of(function, choices)))
        return candidates


def by_types(module: ModuleOp) -> list[ModuleOp]:
    """Return a module for each set of functions of equal types: itself, or copies."""
    names: dict[object, list[str]] = {}
    for function in functions_of(module):
        names.setdefault(_types(function), []).append(function.sym_name.data)
    if len(names) == 1:
        return [module]
    return [copy_with_functions(module, alike) for alike in names.values()]


def unlike(functions: Sequence[FuncOp]) -> list[str]:
    """Return a remark on each function that is not proven to compute what the first one does."""
    first, *rest = functions
    name = first.sym_name.data
    remarks: list[str] = []
    for function in rest:
        verdict = compare(first, function, memory=0)
        if verdict.outcome is Outcome.SAME:
            continue
        statement = f"that @{function.sym_name.data} computes what @{name} computes is not proven"
        if verdict.outcome is Outcome.DIFFERENT and verdict.how == "proof":
            statement = f"@{function.sym_name.data} does not compute what @{name} computes"
        remarks.append(f"remark: {statement}: {verdict.explanation}")
    return remarks


def _types(function: FuncOp) -> tuple[tuple[str, ...], ...]:
    """Return the types of arguments and of results, as written."""
    mesh, types = mesh_of(function), function.function_type
    return tuple(
        tuple(type_of_attribute(type_).text(mesh) for type_ in side)
        for side in (types.inputs, types.outputs)
    )


def report(candidates: Sequence[FunctionVariant]) -> list[str]:
    """Return the lines of the table, and a line with the sizes at which the fastest changes."""
    try:
        rows = [
            [
                bytes_text(size),
                *(seconds_text(candidate.time(size)) for candidate in candidates),
                fastest(candidates, size).name,
            ]
            for size in SIZES
        ]
        changes = crossings(candidates, SIZES)
    except CostError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error
    lines = table(
        ["bytes/rank", *(candidate.name for candidate in candidates), "fastest"],
        rows,
        left=0,
        indent=0,
    )
    ranges = [f"from {bytes_text(at)} {candidate.name}" for at, candidate in changes[1:]]
    programs = [
        f"{candidate.name}: {candidate.program}" for candidate in candidates if candidate.program
    ]
    first = candidates[0].simulation
    costing = f"costed {first.model.how(first.mesh.machine)}"
    return [
        *lines,
        "",
        *wrapped(f"fastest: {', '.join([changes[0][1].name, *ranges])}; {costing}"),
        *(line for program in programs for line in wrapped(program)),
    ]


def plot(candidates: Sequence[FunctionVariant], remarks: Sequence[str] = ()) -> str:
    """Return the times over the sizes as SVG, with remarks below its title.

    Raises:
        DiagnosticError: matplotlib is not installed.
    """
    try:
        from collir.targets.reports.plots import lines
    except ImportError as error:
        message = "a plot needs matplotlib: install it with `pip install 'collir[plot]'`"
        raise DiagnosticError(Diagnostic(message)) from error
    mesh = candidates[0].simulation.mesh
    names = ", ".join(dict.fromkeys(f"@{candidate.simulation.name}" for candidate in candidates))
    return lines(
        "\n".join([f"{names} on {mesh_title(mesh)}", *remarks]),
        ("bytes per rank", "time"),
        {
            candidate.name: [(size, candidate.time(size)) for size in SIZES]
            for candidate in candidates
        },
        [at for at, _ in crossings(candidates, SIZES)[1:]],
    )
