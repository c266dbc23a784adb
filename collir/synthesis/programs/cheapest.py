"""The cheapest programs between two layouts: which graph to search, and what it finds."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from time import monotonic

from collir.cost.model import CostModel, step_cost
from collir.layout import DistType, Mesh, rules
from collir.synthesis.programs.layouts import LayoutPaths
from collir.synthesis.programs.paths import Found, cheapest
from collir.synthesis.programs.pipelines import chunk_counts, pipelined
from collir.synthesis.programs.states import StatePaths, is_unordered
from collir.synthesis.programs.steps import Candidate, Step, scattered
from collir.synthesis.searching import TIME, gap_of

NEGLIGIBLE = 1e-3
"""Of a value: what is padded without looking for programs that pad less."""


@dataclass(frozen=True)
class Synthesis:
    """The cheapest programs from a layout to another, best first.

    Attributes:
        count: how many programs the graph has; None if they are not counted.
        least: seconds that no program of the graph takes less than, from its bytes and latencies.
        ended: why the search was cut off, so that there may be better ones; or "".
        gap: how much less than the best another may take, as a part of it; None: not known.
    """

    candidates: tuple[Candidate, ...]
    count: int | None
    least: float
    ended: str
    gap: float | None

    @property
    def proven(self) -> bool:
        """Whether these are the best (in chunks: by a formula)."""
        return not self.ended


def synthesise(
    mesh: Mesh,
    source: DistType,
    target: DistType,
    model: CostModel,
    top: int = 1,
    memory: float | None = None,
    seconds: float | None = None,
    counted: bool = False,
    scale: float = 1.0,
    chunks: int = 1,
) -> Synthesis:
    """The cheapest programs that bring a value from a layout to another.

    Args:
        mesh: placed on levels.
        source: the layout of the operand.
        target: that of the result, of the same shape and dtype.
        model: of the costs.
        top: how many programs; so many again in chunks.
        memory: bytes that operand and result of any step may take together on a device.
        seconds: after which the best so far are returned.
        counted: whether to count all programs.
        scale: how many times as large as its type says the value is taken to be.
        chunks: in how many a program may run at most (see ``pipelines``), where both layouts shard
            the value in an order that programs keep.

    Raises:
        LayoutError: no program leads from one to the other.
        CostError: the mesh is not placed on levels, or too many sub-axes change.
    """
    rules.redistribute(mesh, source, target)
    if not is_unordered(source, target):
        paths = LayoutPaths(mesh, source, target, model, memory, scale)
        found = cheapest(paths, top, seconds)
        return _synthesis(found.candidates, None, paths.root().bound, [found])

    def among(between: Iterable[str] | None) -> StatePaths:
        axes = None if between is None else frozenset(between)
        return StatePaths(mesh, source, target, model, memory, axes, scale)

    every = among(None)
    count = every.count() if counted else None
    end = math.inf if seconds is None else monotonic() + seconds
    results = [cheapest(every, top, seconds)]
    least = every.root().bound
    cut = ""
    for axes in _smaller(every.between) if every.padding > 1 + NEGLIGIBLE else ():
        if monotonic() > end:
            cut = TIME
            break
        paths = among(axes)
        results.append(
            cheapest(paths, top, None if seconds is None else max(0.0, end - monotonic()))
        )
        least = min(least, paths.root().bound)
    by_steps: dict[tuple[Step, ...], Candidate] = {}
    for one in (one for found in results for one in found.candidates):
        known = by_steps.get(one.steps)
        if known is None or one.time < known.time:
            by_steps[one.steps] = one
    listed = list(by_steps.values())
    if 1 < every.padding <= 1 + NEGLIGIBLE:
        listed = [_padded(every, one, model) for one in listed]
    listed.sort(key=_order)
    in_chunks: list[Candidate] = []
    piped: list[Found] = []
    counts = chunk_counts(chunks, every.most_chunks())
    if counts:
        least = min(least, max(every.busy_left()[every.start()], default=0.0))
    for number in counts:
        if monotonic() > end:
            cut = TIME
            break
        share = every.padding_in(number) / number
        chunk = StatePaths(mesh, source, target, model, scale=scale * share)
        left = None if seconds is None else max(0.0, end - monotonic())
        worst = in_chunks[top - 1].time if len(in_chunks) >= top else math.inf
        piped.append(pipelined(chunk, number, left, worst))
        in_chunks = sorted([*in_chunks, *piped[-1].candidates], key=_order)
    both = sorted([*listed[:top], *in_chunks[:top]], key=_order)
    return _synthesis(both, count, least, [*results, *piped], cut)


def _synthesis(
    listed: Sequence[Candidate],
    count: int | None,
    least: float,
    searches: Sequence[Found],
    cut: str = "",
) -> Synthesis:
    """What searches have found; ``cut`` says why others were left out."""
    ended = next(filter(None, (one.ended for one in searches)), cut)
    bounds = [least if cut or one.bound is None else one.bound for one in searches]
    best = listed[0].time if listed else None
    gap = gap_of(best, max(least, min(bounds))) if ended else 0.0
    return Synthesis(tuple(listed), count, least, ended, gap)


def _padded(paths: StatePaths, found: Candidate, model: CostModel) -> Candidate:
    """A program with the costs of what is padded for the sub-axes that it scatters over."""
    factor = paths.padding_for(scattered(found.steps)) / paths.padding
    costs = (step_cost(cost.collective.scaled(factor), model) for cost in found.costs)
    return replace(found, costs=tuple(costs), memory=found.memory * factor)


def _smaller(axes: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """All smaller sets of sub-axes: with fewer of them, less must be padded."""
    for size in range(len(axes)):
        yield from combinations(sorted(axes), size)


def _order(one: Candidate) -> tuple[float, int]:
    return float(f"{one.time:.9e}"), len(one.steps)
