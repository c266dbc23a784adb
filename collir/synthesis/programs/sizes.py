"""Programs for values of several sizes: small values need few steps, large values few bytes."""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, SymbolRefAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.pattern_rewriter import PatternRewriterListener

from collir.cost.network.group import CostError
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import Simulation
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp
from collir.ir.alternatives import FOR, FROM, alternatives, place_of
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of, scratch_copy, without_weights
from collir.synthesis.programs.choices import alike
from collir.synthesis.programs.crossings import crossings
from collir.synthesis.programs.decomposing import choices_in
from collir.synthesis.programs.rewriting import (
    KeptCollective,
    Programs,
    add_copies,
    rewrite,
    searched_in,
    unplaced_in,
)
from collir.synthesis.programs.search_options import SearchOptions


def programs_by_size(
    function: FuncOp, options: SearchOptions, scales: Iterable[float]
) -> list[Programs]:
    """Return the different cheapest programs of a function as its values grow, smallest first.

    Args:
        scales: the factors by which the sizes of values are multiplied.

    Raises:
        DiagnosticError: see ``choices``.
    """
    cheapest: dict[Programs, None] = {}
    for scale in scales:
        all_choices = choices_in(function, replace(options, scale=scale))
        cheapest.setdefault(tuple(choices.listed[0][1] for choices in all_choices))
    return list(cheapest)


def rewritten(module: ModuleOp, number: int, picked: Programs) -> ModuleOp:
    """Return a copy of a module with programs in the place of the operations of one function."""
    copy = module.clone()
    rewrite(functions_of(copy)[number], picked, None)
    return copy


def text_of(function: FuncOp, picked: Programs) -> str:
    """Return programs in a line, for people."""
    mesh = mesh_of(function)
    parts: list[str] = []
    for op, program in zip(searched_in(function), picked, strict=True):
        parts += [f"{op.mnemonic} as it is"] if program is None else program.texts(mesh)
    return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class _Choice:
    """Programs for a function, and the simulation of the function with them."""

    picked: Programs
    simulation: Simulation

    def time(self, size: float) -> float:
        """Return the seconds where values are ``size`` times as large as their types say."""
        return self.simulation.scaled(size).time


def decompose_for_sizes(
    module: ModuleOp,
    options: SearchOptions,
    up_to: int,
    listener: PatternRewriterListener | None = None,
) -> list[KeptCollective]:
    """Rewrite every function by the programs that are cheapest for the sizes of its types.

    The programs that are cheapest for larger values are kept as functions that take its place. A
    function that others already replace is left as it is, and so are these others.

    Args:
        up_to: the largest factor by which the sizes of values may be multiplied.

    Returns: what stays as it is written, where that may not be expected.

    Raises:
        DiagnosticError: see ``choices``.
    """
    scales = [*(2.0**power for power in range(math.ceil(math.log2(up_to)))), float(up_to)]
    known = alternatives(module)
    kept: list[KeptCollective] = []
    with meshes_remembered():
        for function in without_weights(functions_of(module), "decomposed"):
            stands = function.sym_name.data not in known and not place_of(function)
            if stands:
                kept += unplaced_in(function)
            if not (stands and searched_in(function)):
                continue
            candidates: list[_Choice] = []
            for picked in programs_by_size(function, options, scales):
                # Steps may overlap, so a choice costs the time of the whole function.
                with scratch_copy(function) as trial:
                    rewrite(trial, picked, None)
                    candidates.append(_Choice(picked, simulate_function(trial, options.model)))
            try:
                (_, first), *rest = crossings(candidates, scales)
            except CostError as error:
                raise DiagnosticError.at(function, str(error)) from error
            larger = {math.ceil(at): choice.picked for at, choice in rest}
            made = add_copies(module, function, len(larger))
            for copy, (least, picked) in zip(made, larger.items(), strict=True):
                copy.attributes[FOR] = SymbolRefAttr(function.sym_name.data)
                copy.attributes[FROM] = IntegerAttr(least, i64)
                rewrite(copy, picked, listener)
            unbeaten: dict[Hashable, DistOp] = {}
            for index, op in enumerate(searched_in(function)):
                if all(choice.picked[index] is None for choice in candidates):
                    unbeaten.setdefault(alike(op), op)
            why = f"no program is faster, for values up to {up_to} times as large either"
            kept += [KeptCollective(op, f"this {op.mnemonic}", why) for op in unbeaten.values()]
            rewrite(function, first.picked, listener)
    return kept
