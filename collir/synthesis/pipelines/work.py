"""The work of a pipeline that is to be scheduled, and its tables for a search."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter

from collir.cost.programs.pipelines import KeptActivations, PipelineRun, kept_changes, run_pipeline
from collir.layout.pipelines.schedule import Schedule
from collir.layout.pipelines.tasks import Part, TaskGraph


@dataclass(frozen=True)
class PipelineWork:
    """The tasks of a pipeline, their times, and the memory for activations.

    Attributes:
        microbatches: number of microbatches, each of which runs every part of the graph.
        durations: seconds of each part, greater than 0.
        sends: seconds from the end of a part to the arrival of its result at a part that needs it;
            0 by default.
        kept: the amount that each chunk keeps of a microbatch, in any unit; 1 by default.
        memory: the most that each place may keep, in the same unit; None: any amount.
    """

    graph: TaskGraph
    microbatches: int
    durations: Mapping[Part, float]
    sends: Mapping[tuple[Part, Part], float] = field(default_factory=dict[tuple[Part, Part], float])
    kept: Mapping[int, KeptActivations] = field(default_factory=dict[int, KeptActivations])
    memory: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if any(self.durations[part] <= 0 for part in self.graph.places):
            raise ValueError("each task of a pipeline takes more than 0 s")
        if self.memory is not None and len(self.memory) != self.places:
            raise ValueError(f"memory is of {len(self.memory)} places; there are {self.places}")
        chunk_places = {(chunk, place) for (_, chunk), place in self.graph.places.items()}
        if len(chunk_places) > len({chunk for chunk, _ in chunk_places}):
            raise ValueError("the tasks of a chunk are at one place")

    @property
    def places(self) -> int:
        """The number of places."""
        return max(self.graph.places.values(), default=-1) + 1

    @property
    def splits_backward(self) -> bool:
        """True if W are tasks of their own."""
        return any(kind == "W" for kind, _ in self.graph.places)

    @property
    def limits(self) -> tuple[float, ...]:
        """The most that each place may keep."""
        return (math.inf,) * self.places if self.memory is None else tuple(self.memory)

    def run(self, schedule: Schedule) -> PipelineRun:
        """Return the run of a schedule of this work."""
        return run_pipeline(schedule, self.graph, self.durations, self.sends)

    def fits(self, run: PipelineRun) -> bool:
        """Return whether no place keeps more than it may."""
        return all(run.peak(place, self.kept) <= limit for place, limit in enumerate(self.limits))

    @cached_property
    def tables(self) -> "WorkTables":
        """The work by numbers of parts."""
        return _tables(self)


@dataclass(frozen=True)
class WorkTables:
    """The work of a pipeline by numbers of parts, which are in order of their dependencies.

    Attributes:
        parts: each part.
        place: the place of each part.
        duration: seconds of each part.
        needs, users: the parts that a part needs, and that need it, each with seconds to send.
        acquired: the amount that is kept from the start of a part on.
    released: the amount that is released at its end; negative if more is kept.
    reserved: the most that a microbatch keeps because a part has started. tail: least seconds from
        the end of a part to the end of its microbatch. of_place: the parts of each place, the
        longest tail first.
    """

    parts: tuple[Part, ...]
    place: tuple[int, ...]
    duration: tuple[float, ...]
    needs: tuple[tuple[tuple[int, float], ...], ...]
    users: tuple[tuple[tuple[int, float], ...], ...]
    acquired: tuple[float, ...]
    released: tuple[float, ...]
    reserved: tuple[float, ...]
    tail: tuple[float, ...]
    of_place: tuple[tuple[int, ...], ...]

    def latency(self, first: int, last: int) -> float:
        """Return the least seconds from the start of a part to the end of a dependent one."""
        ends = {first: self.duration[first]}
        for part in range(first + 1, last + 1):
            arrivals = [ends[n] + send for n, send in self.needs[part] if n in ends]
            if arrivals:
                ends[part] = max(arrivals) + self.duration[part]
        return ends.get(last, 0.0)


def _tables(work: PipelineWork) -> WorkTables:
    graph = work.graph
    order = TopologicalSorter({part: graph.needs.get(part, ()) for part in graph.places})
    parts = tuple(order.static_order())
    number = {part: n for n, part in enumerate(parts)}
    needs = tuple(
        tuple((number[n], work.sends.get((n, part), 0.0)) for n in graph.needs.get(part, ()))
        for part in parts
    )
    users: list[list[tuple[int, float]]] = [[] for _ in parts]
    for user, needed in enumerate(needs):
        for source, send in needed:
            users[source].append((user, send))
    duration = tuple(work.durations[part] for part in parts)
    tail = [0.0] * len(parts)
    for n in reversed(range(len(parts))):
        tail[n] = max((send + duration[user] + tail[user] for user, send in users[n]), default=0.0)
    changes = kept_changes(graph.places.keys(), work.kept)
    longest_first = sorted(range(len(parts)), key=lambda n: -tail[n])
    return WorkTables(
        parts,
        tuple(graph.places[part] for part in parts),
        duration,
        needs,
        tuple(map(tuple, users)),
        tuple(changes[part][0] for part in parts),
        tuple(-changes[part][1] for part in parts),
        tuple(_reserved(part, changes) for part in parts),
        tuple(tail),
        tuple(
            tuple(n for n in longest_first if graph.places[parts[n]] == place)
            for place in range(work.places)
        ),
    )


def _reserved(part: Part, changes: Mapping[Part, tuple[float, float]]) -> float:
    """Return the most that is kept because a part has started; for F with what B adds."""
    acquired, growth = changes[part][0], changes.get(("B", part[1]), (0.0, 0.0))[1]
    return acquired + max(0.0, growth) if acquired else 0.0
