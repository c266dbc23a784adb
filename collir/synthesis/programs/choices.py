"""The best programs for one collective or redistribution, found from types alone."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation

from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.cost import collective_of, program_cost
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, is_collective, is_placeholder
from collir.dialects.tensor import AxesAttr, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import DistType, LayoutError, Mesh, unplaced_message
from collir.synthesis.programs.build import planned
from collir.synthesis.programs.cheapest import Synthesis, synthesise
from collir.synthesis.programs.steps import Candidate, Program
from collir.synthesis.searching import record_cut_off, remark_cut_off

TIE = 1e-9
"""The relative difference below which two times count as equal."""


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search for programs.

    Attributes:
        model: the cost model.
        top: how many programs to return.
        memory: the limit on the bytes of a step's operand and result together, as a multiple of the
            bytes of the whole program's operand and result together; None: no limit.
        seconds: the time limit, after which the best so far are returned; None: no limit.
        counted: whether to count all programs.
        scale: the factor by which the sizes of values are multiplied.
        chunks: the most chunks into which a program may cut its value.
    """

    model: CostModel
    top: int = 1
    memory: float | None = None
    seconds: float | None = None
    counted: bool = False
    scale: float = 1.0
    chunks: int = 1


def needs_search(op: Operation) -> bool:
    """Return whether other programs may take the place of an operation.

    They may replace a redistribution, a permute, and a collective that searches know and that does
    not say which algorithm it uses.
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


def programs_between(
    mesh: Mesh, source: DistType, target: DistType, options: SearchOptions
) -> Synthesis:
    """Return the cheapest programs from one layout to another.

    Raises:
        CostError, LayoutError: see ``synthesise``.
    """
    memory = None
    if options.memory is not None:
        memory = options.memory * (source.local_bytes(mesh) + target.local_bytes(mesh))
    return synthesise(
        mesh,
        source,
        target,
        options.model,
        options.top,
        memory,
        options.seconds,
        options.counted,
        options.scale,
        options.chunks,
    )


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


def pareto_programs(op: DistOp, options: SearchOptions) -> tuple[list[Candidate], str]:
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
    front: list[Candidate] = []
    while len(front) < options.top:
        memory = front[-1].memory / end_bytes * (1 - 1e-9) if front else options.memory
        synthesis = search_programs(op, replace(options, memory=memory, top=1))
        ended = ended or synthesis.ended
        if not synthesis.candidates:
            break
        best = synthesis.candidates[0]
        if front and best.time <= front[-1].time * (1 + 1e-9):
            front.pop()
        front.append(best)
    return front, ended


def why_none(synthesis: Synthesis, limited: bool) -> str:
    """Return the reason why no program was found; ``limited``: whether memory was limited."""
    if not synthesis.proven:
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
    """

    listed: Sequence[Choice]
    ended: str

    @property
    def keeps(self) -> bool:
        """True if the operation as written has a cost and is the best choice."""
        time, program = self.listed[0]
        return program is None and time > 0


def alike(op: DistOp) -> Hashable:
    """Return a key; operations with equal keys have the same best programs."""
    return op.name, frozenset(op.properties.items()), op.operands[0].type, op.result.type


def choices(op: DistOp, options: SearchOptions) -> Choices:
    """Return the best programs for an operation, best first.

    A collective competes with them as it is written; a redistribution has to be replaced.

    Raises:
        DiagnosticError: a redistribution has no program; or as for ``search_programs``.
    """
    synthesis = search_programs(op, options)
    ends = dist_type(op.operands[0]), dist_type(op.result)
    listed = _choices_among(synthesis.candidates, mesh_of(op), *ends, options)
    if op.kind.placeholder:
        if not listed:
            raise DiagnosticError.at(op, why_none(synthesis, options.memory is not None))
        return Choices(listed, synthesis.ended)
    try:
        step = collective_of(op, mesh_of(op)).scaled(options.scale)
        own = step_cost(step, options.model).time
    except CostError:  # other programs may have a cost
        return Choices(listed or [(0.0, None)], synthesis.ended)
    better = [choice for choice in listed if choice[0] < own * (1 - TIE)]
    others = [choice for choice in listed[len(better) :] if not _same(op, choice[1])]
    return Choices([*better, (own, None), *others][: options.top], synthesis.ended)


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
        synthesis = programs_between(mesh, source, target, options)
    except (CostError, LayoutError):
        return None
    if synthesis.ended:
        record_cut_off(synthesis.ended, options.seconds)
    listed = _choices_among(synthesis.candidates, mesh, source, target, options)
    return listed[0] if listed else None


def _choices_among(
    candidates: Iterable[Candidate],
    mesh: Mesh,
    source: DistType,
    target: DistType,
    options: SearchOptions,
) -> list[tuple[float, Program]]:
    """Return programs with their seconds, best first.

    A program in chunks is built before it is timed, because its steps may have to wait while values
    are packed between them. It is left out if it cannot be built, which is so where the value is
    too large to be padded.
    """
    listed: list[tuple[float, Program]] = []
    for candidate in candidates:
        time = candidate.time
        if candidate.pipeline:
            try:
                plan = planned(mesh, source, candidate.steps, target, candidate.pipeline)
            except LayoutError:
                continue
            time = program_cost("", plan.steps, mesh, options.model).scaled(options.scale).time
        listed.append((time, candidate.program))
    if options.chunks > 1:
        listed.sort(key=lambda choice: choice[0])
    return listed


def _same(op: DistOp, program: Program | None) -> bool:
    """Return whether a program is the operation itself, if the order of ranks is ignored."""
    axes = op.properties.get("axes")
    if program is None or len(program.steps) != 1 or program.pipeline is not None:
        return False
    step = program.steps[0]
    return step.kind == op.mnemonic and (
        not isinstance(axes, AxesAttr) or set(axes.data) == set(step.axes)
    )
