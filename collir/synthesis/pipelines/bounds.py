"""Lower bounds of the time of a pipeline of which some tasks have run.

Each place must run the rest of its tasks one after the other, and the last of them has a tail: the
rest of its microbatch. A set of tasks of a place ends no earlier than its earliest start, its work
and its least tail together, for the sets of tasks that start late and have a long tail. Before the
next B of a place only as much F may run as there is memory for, and each microbatch that is in
flight leaves its slot of memory no earlier than a round trip after it came.
"""

import math
from collections.abc import Sequence

from collir.synthesis.pipelines.work import PipelineWork


class Bounds:
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
        """Return lower bounds of the start of the next task of each part, and which are exact.

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
            held: what the place keeps.
        """
        tables, all_count = self._tables, self._microbatches
        limited = self._limits[place] < math.inf
        return_time, possible = 0.0, math.inf
        if limited:
            return_time, possible = self._before_backward(place, counts, earliest, held)
        best, work = free, 0.0
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
            if limited and (slots := self._slots[place]) and part == slots[0]:
                _, number, trip = slots
                trips, rest = divmod(left - 1, number)
                best = max(best, start + trips * trip + (rest + 1) * duration + tail)
        return best

    def _before_backward(
        self, place: int, counts: Sequence[int], earliest: Sequence[float], held: float
    ) -> tuple[float, float]:
        """Return when the next B of a place may start, and the most work before that.

        Until then the place may run W of earlier B, and the F for which there is room.
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

    def _slots_of(self, place: int) -> tuple[int, int, float] | None:
        """Return the F of a place with one chunk, its microbatches in flight, and a round trip.

        A round trip is the least time from a start of F to the end of the task that frees its
        room.
        """
        tables, limit = self._tables, self._limits[place]
        forward = [n for n in tables.of_place[place] if tables.acquired[n]]
        if limit == math.inf or len(forward) != 1 or tables.released[forward[0]]:
            return None
        number = math.floor(limit / tables.acquired[forward[0]] + 1e-9)
        freeing = [n for n in tables.of_place[place] if tables.released[n] > 0]
        trips = [tables.latency(forward[0], last) for last in freeing]
        if number < 1 or not trips or sum(tables.released[n] < 0 for n in tables.of_place[place]):
            return None
        return forward[0], number, min(trips)


def _most_forward(forward: Sequence[tuple[float, float, int]], room: float) -> float:
    """Return the most seconds of F for which there is room.

    Args:
        forward: seconds of each part, what it keeps, and its number of microbatches left.
    """
    work = sum(duration * left for duration, _, left in forward)
    if not forward or any(kept <= 0 for _, kept, _ in forward):
        return work
    if len(forward) == 1:
        duration, kept, _ = forward[0]
        return min(work, duration * math.floor(room / kept + 1e-9))
    return min(work, room * max(duration / kept for duration, kept, _ in forward))
