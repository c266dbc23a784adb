"""Fixed strategies for an ``all_reduce`` over several levels."""

from collections.abc import Callable
from typing import Literal, get_args

from xdsl.dialects.builtin import ModuleOp
from xdsl.pattern_rewriter import PatternRewriterListener

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.ir.functions import functions_of, without_weights
from collir.ir.straight import on_straight_programs
from collir.layout import Mesh
from collir.layout.coll import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER
from collir.layout.steps import StepKind
from collir.synthesis.programs.rewriting import KeptCollective, put, unplaced_in
from collir.synthesis.programs.steps import Program, Step

Axes = tuple[str, ...]
Strategy = Literal["rs-ar-ag", "reduce-ar-bcast", "ar-per-level", "flat"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
"""The names of the strategies."""


def axes_by_level(mesh: Mesh, axes: Axes) -> list[Axes]:
    """Return sub-axes grouped by their level, outermost first; the order inside a level is kept."""
    levels = [level.name for level in mesh.machine.levels]
    groups = [tuple(a for a in axes if mesh.by_name[a].level == level) for level in levels]
    return [group for group in groups if group]


def _around(before: StepKind, after: StepKind) -> Callable[[list[Axes]], Program]:
    """Return a strategy: a step on each inner level, an all_reduce over the outermost, and back."""

    def program(levels: list[Axes]) -> Program:
        outermost, *inner = levels
        inwards = tuple(Step(after.name, axes) for axes in inner)
        outwards = tuple(Step(before.name, axes) for axes in reversed(inner))
        return Program((*outwards, Step(ALL_REDUCE.name, outermost), *inwards))

    return program


def _per_level(levels: list[Axes]) -> Program:
    return Program(tuple(Step(ALL_REDUCE.name, axes) for axes in reversed(levels)))


_PROGRAMS: dict[str, Callable[[list[Axes]], Program]] = {
    "rs-ar-ag": _around(REDUCE_SCATTER, ALL_GATHER),
    "reduce-ar-bcast": _around(REDUCE, BROADCAST),
    "ar-per-level": _per_level,
}


@on_straight_programs
def decompose_by_strategy(
    module: ModuleOp, strategy: str, listener: PatternRewriterListener | None = None
) -> list[KeptCollective]:
    """Rewrite every all_reduce over several levels by a strategy, in place.

    Returns: the collectives that stay as they are written, where that may not be expected.

    Raises:
        DiagnosticError: a tensor so large that no padding fits.
    """
    kept: list[KeptCollective] = []
    if strategy == "flat":
        return kept
    for function in without_weights(functions_of(module), "decomposed"):
        for op in list(function.body.ops):
            if not isinstance(op, DistOp) or op.kind is not ALL_REDUCE:
                continue
            mesh = mesh_of(op)
            levels = axes_by_level(mesh, op.over) if mesh.placed else []
            if len(levels) > 1:  # without levels there is no hierarchy
                put(op, _PROGRAMS[strategy](levels), listener)
            elif mesh.placed:
                why = f"it is over one level, and {strategy} is for several"
                kept.append(KeptCollective(op, f"this {op.mnemonic}", why))
        kept += unplaced_in(function)
    return kept
