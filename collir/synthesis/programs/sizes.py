"""Programs for values of several sizes: small ones need few steps, large ones few bytes."""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, SymbolRefAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.pattern_rewriter import PatternRewriterListener

from collir.cost.network.group import CostError
from collir.cost.programs.cost import FunctionCost, function_cost
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp
from collir.ir.alternatives import FOR, FROM, alternatives, place_of
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.synthesis.programs.choices import SearchOptions, alike
from collir.synthesis.programs.crossings import crossings
from collir.synthesis.programs.decomposing import choices_in
from collir.synthesis.programs.rewriting import (
    KeptCollective,
    Programs,
    copies,
    rewrite,
    searched_in,
    unplaced_in,
)


def by_size(function: FuncOp, wanted: SearchOptions, scales: Iterable[float]) -> list[Programs]:
    """What is cheapest for a function as its values grow: all different ones, smallest first.

    Args:
        scales: how many times as large as their types say values are taken to be.

    Raises:
        DiagnosticError: see ``programs``.
    """
    found: dict[Programs, None] = {}
    for scale in scales:
        each = [one.listed[0][1] for one in choices_in(function, replace(wanted, scale=scale))]
        found.setdefault(tuple(each))
    return list(found)


def rewritten(module: ModuleOp, number: int, picked: Programs) -> ModuleOp:
    """A module whose function of some number has these programs in the place of its operations."""
    copy = module.clone()
    rewrite(functions_of(copy)[number], picked, None)
    return copy


def text_of(function: FuncOp, picked: Programs) -> str:
    """Programs in a line, for people."""
    mesh = mesh_of(function)
    parts: list[str] = []
    for op, program in zip(searched_in(function), picked, strict=True):
        parts += [f"{op.mnemonic} as it is"] if program is None else program.texts(mesh)
    return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class _Choice:
    """Programs for a function, and what it costs with them."""

    picked: Programs
    cost: FunctionCost

    def time(self, size: float) -> float:
        """Seconds, where values are so many times as large as their types say."""
        return self.cost.scaled(size).time


def for_sizes(
    module: ModuleOp,
    wanted: SearchOptions,
    up_to: int,
    listener: PatternRewriterListener | None = None,
) -> list[KeptCollective]:
    """Rewrites every function by the programs that are cheapest for values as large as their types
    say, and keeps those that are cheapest for larger ones as functions that take its place. One of
    which others take the place already is left as it is, and so are they.

    Args:
        up_to: how many times as large values may be.

    Returns: what stays as it is written, where that may not be expected.

    Raises:
        DiagnosticError: see ``programs``.
    """
    scales = [*(2.0**power for power in range(math.ceil(math.log2(up_to)))), float(up_to)]
    known = alternatives(module)
    kept: list[KeptCollective] = []
    with meshes_remembered():
        for number, function in enumerate(functions_of(module)):
            stands = function.sym_name.data not in known and not place_of(function)
            if stands:
                kept += unplaced_in(function)
            if not (stands and searched_in(function)):
                continue
            found: list[_Choice] = []
            for picked in by_size(function, wanted, scales):
                tried = functions_of(rewritten(module, number, picked))[number]
                found.append(_Choice(picked, function_cost(tried, wanted.model)))
            try:
                (_, first), *rest = crossings(found, scales)
            except CostError as error:
                raise DiagnosticError.at(function, str(error)) from error
            larger = {math.ceil(at): one.picked for at, one in rest}
            made = copies(module, function, len(larger))
            for copy, (least, picked) in zip(made, larger.items(), strict=True):
                copy.attributes[FOR] = SymbolRefAttr(function.sym_name.data)
                copy.attributes[FROM] = IntegerAttr(least, i64)
                rewrite(copy, picked, listener)
            same: dict[Hashable, DistOp] = {}
            for index, op in enumerate(searched_in(function)):
                if all(one.picked[index] is None for one in found):
                    same.setdefault(alike(op), op)
            why = f"no program is faster, for values up to {up_to} times as large either"
            kept += [KeptCollective(op, f"this {op.mnemonic}", why) for op in same.values()]
            rewrite(function, first.picked, listener)
    return kept
