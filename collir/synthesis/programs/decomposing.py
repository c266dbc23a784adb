"""The best programs for the functions of a module: ``decompose`` without a strategy."""

import heapq
from collections.abc import Hashable, Iterable, Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.pattern_rewriter import PatternRewriterListener

from collir.cost.model import step_cost
from collir.cost.programs.collectives import collective_of
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.progress import activity
from collir.syntax.units import seconds_text
from collir.synthesis.programs.choices import Choice, Choices, alike, choices
from collir.synthesis.programs.paying import Kinds, RewriteRank, left_out_of
from collir.synthesis.programs.rewriting import (
    KeptCollective,
    Programs,
    add_copies,
    rewrite,
    searched_in,
    time_with,
    unplaced_in,
)
from collir.synthesis.programs.search_options import SearchOptions
from collir.transforms.loops.straight import on_straight_programs


@on_straight_programs
def decompose_by_search(
    module: ModuleOp, options: SearchOptions, listener: PatternRewriterListener | None = None
) -> list[KeptCollective]:
    """Rewrite every collective and redistribution by the cheapest program, in place.

    An operation that no program beats stays as it is, and so does a collective on no levels.
    With ``top``, the best program of a function takes its place, and the others become functions of
    their own, ``@f_2`` and so on. Programs of a function with several collectives are combinations.

    Returns: the collectives and functions that unexpectedly stay as they are written.

    Raises:
        DiagnosticError: a redistribution is on no levels or has no program (``search_programs``).
    """
    kept: list[KeptCollective] = []
    with meshes_remembered():
        for function in functions_of(module):
            kept += unplaced_in(function)
            best = choices_in(function, options)
            kept += unbeaten(function, best, options)
            listed = [choice.listed for choice in best]
            times = [[time for time, _ in programs] for programs in listed]
            combinations = list(_combinations(times, options.top))
            if not combinations:
                continue
            others = add_copies(module, function, len(combinations) - 1)
            first, *rest = (_picked(listed, combination) for combination in combinations)
            for copy, picked in zip(others, rest, strict=True):
                rewrite(copy, picked, listener)
            rewrite(function, _what_pays(function, first, options), listener)
    return kept


def choices_in(function: FuncOp, options: SearchOptions) -> list[Choices]:
    """Return the best programs for every operation of a function that may have others.

    Operations that are alike, as in the layers of a model, are searched once.

    Raises:
        DiagnosticError: see ``choices``.
    """
    known: dict[Hashable, Choices] = {}
    best: list[Choices] = []
    ops = searched_in(function)
    for number, op in enumerate(ops):
        activity.set(f"{op.mnemonic} {number + 1} of {len(ops)} in @{function.sym_name.data}")
        if alike(op) not in known:
            known[alike(op)] = choices(op, options)
        best.append(known[alike(op)])
    return best


def unbeaten(
    function: FuncOp, best: Sequence[Choices], options: SearchOptions
) -> list[KeptCollective]:
    """Return the operations of a function that no program beats.

    The first of them has one entry for all; so has the first for which no faster program was found
    in time.
    """
    pairs = list(zip(searched_in(function), best, strict=True))
    kept: list[KeptCollective] = []
    for cut in (False, True):
        alone = [(op, choice) for op, choice in pairs if choice.keeps and bool(choice.ended) is cut]
        if not alone:
            continue
        op, choice = alone[0]
        step = collective_of(op, mesh_of(op)).scaled(options.scale)
        what = f"this {op.mnemonic}"
        if step.axes:
            what += f" over {', '.join(step.mesh.short(step.axes))}"
        if len(alone) > 1:
            what += f" and {len(alone) - 1} more of @{function.sym_name.data}"
        if cut:
            why = "no faster program was found before the search was cut off"
        elif any(choice.gap for _, choice in alone):
            why = "no sequence of steps that was timed is faster"
        elif len(alone) > 1:
            why = "no sequence of steps is faster (proven)"
        else:
            time = seconds_text(choice.listed[0][0])
            least = seconds_text(step_cost(step, options.model).shared_bound)
            why = f"no sequence of steps is faster than {time} (proven; lower bound {least})"
        kept.append(KeptCollective(op, what, why))
    return kept


def _what_pays(function: FuncOp, picked: Programs, options: SearchOptions) -> Programs:
    """Return the programs that make a function no slower as a whole, where steps overlap and values
    lie in buffers. An operation without one stays as it is written."""
    ops, model = searched_in(function), options.model

    def without(left_out: Kinds) -> Programs:
        pairs = zip(ops, picked, strict=True)
        return tuple(
            x if op.kind.placeholder or alike(op) not in left_out else None for op, x in pairs
        )

    kinds = {alike(op): x for op, x in zip(ops, picked, strict=True) if not op.kind.placeholder}
    made = [kind for kind, program in kinds.items() if program is not None]
    if not made:
        return picked
    try:
        before = time_with(function, without(frozenset(made)), model)

        def tried(left_out: Kinds) -> tuple[RewriteRank, Iterable[Hashable]]:
            time = time_with(function, without(left_out), model)
            return RewriteRank.of(time, before), [kind for kind in made if kind not in left_out]

        left_out = left_out_of(function, "decompose", tried)
    except DiagnosticError:  # a step has no time, so nothing is known of the whole
        return picked
    return without(frozenset(made) if left_out is None else left_out)


def _combinations(times: Sequence[Sequence[float]], top: int) -> Iterator[tuple[int, ...]]:
    """Yield choices of an entry from each list, in the order of their sums."""
    if not times:
        return
    first: tuple[int, ...] = (0,) * len(times)
    heap: list[tuple[float, tuple[int, ...]]] = [(sum(listed[0] for listed in times), first)]
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


def _picked(listed: Sequence[Sequence[Choice]], picked: Sequence[int]) -> Programs:
    return tuple(choices[index][1] for choices, index in zip(listed, picked, strict=True))
