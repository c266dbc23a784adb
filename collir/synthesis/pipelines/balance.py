"""The numbers of layers at places that let the slowest place work as short as possible.

A place works for a fixed time (for steps in front of the layers at the first place, the loss at the
last) and for a time for each layer. Layers are given one after the other to the place that then
works shortest. An exchange of two choices shows that no other numbers have a smaller maximum, as
the time of a place only grows with its layers.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from collir.cost.programs.simulation import LoopStep, Simulation
from collir.dialects.nested import RepeatOp
from collir.ir.pipelines import Pipeline
from collir.layout.pipelines.tasks import Part
from collir.layout.pipelines.text import part_of_text


@dataclass(frozen=True)
class PlaceWork:
    """The work of a place for a microbatch.

    Attributes:
        fixed: seconds that do not depend on its layers.
        layer: seconds of a layer, forward and backward.
        most: the most layers that its memory has room for.
    """

    fixed: float = 0.0
    layer: float = 1.0
    most: float = math.inf

    def time(self, layers: int) -> float:
        """Return the seconds of a microbatch with some layers."""
        return self.fixed + layers * self.layer


@dataclass(frozen=True)
class Balance:
    """The numbers of layers at places.

    Attributes:
        totals: the layers of each place.
        units: a number that divides all of them, at least the chunks at each place.
        time: the seconds of a microbatch at the place that works longest.
    """

    totals: tuple[int, ...]
    units: int
    time: float


def balanced(works: Sequence[PlaceWork], layers: int, rows: int = 1) -> Balance | None:
    """Return the best numbers of layers at places; of equally good numbers, those with more layers
    at later places.

    Args:
        rows: the chunks at each place; all rounds of chunks share layers in one proportion.

    Returns: None if there are no such numbers, or memory has no room.
    """
    balances = [
        Balance(totals, units, max(w.time(n) for w, n in zip(works, totals, strict=True)))
        for units in range(rows, layers // len(works) + 1)
        if layers % units == 0 and (totals := _shared(works, layers // units, units)) is not None
    ]
    return min(balances, key=lambda balance: balance.time, default=None)


def _shared(works: Sequence[PlaceWork], count: int, units: int) -> tuple[int, ...] | None:
    """Return the layers of places when ``count`` times ``units`` layers are given out."""
    totals = [units] * len(works)
    if any(units > work.most for work in works):
        return None
    queue = [(work.time(2 * units), -place) for place, work in enumerate(works)]
    heapq.heapify(queue)
    left = count - len(works)
    while left and queue:
        _, place = heapq.heappop(queue)
        total, work = totals[-place] + units, works[-place]
        if total <= work.most:
            totals[-place], left = total, left - 1
            heapq.heappush(queue, (work.time(total + units), place))
    return None if left else tuple(totals)


def works_of(
    loop: RepeatOp, simulation: Simulation, sizes: Sequence[int]
) -> tuple[list[PlaceWork], list[float]]:
    """Return the works of places in a simulated pipeline, and the peaks of memory.

    Args:
        sizes: the layers of each chunk.

    Returns: the works, without limits, and bytes, for each place.

    Raises:
        PipelineError: the loop is no pipeline.
    """
    places = Pipeline.of(loop).graph.places
    count = max(places.values()) + 1
    chunk_places = {chunk: place for (_, chunk), place in places.items()}
    fixed, looped, lanes = [0.0] * count, [0.0] * count, [0] * count
    for step in simulation.steps:
        if step.pipelined is None or any(step.iterations):
            continue
        part: Part = part_of_text(step.kind)
        place, size = places[part], sizes[part[1]]
        inside = sum(
            inner.task.time
            for inner in step.pipelined.body.steps
            if isinstance(inner.does, LoopStep) and inner.does.times == size
        )
        fixed[place] += max(0.0, step.task.time - inside)
        looped[place] += inside
        lanes[place] = step.lane
    totals = totals_of(chunk_places, sizes)
    works = [
        PlaceWork(own, time / layers)
        for own, time, layers in zip(fixed, looped, totals, strict=True)
    ]
    return works, [simulation.peaks[lane] for lane in lanes]


def totals_of(places: Mapping[int, int], sizes: Sequence[int]) -> list[int]:
    """Return the layers of each place.

    Args:
        places: the place of each chunk.
        sizes: the layers of each chunk.
    """
    totals = [0] * (max(places.values()) + 1)
    for chunk, place in places.items():
        totals[place] += sizes[chunk]
    return totals


def limited(
    works: Sequence[PlaceWork], memory: float, peaks: Mapping[tuple[int, ...], Sequence[float]]
) -> list[PlaceWork]:
    """Return works with the most layers that memory has room for.

    The bytes of a place are a linear function of its layers, which two simulations determine. If a
    place always had the same number of layers, all of its bytes count as bytes of layers.

    Args:
        memory: bytes.
        peaks: the bytes of each place, for the layers of all places.
    """
    limits: list[PlaceWork] = []
    for place, work in enumerate(works):
        points = sorted({(totals[place], sizes[place]) for totals, sizes in peaks.items()})
        (n, size), (m, last_size) = points[0], points[-1]
        slope = (last_size - size) / (m - n) if m != n else last_size / m
        room = m + (memory - last_size) / slope if slope > 0 else math.inf
        limits.append(replace(work, most=math.floor(room) if room < math.inf else room))
    return limits
