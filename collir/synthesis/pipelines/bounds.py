"""Lower bounds of the time of a partly run pipeline.

Each place must run the rest of its tasks one after the other, and the last of them has a tail: the
rest of its microbatch. A set of tasks of a place ends no earlier than the sum of its earliest
start, its work and its least tail; sets that start late and have a long tail are tried. Before the
next B of a place only as much F may run as there is memory for. Where a place has one chunk and
slots for M microbatches, a microbatch leaves its slot no earlier than a round trip after it came.
The last F starts after the tasks that free the slots of all microbatches but the last M.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from collir.synthesis.pipelines.work import PipelineWork


class WorkBounds:
    """The lower bounds of a work, for numbers of microbatches that have run each part."""

    def __init__(self, work: PipelineWork):
        self._tables = work.tables
        self._microbatches = work.microbatches
        self._limits = work.limits
        self._slots = [self._slots_of(place) for place in range(work.places)]
        kinds = [part[0] for part in self._tables.parts]
        self._waits = [
            kind == "B" or (kind == "W" and ("B", chunk) not in work.graph.places)
            for kind, (_, chunk) in zip(kinds, self._tables.parts, strict=True)
        ]
        self._weights = [
            not waits and self._tables.released[n] > 0 and not self._tables.acquired[n]
            for n, waits in enumerate(self._waits)
        ]

    def earliest(
        self, counts: Sequence[int], ends: Sequence[Sequence[float]], clocks: Sequence[float]
    ) -> tuple[list[float], list[bool]]:
        """Return lower bounds of the next start of each part, and whether each is exact.

        A bound is exact if all that the task needs has run.

        Args:
            counts: number of microbatches that have run each part.
            ends: their ends in seconds.
            clocks: seconds at which each place is free.
        """
        tables, duration = self._tables, self._tables.duration
        earliest: list[float] = []
        exact: list[bool] = []
        for part, count in enumerate(counts):
            start, known = clocks[tables.place[part]], True
            for needed, send in tables.needs[part]:
                ahead = counts[needed] - count
                if ahead > 0:
                    arrival = ends[needed][count] + send
                else:
                    known = False
                    arrival = earliest[needed] + (1 - ahead) * duration[needed] + send
                if arrival > start:
                    start = arrival
            earliest.append(start)
            exact.append(known)
        return earliest, exact

    def place_bound(
        self,
        place: int,
        counts: Sequence[int],
        earliest: Sequence[float],
        free: float,
        held: float,
    ) -> float:
        """Return a lower bound in seconds of the whole time, from the tasks left at one place.

        Args:
            earliest: lower bounds of the next start of each part.
            free: seconds before which the place starts no task.
            held: the amount that the place keeps.
        """
        tables, all_count = self._tables, self._microbatches
        limited = self._limits[place] < math.inf
        return_time, possible = 0.0, math.inf
        if limited:
            return_time, possible = self._before_backward(place, counts, earliest, held)
        best = self._last_forward_bound(place, counts, earliest, free, return_time, possible)
        work = 0.0
        rows: list[tuple[float, float]] = []
        for part in tables.of_place[place]:
            left = all_count - counts[part]
            if not left:
                continue
            duration, tail = tables.duration[part], tables.tail[part]
            start = earliest[part] if earliest[part] > free else free
            work += left * duration
            rows.append((start, left * duration))
            rows.sort(reverse=True)
            total = tail
            for row_start, row_work in rows:
                total += row_work
                if row_start + total > best:
                    best = row_start + total
            if work > possible and return_time + work - possible + tail > best:
                best = return_time + work - possible + tail
        return best

    def _last_forward_bound(
        self,
        place: int,
        counts: Sequence[int],
        earliest: Sequence[float],
        free: float,
        return_time: float,
        possible: float,
    ) -> float:
        """Return a lower bound in seconds from the last F of a place with slots.

        Args:
            return_time, possible: what ``_before_backward`` returns.
        """
        slots, duration = self._slots[place], self._tables.duration
        if slots is None or counts[slots.forward] == self._microbatches:
            return free
        least = slots.work_before_last(counts, duration, self._microbatches)
        start = earliest[slots.forward] + slots.delay(counts, duration, self._microbatches)
        start = max(start, free + least)
        if least > possible:
            start = max(start, return_time + least - possible)
        return start + duration[slots.forward] + self._tables.tail[slots.forward]

    def _before_backward(
        self, place: int, counts: Sequence[int], earliest: Sequence[float], held: float
    ) -> tuple[float, float]:
        """Return the earliest start of a place's next B, and the most work before it.

        Before it the place may run W of earlier B, and as many F as memory has room for.
        """
        tables = self._tables
        returned, room, weights = math.inf, self._limits[place] - held, 0.0
        forward: list[tuple[float, float, int]] = []
        for part in tables.of_place[place]:
            left = self._microbatches - counts[part]
            if not left:
                continue
            duration = tables.duration[part]
            if self._waits[part]:
                returned = min(returned, earliest[part])
            elif acquired := tables.acquired[part]:
                forward.append((duration, acquired - tables.released[part], left))
            elif self._weights[part]:
                needed = tables.needs[part]
                backlog = min((counts[n] for n, _ in needed), default=counts[part]) - counts[part]
                room += backlog * tables.released[part]
                weights += backlog * duration
            else:
                return 0.0, math.inf
        if returned == math.inf:
            return 0.0, math.inf
        return returned, weights + _most_forward(forward, room)

    def _slots_of(self, place: int) -> "_Slots | None":
        """Return the slots of a place with one chunk whose memory is limited."""
        tables, limit = self._tables, self._limits[place]
        forward = [n for n in tables.of_place[place] if tables.acquired[n]]
        freeing = [n for n in tables.of_place[place] if tables.released[n] > 0]
        if limit == math.inf or len(forward) != 1 or not freeing or forward[0] in freeing:
            return None
        number = math.floor(limit / tables.acquired[forward[0]] + 1e-9)
        first = min(freeing)
        before = [n for n in tables.of_place[place] if forward[0] < n < first]
        needed = {n for n, _ in tables.needs[first]}
        if number < 1 or any(tables.released[n] < 0 for n in tables.of_place[place]):
            return None
        behind = (first, *(n for n in before if n in needed))
        return _Slots(forward[0], number, tables.latency(forward[0], first), behind)


class _Slots(NamedTuple):
    """The room of a place with one chunk.

    Attributes:
        forward: the F of the chunk.
        number: the most microbatches in flight.
        trip: least seconds from the start of F to the end of the task that frees its slot.
        freeing: this task, and a task of the place that it needs.
    """

    forward: int
    number: int
    trip: float
    freeing: tuple[int, ...]

    def delay(self, counts: Sequence[int], duration: Sequence[float], microbatches: int) -> float:
        """Return the least seconds from the next start of F to the last one."""
        trips, rest = divmod(microbatches - 1 - counts[self.forward], self.number)
        return trips * self.trip + rest * duration[self.forward]

    def work_before_last(
        self, counts: Sequence[int], duration: Sequence[float], microbatches: int
    ) -> float:
        """Return the least seconds of tasks of this place ahead of the last F."""
        freed = microbatches - self.number
        return (microbatches - 1 - counts[self.forward]) * duration[self.forward] + sum(
            max(0, freed - counts[part]) * duration[part] for part in self.freeing
        )


def _most_forward(forward: Sequence[tuple[float, float, int]], room: float) -> float:
    """Return the most seconds of F that memory has room for.

    Args:
        forward: for each part, its seconds, the amount it keeps, and its microbatches left.
    """
    work = sum(duration * left for duration, _, left in forward)
    if not forward or any(kept <= 0 for _, kept, _ in forward):
        return work
    if len(forward) == 1:
        duration, kept, _ = forward[0]
        return min(work, duration * math.floor(room / kept + 1e-9))
    return min(work, room * max(duration / kept for duration, kept, _ in forward))
