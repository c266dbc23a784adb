"""The cheapest programs between two layouts: which graph to search, and what it finds."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from time import monotonic

from collir.cost.model import CostModel, step_cost
from collir.layout import DistType, Mesh, rules
from collir.synthesis.layouts import LayoutPaths
from collir.synthesis.paths import cheapest
from collir.synthesis.pipelines import chunk_counts, pipelined
from collir.synthesis.states import StatePaths, fits
from collir.synthesis.steps import Candidate, Step, scattered

NEGLIGIBLE = 1e-3
"""Of a value: what is padded without looking for programs that pad less."""


@dataclass(frozen=True)
class Synthesis:
    """The cheapest programs from a layout to another, best first.

    Attributes:
        count: how many programs the graph has; None if they are not counted.
        least: seconds that no program of the graph takes less than, from its bytes and latencies.
        proven: whether the search ended, so that these are the best (in chunks: by a formula).
    """

    candidates: tuple[Candidate, ...]
    count: int | None
    least: float
    proven: bool


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
    if not fits(source, target):
        paths = LayoutPaths(mesh, source, target, model, memory, scale)
        found = cheapest(paths, top, seconds)
        return Synthesis(found.candidates, None, paths.root().bound, found.proven)

    def among(between: Iterable[str] | None) -> StatePaths:
        axes = None if between is None else frozenset(between)
        return StatePaths(mesh, source, target, model, memory, axes, scale)

    every = among(None)
    count = every.count() if counted else None
    end = math.inf if seconds is None else monotonic() + seconds
    results = [cheapest(every, top, seconds)]
    least = every.root().bound
    proven = results[0].proven
    for axes in _smaller(every.between) if every.padding > 1 + NEGLIGIBLE else ():
        if monotonic() > end:
            proven = False
            break
        paths = among(axes)
        results.append(
            cheapest(paths, top, None if seconds is None else max(0.0, end - monotonic()))
        )
        least = min(least, paths.root().bound)
        proven &= results[-1].proven
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
    counts = chunk_counts(chunks, every.most_chunks())
    if counts:
        least = min(least, max(every.busy_left()[every.start()], default=0.0))
    for number in counts:
        if monotonic() > end:
            proven = False
            break
        share = every.padding_in(number) / number
        chunk = StatePaths(mesh, source, target, model, scale=scale * share)
        left = None if seconds is None else max(0.0, end - monotonic())
        worst = in_chunks[top - 1].time if len(in_chunks) >= top else math.inf
        in_chunks += pipelined(chunk, number, left, worst)
        in_chunks.sort(key=_order)
    both = sorted([*listed[:top], *in_chunks[:top]], key=_order)
    return Synthesis(tuple(both), count, least, proven)


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
