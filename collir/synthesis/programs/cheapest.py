"""The cheapest programs between two layouts, searched in the graph that suits them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from time import monotonic

from collir.cost.model import CostModel, step_cost
from collir.layout import DistType, Mesh, rules
from collir.layout.types import without_formulas
from collir.synthesis.programs.layouts import LayoutPaths
from collir.synthesis.programs.paths import CheapestPrograms, cheapest
from collir.synthesis.programs.pipelines import chunk_counts, pipelined
from collir.synthesis.programs.states import StatePaths, is_unordered
from collir.synthesis.programs.steps import CollectiveStep, StepSequence, scattered
from collir.synthesis.searching import TIME, gap_of

NEGLIGIBLE = 1e-3
"""The share of a value that may be padded without a search for programs that pad less."""


@dataclass(frozen=True)
class Synthesis:
    """The cheapest programs from a layout to another, best first.

    Attributes:
        least: a lower bound on the seconds of all programs, from bytes and latencies.
        ended: why the search was cut off, so that there may be better programs; or "".
        gap: by how much another program may be faster, relative to the best; None: not known.
    """

    candidates: tuple[StepSequence, ...]
    least: float
    ended: str
    gap: float | None

    @property
    def proven(self) -> bool:
        """True if the candidates are the best (in chunks: by a formula)."""
        return not self.ended


def synthesise(
    mesh: Mesh,
    source: DistType,
    target: DistType,
    model: CostModel,
    top: int = 1,
    memory: float | None = None,
    seconds: float | None = None,
    scale: float = 1.0,
    chunks: int = 1,
    without: frozenset[str] = frozenset(),
) -> Synthesis:
    """Return the cheapest programs that bring a value from a layout to another.

    Args:
        mesh: placed on levels.
        source: the layout of the operand.
        target: the layout of the result, of the same shape and dtype.
        model: the cost model.
        top: how many programs to return, on the whole value and again in chunks.
        memory: the most bytes that operand and result of a step may take together on a device.
        seconds: the time limit, after which the best so far are returned.
        scale: the factor by which the size of the value is multiplied.
        chunks: the most chunks that a program may run on (see ``pipelines``), where the order of
            shards does not matter and no axis with weights cuts the value.
        without: sub-axes over which no program cuts a value that is whole at both ends.

    Raises:
        LayoutError: no program leads from one to the other.
        CostError: the mesh is not placed on levels, or too many sub-axes change.
    """
    # Searches compare and remember types by their sizes; plans are typed with formulas again.
    source, target = without_formulas(source), without_formulas(target)
    rules.redistribute(mesh, source, target)
    if not is_unordered(source, target) or not mesh.uneven.keys().isdisjoint(
        (*source.axes, *target.axes)
    ):
        paths = LayoutPaths(mesh, source, target, model, memory, scale, without)
        programs = cheapest(paths, top, seconds)
        return _synthesis(programs.candidates, paths.root().bound, [programs])
    search = _UnorderedSearch(mesh, source, target, model, top, memory, seconds, scale, without)
    plain = search.programs()
    in_chunks = search.programs_in_chunks(chunks)
    listed = sorted([*plain[:top], *in_chunks[:top]], key=order)
    return _synthesis(listed, search.least, search.results, search.cut)


class _UnorderedSearch:
    """A search for programs between two layouts in which the order of shards does not matter.

    Attributes:
        paths: all programs on the whole value.
        least: a lower bound on the seconds of all programs that were searched.
        results: the results of the searches so far.
        cut: why other searches were left out, or "".
    """

    def __init__(
        self,
        mesh: Mesh,
        source: DistType,
        target: DistType,
        model: CostModel,
        top: int,
        memory: float | None,
        seconds: float | None,
        scale: float,
        without: frozenset[str],
    ):
        self._paths = partial(StatePaths, mesh, source, target, model, without=without)
        self.top, self.memory, self.scale, self.model = top, memory, scale, model
        self.paths = self._paths(memory, scale=scale)
        self.least = self.paths.root().bound
        self.results: list[CheapestPrograms] = []
        self.cut = ""
        self._end = math.inf if seconds is None else monotonic() + seconds

    def _seconds_left(self) -> float | None:
        return None if math.isinf(self._end) else max(0.0, self._end - monotonic())

    def _ended(self) -> bool:
        """Return whether the time is over; if so, more searches are left out."""
        if monotonic() > self._end:
            self.cut = TIME
        return bool(self.cut)

    def programs(self) -> list[StepSequence]:
        """Return the cheapest programs on the whole value, best first.

        Where the value must be padded to divide among all sub-axes that may shard it, programs over
        fewer of them, which pad less, are searched apart.
        """
        self.results.append(cheapest(self.paths, self.top, self._seconds_left()))
        padding = self.paths.padding
        for axes in _smaller(self.paths.between) if padding > 1 + NEGLIGIBLE else ():
            if self._ended():
                break
            paths = self._paths(self.memory, frozenset(axes), self.scale)
            self.results.append(cheapest(paths, self.top, self._seconds_left()))
            self.least = min(self.least, paths.root().bound)
        by_steps: dict[tuple[CollectiveStep, ...], StepSequence] = {}
        for candidate in (c for result in self.results for c in result.candidates):
            known = by_steps.get(candidate.steps)
            if known is None or candidate.time < known.time:
                by_steps[candidate.steps] = candidate
        listed = list(by_steps.values())
        if 1 < padding <= 1 + NEGLIGIBLE:
            listed = [_padded(self.paths, candidate, self.model) for candidate in listed]
        return sorted(listed, key=order)

    def programs_in_chunks(self, most: int) -> list[StepSequence]:
        """Return the cheapest programs on up to so many chunks, best first."""
        in_chunks: list[StepSequence] = []
        counts = chunk_counts(most, self.paths.most_chunks())
        if counts:
            busy = self.paths.busy_left()[self.paths.start()]
            self.least = min(self.least, max(busy, default=0.0))
        for count in counts:
            if self._ended():
                break
            chunk = self._paths(scale=self.scale * (self.paths.padding_in(count) / count))
            worst = in_chunks[self.top - 1].time if len(in_chunks) >= self.top else math.inf
            self.results.append(pipelined(chunk, count, self._seconds_left(), worst))
            in_chunks = sorted([*in_chunks, *self.results[-1].candidates], key=order)
        return in_chunks


def _synthesis(
    listed: Sequence[StepSequence],
    least: float,
    searches: Sequence[CheapestPrograms],
    cut: str = "",
) -> Synthesis:
    """Return the outcome of searches; ``cut`` says why others were left out."""
    ended = next(filter(None, (search.ended for search in searches)), cut)
    bounds = [least if cut or search.bound is None else search.bound for search in searches]
    best = listed[0].time if listed else None
    gap = gap_of(best, max(least, min(bounds))) if ended else 0.0
    return Synthesis(tuple(listed), least, ended, gap)


def _padded(paths: StatePaths, candidate: StepSequence, model: CostModel) -> StepSequence:
    """Return a program costed with the padding for the sub-axes that it scatters over."""
    factor = paths.padding_for(scattered(candidate.steps)) / paths.padding
    costs = (step_cost(cost.collective.scaled(factor), model) for cost in candidate.costs)
    return replace(candidate, costs=tuple(costs), memory=candidate.memory * factor)


def _smaller(axes: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Yield all smaller sets of sub-axes; over fewer sub-axes, less must be padded."""
    for size in range(len(axes)):
        yield from combinations(sorted(axes), size)


def order(candidate: StepSequence) -> tuple[float, int]:
    """Return a key that sorts faster programs first, and programs of fewer steps among equals."""
    return float(f"{candidate.time:.9e}"), len(candidate.steps)
