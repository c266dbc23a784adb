"""The best programs for one collective or redistribution, found from types alone."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation

from collir.cost.model import step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.collectives import collective_of
from collir.cost.steps import seconds_sent
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, is_collective, is_placeholder
from collir.dialects.tensor import AxesAttr, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.remarks import remark
from collir.layout import DistType, LayoutError, Mesh, unplaced_message
from collir.synthesis.programs.cheapest import Synthesis
from collir.synthesis.programs.fixed import fixed_programs
from collir.synthesis.programs.pricing import Priced, Pricing, programs_between
from collir.synthesis.programs.search_options import TIE, SearchOptions
from collir.synthesis.programs.steps import Program
from collir.synthesis.searching import MOST_PROGRAMS, TIMED, record_cut_off, remark_cut_off


def needs_search(op: Operation) -> bool:
    """Return whether other programs may take the place of an operation.

    They may replace a redistribution, a permute, and a collective that searches know, unless it
    names its algorithm.
    """
    if is_placeholder(op):
        return True
    if not is_collective(op) or "algorithm" in op.properties:
        return False
    return op.kind.is_searched or (op.kind.before is None and op.kind.layout_only)


def placed_mesh(op: DistOp) -> Mesh:
    """Return the mesh of an operation.

    Raises:
        DiagnosticError: the mesh is not placed on levels.
    """
    mesh = mesh_of(op)
    if not mesh.placed:
        raise DiagnosticError.at(op, unplaced_message(mesh))
    return mesh


# ---------------------------------------------------------------------------------------------
# Searches
# ---------------------------------------------------------------------------------------------


def search_programs(op: DistOp, options: SearchOptions) -> Synthesis:
    """Return the cheapest programs that do what an operation does.

    Raises:
        DiagnosticError: the mesh is not placed on levels, or too many sub-axes take part.
    """
    mesh = placed_mesh(op)
    source, target = dist_type(op.operands[0]), dist_type(op.result)
    try:
        synthesis = programs_between(mesh, source, target, options)
    except (CostError, LayoutError) as error:
        raise DiagnosticError.at(op, str(error)) from error
    if synthesis.ended:
        what = f"programs of this {op.mnemonic}"
        remark_cut_off(op, what, synthesis.ended, options.seconds, synthesis.gap)
    return synthesis


def _why_none(cut: bool, limited: bool) -> str:
    """Return the reason why no program was found; ``cut``: whether the search was cut off;
    ``limited``: whether memory was limited."""
    if cut:
        return "no program was found in the time given: a greater limit may help"
    return f"no program does this{' within so much memory' if limited else ''}"


# ---------------------------------------------------------------------------------------------
# Choices
# ---------------------------------------------------------------------------------------------

Choice = tuple[float, Program | None]
"""Seconds, and the program that takes them; None keeps the operation as written."""


@dataclass(frozen=True)
class Choices:
    """The best programs for an operation.

    Attributes:
        listed: the programs, best first.
        ended: why the search was cut off, or "".
        gap: by how much an untimed program may be faster, relative to the best; 0: none is.
    """

    listed: Sequence[Choice]
    ended: str
    gap: float = 0.0

    @property
    def keeps(self) -> bool:
        """True if the operation as written has a cost and is the best choice."""
        time, program = self.listed[0]
        return program is None and time > 0


def alike(op: DistOp) -> Hashable:
    """Return a key; operations with equal keys have the same best programs."""
    types = op.operands[0].type, op.result.type
    return op.name, frozenset(op.properties.items()), *types, _is_returned(op)


def _is_returned(op: DistOp) -> bool:
    return any(isinstance(use.operation, ReturnOp) for use in op.result.uses)


def choices(op: DistOp, options: SearchOptions) -> Choices:
    """Return the best programs for an operation, best first.

    A collective competes with them as it is written; a redistribution has to be replaced.

    Raises:
        DiagnosticError: a redistribution has no program; or as for ``search_programs``.
    """
    own = _own_seconds(op, options)
    priced = priced_programs(op, options, own)
    if op.kind.placeholder and not priced.candidates:
        raise DiagnosticError.at(op, _why_none(bool(priced.ended), options.memory is not None))
    listed = [(candidate.time, candidate.program) for candidate in priced.candidates]
    if own is None:  # other programs may have a cost
        return Choices(listed or [(0.0, None)], priced.ended, priced.gap)
    better = [choice for choice in listed if choice[0] < own * (1 - TIE)]
    others = [choice for choice in listed[len(better) :] if not _same(op, choice[1])]
    return Choices([*better, (own, None), *others][: options.top], priced.ended, priced.gap)


def priced_programs(op: DistOp, options: SearchOptions, own: float | None) -> Priced:
    """Return the best programs that replace an operation, with all of their seconds, and a remark
    if others may be faster.

    Args:
        own: the seconds of the operation as it is written; None: it has no cost.

    Raises:
        DiagnosticError: see ``search_programs``.
    """
    mesh = placed_mesh(op)
    priced = Pricing(
        mesh,
        dist_type(op.operands[0]),
        dist_type(op.result),
        options,
        _is_returned(op),
        math.inf if own is None else own,
        fixed_programs(op, mesh) if options.memory is None else (),
    ).best(lambda top: search_programs(op, replace(options, top=top)))
    if priced.gap and not record_cut_off(TIMED, options.seconds):
        remark(
            op,
            f"of the programs of this {op.mnemonic}, the {MOST_PROGRAMS} that send for the "
            "shortest time were timed with what devices copy: another may be faster by up to "
            f"{100 * priced.gap:.2g} %",
        )
    return priced


def _own_seconds(op: DistOp, options: SearchOptions) -> float | None:
    """Return the seconds of an operation as written; None without a cost or for a
    redistribution."""
    if op.kind.placeholder:
        return None
    try:
        step = collective_of(op, mesh_of(op)).scaled(options.scale)
        return seconds_sent(step_cost(step, options.model))
    except CostError:
        return None


def best_between(
    mesh: Mesh, source: DistType, target: DistType, options: SearchOptions
) -> tuple[float, Program] | None:
    """Return the seconds of the best program from one layout to another, and the program.

    The result is None if there is no program. It is also None if no search is possible, because the
    mesh is not placed on levels or too many sub-axes change.
    """
    if not mesh.placed:
        return None

    try:
        synthesis = Pricing(mesh, source, target, options).searched()
    except (CostError, LayoutError):
        return None
    if synthesis.cut:
        record_cut_off(synthesis.cut, options.seconds)
    best = next(iter(synthesis.candidates), None)
    return (best.time, best.program) if best else None


def _same(op: DistOp, program: Program | None) -> bool:
    """Return whether a program is the operation itself, if the order of ranks is ignored."""
    axes = op.properties.get("axes")
    if program is None or len(program.steps) != 1 or program.pipeline is not None:
        return False
    step = program.steps[0]
    return step.kind == op.mnemonic and (
        not isinstance(axes, AxesAttr) or set(axes.data) == set(step.axes)
    )
