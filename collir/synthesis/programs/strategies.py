"""Collectives as sequences of cheaper steps: what ``decompose`` does, by a fixed strategy or the
best that a search finds."""

import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriterListener
from xdsl.rewriter import InsertPoint

from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.cost import collective_of, program_cost
from collir.cost.programs.simulation import simulate_function
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_collective, is_placeholder
from collir.dialects.tensor import AxesAttr, dist_type
from collir.ir.alternatives import FOR, FROM
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of, scratch_copy
from collir.ir.names import unused_symbol
from collir.ir.progress import activity
from collir.ir.remarks import remark
from collir.layout import LayoutError, Mesh, unplaced_message
from collir.layout.steps import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    REDUCE_SCATTER,
    StepKind,
)
from collir.syntax.units import seconds_text
from collir.synthesis.programs.build import build
from collir.synthesis.programs.cheapest import Synthesis, synthesise
from collir.synthesis.programs.steps import Candidate, Pipeline, Step
from collir.synthesis.searching import remark_cut_off

TIE = 1e-9
"""Times that differ by less, as a part of them, are the same."""

Axes = tuple[str, ...]
Strategy = Literal["rs-ar-ag", "reduce-ar-bcast", "ar-per-level", "flat"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
"""The names of the strategies."""


@dataclass(frozen=True)
class Program:
    """Steps in a row, or on chunks."""

    steps: tuple[Step, ...]
    pipeline: Pipeline | None = None

    def texts(self, mesh: Mesh) -> list[str]:
        """The steps for people."""
        found = [f"{step.kind} {', '.join(mesh.short(step.axes))}" for step in self.steps]
        if self.pipeline:
            found[-1] += f", all in {self.pipeline.chunks} chunks"
        return found


# ---------------------------------------------------------------------------------------------
# Fixed strategies
# ---------------------------------------------------------------------------------------------


def axes_by_level(mesh: Mesh, axes: Axes) -> list[Axes]:
    """Sub-axes grouped by their level, outermost first; the order inside a level is kept."""
    levels = [level.name for level in mesh.machine.levels]
    groups = [tuple(a for a in axes if mesh.by_name[a].level == level) for level in levels]
    return [group for group in groups if group]


def _around(before: StepKind, after: StepKind) -> Callable[[list[Axes]], Program]:
    """A step on every inner level, an all_reduce over the outermost, and the way back."""

    def program(levels: list[Axes]) -> Program:
        outermost, *inner = levels
        into = tuple(Step(before.name, axes) for axes in reversed(inner))
        out = tuple(Step(after.name, axes) for axes in inner)
        return Program((*into, Step(ALL_REDUCE.name, outermost), *out))

    return program


def _each(levels: list[Axes]) -> Program:
    return Program(tuple(Step(ALL_REDUCE.name, axes) for axes in reversed(levels)))


_PROGRAMS: dict[str, Callable[[list[Axes]], Program]] = {
    "rs-ar-ag": _around(REDUCE_SCATTER, ALL_GATHER),
    "reduce-ar-bcast": _around(REDUCE, BROADCAST),
    "ar-per-level": _each,
}


def decompose(
    module: ModuleOp, strategy: str, listener: PatternRewriterListener | None = None
) -> list["KeptCollective"]:
    """Rewrites every all_reduce over several levels by a strategy, in place.

    Returns: what stays as it is written, where that may not be expected.

    Raises:
        DiagnosticError: a tensor so large that no padding fits.
    """
    kept: list[KeptCollective] = []
    if strategy == "flat":
        return kept
    for function in functions_of(module):
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


def put(op: DistOp, program: Program, listener: PatternRewriterListener | None) -> None:
    """Puts a program in the place of an operation.

    Raises:
        DiagnosticError: a tensor so large that no padding fits.
    """
    try:
        mesh, target = mesh_of(op), dist_type(op.result)
        ops, value = build(mesh, op.operands[0], program.steps, target, program.pipeline)
    except LayoutError as error:
        message = f"this {op.mnemonic} cannot be decomposed: {error.text(op.operand_names())}"
        raise DiagnosticError.at(op, message) from error
    for step in ops if op.is_async else ():
        if isinstance(step, DistOp) and step.kind.may_be_async:
            step.properties["async"] = UnitAttr()
    rewriter = PatternRewriter(op)
    if listener is not None:
        rewriter.extend_from_listener(listener)
    rewriter.insert(ops, InsertPoint.before(op))
    rewriter.replace(op, [], [value])


# ---------------------------------------------------------------------------------------------
# Searched ones
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes:
        top: how many programs.
        memory: what a step may need, operand and result together, as a multiple of what those of
            the whole do; None: anything.
        seconds: after which the best so far are taken; None: never.
        counted: whether to count all programs.
        scale: how many times as large as their types say values are taken to be.
        chunks: in how many a program may run at most.
    """

    model: CostModel
    top: int = 1
    memory: float | None = None
    seconds: float | None = None
    counted: bool = False
    scale: float = 1.0
    chunks: int = 1


def needs_search(op: Operation) -> bool:
    """Whether other programs may take the place of an operation: a collective that does not say
    which algorithm it is to be, on levels; or a redistribution."""
    if is_placeholder(op):
        return True
    return is_collective(op) and "algorithm" not in op.properties


def placed_mesh(op: DistOp) -> Mesh:
    """The mesh of an operation.

    Raises:
        DiagnosticError: it is not on levels.
    """
    mesh = mesh_of(op)
    if not mesh.placed:
        raise DiagnosticError.at(op, unplaced_message(mesh))
    return mesh


def search_programs(op: DistOp, wanted: SearchOptions) -> Synthesis:
    """The cheapest programs that do what an operation does.

    Raises:
        DiagnosticError: the mesh is not on levels, or too many sub-axes take part.
    """
    mesh = placed_mesh(op)
    source, target = dist_type(op.operands[0]), dist_type(op.result)
    memory = None
    if wanted.memory is not None:
        memory = wanted.memory * (source.local_bytes(mesh) + target.local_bytes(mesh))
    try:
        found = synthesise(
            mesh,
            source,
            target,
            wanted.model,
            wanted.top,
            memory,
            wanted.seconds,
            wanted.counted,
            wanted.scale,
            wanted.chunks,
        )
    except (CostError, LayoutError) as error:
        raise DiagnosticError.at(op, str(error)) from error
    if found.ended:
        remark_cut_off(
            op, f"programs of this {op.mnemonic}", found.ended, wanted.seconds, found.gap
        )
    return found


def pareto_programs(op: DistOp, wanted: SearchOptions) -> tuple[list[Candidate], str]:
    """The programs than which none is cheaper and needs no more memory, cheapest first.

    Each is the cheapest one that needs less than the one before: memory is what operand and result
    of a step take together, at most.

    Returns: the programs; and why a search was cut off, so that others may be missing, or "".

    Raises:
        DiagnosticError: see ``search_programs``.
    """
    mesh, ended = mesh_of(op), ""
    ends = sum(dist_type(value).local_bytes(mesh) for value in (op.operands[0], op.result))
    found: list[Candidate] = []
    while len(found) < wanted.top:
        below = wanted.memory if not found else found[-1].memory / ends * (1 - 1e-9)
        outcome = search_programs(op, replace(wanted, memory=below, top=1))
        better, ended = outcome.candidates, ended or outcome.ended
        if not better:
            break
        if found and better[0].time <= found[-1].time * (1 + 1e-9):
            found.pop()
        found.append(better[0])
    return found, ended


@dataclass(frozen=True)
class KeptCollective:
    """What stays as it is written, and why, in words."""

    op: Operation
    what: str
    why: str


def synthesised(
    module: ModuleOp, wanted: SearchOptions, listener: PatternRewriterListener | None = None
) -> list[KeptCollective]:
    """Rewrites every collective and redistribution by the cheapest program, in place.

    What no program beats stays as it is written, and so does what is on no levels. Of ``top``
    programs for a function, those behind the best one become functions of their own, ``@f_2`` and
    so on; where it has several collectives they are the best combinations.

    Returns: what stays as it is written, where that may not be expected.

    Raises:
        DiagnosticError: a redistribution is on no levels or has no program (``search_programs``).
    """
    kept: list[KeptCollective] = []
    with meshes_remembered():
        for function in functions_of(module):
            kept += unplaced_in(function)
            each = choices_in(function, wanted)
            kept += unbeaten(function, each, wanted)
            found = [one.listed for one in each]
            combined = list(_combined([[time for time, _ in one] for one in found], wanted.top))
            if not combined:
                continue
            others = copies(module, function, len(combined) - 1)
            for copy, combination in zip((function, *others), combined, strict=True):
                picked = _picked(found, combination)
                if not _rewritten_if_it_pays(copy, picked, wanted, listener) and any(picked):
                    kept.append(KeptCollective(copy, f"@{copy.sym_name.data}", _LATER))
    return kept


_LATER = (
    "the programs that are the cheapest alone keep others waiting, so that all of it takes longer"
)


def unplaced_in(function: FuncOp) -> list[KeptCollective]:
    """The function, if it has collectives that could become others if its mesh were on levels."""
    if (mesh := mesh_of(function)).placed or not any(map(needs_search, function.body.ops)):
        return []
    return [
        KeptCollective(
            function,
            f"@{function.sym_name.data}",
            f"mesh @{mesh.name} is not on levels: -p place,decompose chooses some",
        )
    ]


def unbeaten(
    function: FuncOp, found: Sequence["Choices"], wanted: SearchOptions
) -> list[KeptCollective]:
    """The operations of a function that no program beats, as one, at the first of them; and those
    for which none was found in time."""
    both = list(zip(searched_in(function), found, strict=True))
    kept: list[KeptCollective] = []
    for cut in (False, True):
        alone = [(op, one) for op, one in both if one.keeps and bool(one.ended) is cut]
        if not alone:
            continue
        op, one = alone[0]
        step = collective_of(op, mesh_of(op)).scaled(wanted.scale)
        what = f"this {op.mnemonic}"
        if step.axes:
            what += f" over {', '.join(step.mesh.short(step.axes))}"
        if len(alone) > 1:
            what += f" and {len(alone) - 1} more of @{function.sym_name.data}"
        if cut:
            why = "no faster program was found before the search was cut off"
        elif len(alone) > 1:
            why = "no sequence of steps is faster (proven)"
        else:
            time = seconds_text(one.listed[0][0])
            least = seconds_text(step_cost(step, wanted.model).shared_bound)
            why = f"no sequence of steps is faster than {time} (proven; lower bound {least})"
        kept.append(KeptCollective(op, what, why))
    return kept


def _rewritten_if_it_pays(
    function: FuncOp,
    picked: "Programs",
    wanted: SearchOptions,
    listener: PatternRewriterListener | None,
) -> bool:
    """Whether a function was rewritten; where steps are under way at the same time, only if all of
    it is no slower then: what is cheaper alone may keep others waiting."""
    under_way = any("async" in op.properties for op in function.body.ops)
    if not under_way or any(map(is_placeholder, function.body.ops)):
        rewrite(function, picked, listener)
        return True
    before = simulate_function(function, wanted.model).time
    with scratch_copy(function) as copy:
        rewrite(copy, picked, None)
        after = simulate_function(copy, wanted.model).time
    if after <= before * (1 + TIE):
        rewrite(function, picked, listener)
        return True
    return False


def copies(module: ModuleOp, function: FuncOp, count: int) -> list[FuncOp]:
    """Copies of a function behind it, ``@f_2`` and so on, which take no other's place."""
    made: list[FuncOp] = []
    for number in range(2, count + 2):
        copy = function.clone()
        name = unused_symbol(module, f"{function.sym_name.data}_{number}")
        copy.properties["sym_name"] = StringAttr(name)
        for attribute in (FOR, FROM):
            copy.attributes.pop(attribute, None)
        made.append(copy)
    module.body.block.insert_ops_after(made, function)
    return made


def searched_in(function: FuncOp) -> list[DistOp]:
    """The operations of a function in whose place other programs may be."""
    placed = mesh_of(function).placed
    return [
        op
        for op in function.body.ops
        if isinstance(op, DistOp) and needs_search(op) and (placed or op.kind.placeholder)
    ]


def why_none(found: Synthesis, limited: bool) -> str:
    """Why there is no program."""
    if not found.proven:
        return "no program was found in the time given: a greater limit may help"
    return f"no program does this{' within so much memory' if limited else ''}"


Choice = tuple[float, Program | None]
"""Seconds, and the program; None: the operation stays as it is."""


@dataclass(frozen=True)
class Choices:
    """The best programs for an operation, best first, and why the search was cut off, or ""."""

    listed: list[Choice]
    ended: str

    @property
    def keeps(self) -> bool:
        """Whether the operation as it is written is the best, and has a cost."""
        time, program = self.listed[0]
        return program is None and time > 0


Programs = tuple[Program | None, ...]
"""A choice for every operation of a function that has one."""


def choices(op: DistOp, wanted: SearchOptions) -> Choices:
    """The best programs for an operation, best first; among them what it is itself.

    Raises:
        DiagnosticError: a redistribution has no program; see ``search_programs``.
    """
    found = search_programs(op, wanted)
    built = (
        _built(op, Program(one.steps, one.pipeline), wanted)
        if one.pipeline
        else (one.time, Program(one.steps))
        for one in found.candidates
    )
    listed: list[Choice] = list(filter(None, built))
    if wanted.chunks > 1:
        listed.sort(key=lambda one: one[0])
    if op.kind.placeholder:
        if not listed:
            raise DiagnosticError.at(op, why_none(found, wanted.memory is not None))
        return Choices(listed, found.ended)
    try:
        step = collective_of(op, mesh_of(op)).scaled(wanted.scale)
        own = step_cost(step, wanted.model).time
    except CostError:  # but others may have one
        return Choices(listed or [(0.0, None)], found.ended)
    better = [one for one in listed if one[0] < own * (1 - TIE)]
    others = [one for one in listed[len(better) :] if not _same(op, one[1])]
    return Choices([*better, (own, None), *others][: wanted.top], found.ended)


def alike(op: DistOp) -> Hashable:
    """What operations share for which the same programs are the best."""
    return op.name, frozenset(op.properties.items()), op.operands[0].type, op.result.type


def choices_in(function: FuncOp, wanted: SearchOptions) -> list[Choices]:
    """The best programs for every operation of a function that may have others. Those that are
    alike, as in the layers of a model, are searched once.

    Raises:
        DiagnosticError: see ``choices``.
    """
    known: dict[Hashable, Choices] = {}
    found: list[Choices] = []
    every = searched_in(function)
    for number, op in enumerate(every):
        activity.set(f"{op.mnemonic} {number + 1} of {len(every)} in @{function.sym_name.data}")
        if alike(op) not in known:
            known[alike(op)] = choices(op, wanted)
        found.append(known[alike(op)])
    return found


def _built(op: DistOp, program: Program, wanted: SearchOptions) -> Choice | None:
    """A program on chunks with what it takes once it is built: what is packed between steps is
    waited for. None: the value is too large to be padded."""
    mesh, block = mesh_of(op), Block(arg_types=[op.operands[0].type])
    try:
        ops, _ = build(mesh, block.args[0], program.steps, dist_type(op.result), program.pipeline)
    except LayoutError:
        return None
    return program_cost("", ops, mesh, wanted.model).scaled(wanted.scale).time, program


def _same(op: DistOp, program: Program | None) -> bool:
    """Whether a program is the operation, but for the order of its ranks."""
    axes = op.properties.get("axes")
    if program is None or len(program.steps) != 1 or program.pipeline is not None:
        return False
    step = program.steps[0]
    return step.kind == op.mnemonic and (
        not isinstance(axes, AxesAttr) or set(axes.data) == set(step.axes)
    )


def _combined(times: Sequence[Sequence[float]], top: int) -> Iterator[tuple[int, ...]]:
    """The choices of one of each, of the least sums first."""
    if not times:
        return
    first: tuple[int, ...] = (0,) * len(times)
    heap: list[tuple[float, tuple[int, ...]]] = [(sum(one[0] for one in times), first)]
    seen: set[tuple[int, ...]] = {first}
    while heap and top:
        total, picked = heapq.heappop(heap)
        yield picked
        top -= 1
        for place, index in enumerate(picked):
            after = (*picked[:place], index + 1, *picked[place + 1 :])
            if index + 1 < len(times[place]) and after not in seen:
                seen.add(after)
                more = times[place][index + 1] - times[place][index]
                heapq.heappush(heap, (total + more, after))


def _picked(found: Sequence[Sequence[Choice]], picked: Sequence[int]) -> Programs:
    return tuple(choice[index][1] for choice, index in zip(found, picked, strict=True))


def rewrite(function: FuncOp, picked: Programs, listener: PatternRewriterListener | None) -> None:
    """Puts programs in the place of the operations of a function.

    Raises:
        DiagnosticError: a tensor so large that no padding fits.
    """
    for op, program in zip(searched_in(function), picked, strict=True):
        if program is not None:
            if listener is not None:  # otherwise it is a trial
                _tell_of_copies(op, program)
            put(op, program, listener)


def _tell_of_copies(op: DistOp, program: Program) -> None:
    """Remark that a program goes over sub-axes along which devices hold copies of the operand.

    Where these differ, against the types, such a program computes a mixture of them.
    """
    mesh = mesh_of(op)
    named = {*dist_type(op.input).axes, *dist_type(op.result).axes}
    used = {axis for step in program.steps for axis in step.axes} - named
    if used:
        (operand, *_), axes = op.operand_names(), ", ".join(mesh.short(mesh.ordered(used)))
        same = f"{operand} is the same on every coordinate of {axes}"
        remark(op, f"the program in its place uses that {same}")
