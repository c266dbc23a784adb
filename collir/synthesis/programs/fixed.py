"""Fixed programs for an ``all_reduce`` over several levels."""

from collections.abc import Callable
from typing import Literal, get_args

from collir.dialects.operation import DistOp
from collir.layout import Mesh
from collir.layout.coll import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER
from collir.layout.steps import StepKind
from collir.synthesis.programs.steps import CollectiveStep, Program

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
        inwards = tuple(CollectiveStep(after.name, axes) for axes in inner)
        outwards = tuple(CollectiveStep(before.name, axes) for axes in reversed(inner))
        return Program((*outwards, CollectiveStep(ALL_REDUCE.name, outermost), *inwards))

    return program


def _per_level(levels: list[Axes]) -> Program:
    return Program(tuple(CollectiveStep(ALL_REDUCE.name, axes) for axes in reversed(levels)))


_PROGRAMS: dict[str, Callable[[list[Axes]], Program]] = {
    "rs-ar-ag": _around(REDUCE_SCATTER, ALL_GATHER),
    "reduce-ar-bcast": _around(REDUCE, BROADCAST),
    "ar-per-level": _per_level,
}


def fixed_program(strategy: str, mesh: Mesh, axes: Axes) -> Program | None:
    """Return the program of a strategy for an all_reduce; None for ``flat``, or on one level."""
    levels = axes_by_level(mesh, axes)
    return _PROGRAMS[strategy](levels) if strategy in _PROGRAMS and len(levels) > 1 else None


def fixed_programs(op: DistOp, mesh: Mesh) -> list[Program]:
    """Return the programs of all strategies for an operation that has some."""
    if op.kind is not ALL_REDUCE:
        return []
    programs = (fixed_program(strategy, mesh, op.over) for strategy in STRATEGIES)
    return [program for program in programs if program is not None]
