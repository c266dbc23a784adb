"""Estimates of the time and the memory of configurations, from the ingredients of their kinds.

They are lower bounds of programs with these ingredients. The program of a configuration may have
other ingredients, as layouts are chosen anew for its sizes; searches add a margin for that. The
time is the sum over tasks and steps that follow each other, without contention:

- a stage begins when the first microbatch has come through the stages before it, and runs its tasks
  for all microbatches; then the last microbatch goes back through the earlier stages;
- then it runs the steps behind the loop.

The steps behind the loop count by bounds of their collectives alone if these may run beside others.
The memory is taken at the start of the backward task with the most microbatches in flight.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat, starmap
from typing import NamedTuple

import numpy as np

from collir.cost.collectives.collective import Route
from collir.cost.formulas.functions import Array
from collir.layout.pipelines.rules import RULES, PipelineSize
from collir.layout.pipelines.tasks import Part
from collir.layout.pipelines.timing import timing
from collir.synthesis.sweeping.configuration import PREFETCHED, Configuration
from collir.synthesis.sweeping.ingredients import (
    LAYERS,
    STAGES,
    Costs,
    PartCollective,
    PartLoop,
    PlaceMemory,
    ProgramPart,
    StepRun,
)
from collir.synthesis.sweeping.prices import MeshPrices

_SMALL = 1 - 1e-9
"""Bounds are less by this factor, as they are added up in another order than simulated times."""


class Staged(NamedTuple):
    """The parts of configurations with stages; arrays have a column for each.

    Attributes:
        shape: one of the configurations.
        durations: the seconds of each kind of task of each chunk.
        send: seconds from the end of a task to the arrival at the next stage.
        before: seconds in front of the loop over microbatches, at any stage.
        after: seconds behind it, for each stage.
    """

    shape: Configuration
    durations: Mapping[Part, Array]
    send: Array
    before: Array
    after: Array

    def timed(self, number: int, microbatches: int) -> float:
        """Return the seconds of a configuration, of so many microbatches, task by task."""
        rule, stages, chunks = RULES[self.shape.schedule], self.shape.stages, self.shape.chunks
        schedule, graph = rule.schedule(stages, microbatches, chunks), rule.graph(stages, chunks)
        durations = {part: float(times[number]) for part, times in self.durations.items()}
        send = float(self.send[number])
        sends = {
            edge: send for edge in graph.edges if graph.places[edge[0]] != graph.places[edge[1]]
        }
        run = timing(schedule.orders, schedule.microbatches, graph, durations, sends)
        ends = (own[-1] + x for own, x in zip(run.ends, self.after[:, number], strict=True))
        return _SMALL * float(self.before[number] + max(ends))


class MicrobatchesInFlight(NamedTuple):
    """The microbatches that a stage holds when a backward task begins.

    Attributes:
        inner: those in inner chunks of the model.
        ends: those in its first and last chunk.
        at_end: whether the task is of such an end chunk.
    """

    inner: int
    ends: int
    at_end: bool


@dataclass(frozen=True)
class ConfigurationEstimate:
    """The estimates for a configuration.

    Attributes:
        time: seconds of a step.
        memory: bytes of a device of the stage that needs most.
        run, number: the place of its parts, if it has stages.
    """

    time: float
    memory: float
    run: Staged | None = None
    number: int = 0
    microbatches: int = 1

    def timed(self) -> float:
        """Return a closer estimate of the time: that of the schedule, task by task."""
        if self.run is None:
            return self.time
        return max(self.time, self.run.timed(self.number, self.microbatches))


class ConfigurationGroup:
    """Configurations of one kind with the same stages, schedule and chunks.

    Arrays have a value for each configuration, in their last dimension.
    """

    def __init__(
        self,
        prices: MeshPrices,
        layers: int,
        costs: Costs,
        configurations: Sequence[Configuration],
        rows: Sequence[int],
        wholes: Sequence[int],
        meshes: Sequence[int],
    ) -> None:
        """Prepare the estimates of configurations.

        Args:
            layers: the layers of the model.
            rows: for each configuration, its row of the costs, for the batch of its microbatches.
            wholes: the row for its whole batch.
            meshes: the number of its mesh among those of the prices.
        """
        self.prices, self.two, self.meshes = prices, costs.made, meshes
        self.own_batch = [table[:, list(rows)] for table in costs.tables]
        self.whole_batch = [table[:, list(wholes)] for table in costs.tables]
        self.shape = configurations[0]
        self.counts = np.array([c.microbatches for c in configurations])
        self.layers, self.own = layers, self.shape.layers_of_stages(layers)

    def estimates(self) -> list[ConfigurationEstimate]:
        """Return the estimates of the configurations."""
        if self.shape.stages > 1:
            return self._staged()
        around = self.seconds("before", 0, self.layers) + self.seconds("after", 0, self.layers)
        times = _SMALL * (around + self.counts * self.seconds("step", 0, self.layers))
        [held] = self.two[0].memory
        memory = self._throughout(held, self.layers) + self.value(held.inside, self.layers)
        others = self.value(held.others, self.layers, self.whole_batch)
        memory = np.maximum(memory, others)
        return [*starmap(ConfigurationEstimate, zip(times.tolist(), memory.tolist(), strict=True))]

    def _staged(self) -> list[ConfigurationEstimate]:
        stages, chunks = self.shape.stages, self.shape.chunks
        graph = RULES[self.shape.schedule].graph(stages, chunks)
        last = max(chunk for _, chunk in graph.places)
        alike = {
            part: (part[0], _role(part[1], last + 1), self.own[place] // chunks)
            for part, place in graph.places.items()
        }
        seconds = {task: self.seconds(*task) for task in {*alike.values()}}
        durations = {part: seconds[task] for part, task in alike.items()}
        send = self._send()
        stages_alike = [(_role(place, stages), own) for place, own in enumerate(self.own)]
        ends = {stage: self.seconds("after", *stage) for stage in {*stages_alike}}
        after = np.stack([ends[stage] for stage in stages_alike])
        before = np.min([self.seconds("before", *stage) for stage in {*stages_alike}], axis=0)
        work, weights = np.zeros_like(after), np.zeros_like(after)
        for (kind, chunk), place in graph.places.items():
            (weights if kind == "W" else work)[place] += durations[kind, chunk]
        fill, back = (
            np.cumsum([send * 0, *(durations[kind, p] + send for p in range(stages - 1))], axis=0)
            for kind in "FB"
        )
        busy = fill + self.counts * work
        least = np.maximum(busy + self.counts * weights + after, busy + back + after[0])
        times = _SMALL * (before + least.max(axis=0))
        memory = self._memory()
        run = Staged(self.shape, durations, send, before, after)
        numbers = range(len(self.counts))
        columns = times.tolist(), memory.tolist(), repeat(run), numbers, self.counts.tolist()
        return [*starmap(ConfigurationEstimate, zip(*columns, strict=False))]

    def _send(self) -> Array:
        moves = self.two[0].moves
        if not moves:
            return np.zeros(len(self.counts))
        size = np.min([self.value(number, 1) for number in moves], axis=0)
        sent = PartCollective("send", (self.shape.pipeline,), frozenset(), frozenset(), 0, 0)
        last = self.shape.stages - 1
        routes = {Route(0, 1), Route(last - 1, last)}
        return np.min([self.prices.of(sent, size, self.meshes, r) for r in routes], axis=0)

    def _memory(self) -> Array:
        """Return the bytes of the stage that needs most."""
        most = np.zeros(len(self.counts))
        stages, schedule, chunks = self.shape.stages, self.shape.schedule, self.shape.chunks
        for count in {*self.counts.tolist()}:
            here = self.counts == count
            for place in {0, 1, stages - 1}:
                moments = in_flight(schedule, stages, count, chunks, place)
                most[here] = np.maximum(most[here], self._held(place, moments)[here])
        return most

    def _held(self, place: int, moments: Iterable[MicrobatchesInFlight]) -> Array:
        """Return the bytes of a stage."""
        role = _role(place, self.shape.stages)
        memory = self.two[0].memory
        own = self.own[place] // self.shape.chunks
        stage = self._throughout(memory[role], self.own[place])
        kept = [self.value(memory[n].kept, own) for n in (1, role)]
        inside = [self.value(memory[n].inside, own) for n in (1, role)]
        held = (x.inner * kept[0] + x.ends * kept[1] + inside[x.at_end] for x in moments)
        return stage + np.max([*held], axis=0)

    def _throughout(self, memory: PlaceMemory, layers: int) -> Array:
        """Return the bytes that are held while the loop over microbatches runs."""
        return self.value(memory.throughout, layers, self.whole_batch)

    def value(self, number: int, layers: int, tables: Sequence[Array] = ()) -> Array:
        """Return the values of a formula for a number of layers, in rows of microbatches or
        others."""
        first, second = (table[number] for table in tables or self.own_batch)
        return first + (layers - LAYERS[0]) / (LAYERS[1] - LAYERS[0]) * (second - first)

    def seconds(self, name: str, role: int, layers: int) -> Array:
        """Return the seconds of a part of the program, at a stage of a role."""
        one, other = (made.part(name, role) for made in self.two)
        return self._part(one, other, layers)[0]

    def _part(self, one: ProgramPart, other: ProgramPart, layers: int) -> tuple[Array, Array]:
        """Return the seconds of a part, and the seconds in which it sends nothing.

        If gathers are ahead, the last iteration of a loop is among the steps behind it.

        Args:
            other: the same part in the program with more layers.
        """
        total = local = none = np.zeros(len(self.counts))
        last = none, none  # of an iteration that is among the next steps
        for first, second in zip(one.items, other.items, strict=True):
            if isinstance(first, PartLoop):
                assert isinstance(second, PartLoop)
                more = (second.times - first.times) / (LAYERS[1] - LAYERS[0])
                times = first.times + (layers - LAYERS[0]) * more
                body, own = self._part(first.body, second.body, layers)
                is_ahead = self.shape.zero >= PREFETCHED
                total = total + last[0] + (times - is_ahead) * body
                local = local + times * own
                last = (body, own) if is_ahead else (none, none)
            else:
                steps = self._run(first, layers)
                total = total + np.maximum(last[0], last[1] + steps)
                local = local + self.value(first.local, layers)
                last = none, none
        return total + last[0], local

    def _run(self, run: StepRun, layers: int) -> Array:
        """Return the seconds of steps between two loops in any order."""
        least = self.value(run.local, layers)
        if not run.sent:
            return least
        sent = [self._sent(collective, layers) for collective in run.sent]
        for path in run.paths:
            times = (sent[number] for number in path.sent)
            least = np.maximum(least, sum(times, start=self.value(path.local, layers)))
        streams = [self.prices.streams(collective.axes, self.meshes) for collective in run.sent]
        for level in range(len(self.prices.machine.levels)):
            there = zip(streams, sent, strict=True)
            own = sum(np.where(stream == level, times, 0.0) for stream, times in there)
            least = np.maximum(least, own)
        return least

    def _sent(self, sent: PartCollective, layers: int) -> Array:
        """Return the seconds of a collective that runs alone."""
        size, route = self.value(sent.size, layers), self._route(sent)
        return self.prices.of(sent, size, self.meshes, route) + self.value(sent.copies, layers)

    def _route(self, sent: PartCollective) -> Route | None:
        """Return the stages that a send is from and to."""
        if sent.route is None:
            return None
        last = self.shape.stages - 1
        return Route(*(last if n == STAGES - 1 else n for n in sent.route))


def _role(place: int, stages: int) -> int:
    """Return the stage of the small program that a stage is like."""
    return 0 if place == 0 else 2 if place == stages - 1 else 1


@cache
def in_flight(
    schedule: str, stages: int, microbatches: int, chunks: int, place: int
) -> frozenset[MicrobatchesInFlight]:
    """Return the largest numbers of microbatches in flight at a stage when a backward task begins.

    Moments at which no number is larger than at another one are left out.
    """
    order = RULES[schedule].order(PipelineSize(stages, microbatches, chunks), place)
    ends = {0, len(RULES[schedule].chunk_places(stages, chunks)) - 1}
    held = [0, 0]
    moments: set[MicrobatchesInFlight] = set()
    for kind, chunk, _ in order:
        is_end = chunk in ends
        if kind == "F":
            held[is_end] += 1
        elif kind == "B":
            moments.add(MicrobatchesInFlight(held[0], held[1], is_end))
            held[is_end] -= 1
    largest = (x for x in moments if not any(x != y and _covers(y, x) for y in moments))
    return frozenset(largest)


def _covers(moment: MicrobatchesInFlight, other: MicrobatchesInFlight) -> bool:
    same = moment.at_end == other.at_end
    return same and moment.inner >= other.inner and moment.ends >= other.ends
