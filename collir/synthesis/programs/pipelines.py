"""Programs on a value in chunks: while one crosses the outer ports, another is reduced inside.

The time of a program on c chunks is not a sum over its steps. The steps of one chunk follow each
other on each stream (that of the outermost level a step goes through) and on each port, and the
busiest of these sets the pace:

    sum over the steps of a chunk + (c - 1) max over streams and ports of the load of a chunk

So a path has several costs: its sum, and its load on each stream and port. Of two paths to a state,
one replaces the other only if none of its costs is greater (Pareto labels). The best programs under
that formula, for each number of chunks, are then scheduled, and the schedules give the reported
times. The formula holds for a steady state, and may be off where steps of one stream or port are
not neighbours. So programs are compared with ``least``: a lower bound for the busiest port by any
program, on any number of chunks.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import add
from typing import NamedTuple

from collir.cost.collectives.collective import Collective
from collir.cost.model import StepCost, step_estimate, step_phases
from collir.cost.programs.collectives import stream_of
from collir.cost.programs.schedule import StepTask, schedule
from collir.search import Problem
from collir.synthesis.programs.paths import CheapestPrograms, Edge, candidate_of
from collir.synthesis.programs.states import StatePaths
from collir.synthesis.programs.steps import ChunkPipeline, CollectiveStep, StepSequence
from collir.synthesis.searching import best_of

TRIED = 3
"""The number of programs that are scheduled for each number of chunks."""

_ROUNDED = 1e-9
"""The relative rounding error of the times of a schedule."""


def chunk_counts(most: int, units: int) -> list[int]:
    """Return the numbers of chunks to try: 2^k and 3 * 2^k.

    If some divide the number of units of a value, only these are tried: others need padding.
    """
    most = min(most, units)
    listed = [digit << power for power in range(most.bit_length()) for digit in (2, 3)]
    counts = sorted(count for count in set(listed) if count <= most)
    return [count for count in counts if units % count == 0] or counts


class Label(NamedTuple):
    """Seconds of the steps of a chunk: in a row, on each stream, and on each port."""

    total: float
    streams: tuple[float, ...]
    ports: tuple[float, ...]

    def plus(self, time: float, stream: int, ports: Iterable[float]) -> "Label":
        """Return the label of the steps and one more."""
        streams = tuple(load + time * (n == stream) for n, load in enumerate(self.streams))
        added = tuple(load + more for load, more in zip(self.ports, ports, strict=True))
        return Label(self.total + time, streams, added)


class LabelledPathNode(NamedTuple):
    """A path so far, as in ``paths``, with a label in the place of its cost."""

    bound: float
    label: Label
    state: int
    before: "LabelledPathNode | None" = None
    edge: Edge[int] | None = None
    step: CollectiveStep | None = None
    paid: object | None = None
    open: bool = False


class Pipelines(Problem[LabelledPathNode]):
    """The programs between two layouts, run on a number of chunks.

    Attributes:
        chunks: the number of chunks.
        paths: the programs on a chunk.
    """

    sense = "min"

    def __init__(self, paths: StatePaths, chunks: int):
        self.paths, self.chunks = paths, chunks
        self._loads: dict[Collective, tuple[int, tuple[float, ...]]] = {}
        self._left = {state: self._on_all(busy) for state, busy in paths.busy_left().items()}

    def _on_all(self, busy: Sequence[float]) -> list[float]:
        """Return the loads of all levels of the machine, given those with several children."""
        loads = [0.0] * len(self.paths.ports.mesh.machine.levels)
        for level, load in zip(self.paths.ports.levels, busy, strict=True):
            loads[level] = load
        return loads

    def root(self) -> LabelledPathNode:
        """Return the path of no steps."""
        none = (0.0,) * len(self.paths.ports.mesh.machine.levels)
        return self._node(Label(0.0, none, none), self.paths.start())

    def children(self, node: LabelledPathNode) -> Iterator[LabelledPathNode]:
        """Yield paths of one step more, or the same path once its last step is costed."""
        ports = self.paths.ports
        if node.open:
            if (costed := self._costed(node)) is not None:
                yield costed
            return
        for least, edge in self.paths.edges(node.state):
            label = node.label
            if edge.kind:
                busy = ports.busy(edge.kind, edge.group, edge.at_root, edge.size)
                stream = ports.levels[ports.outermost(edge.group)]
                label = label.plus(least, stream, self._on_all(busy.tolist()))
            yield self._node(label, edge.after, node, edge)._replace(open=bool(edge.kind))

    def _costed(self, node: LabelledPathNode) -> LabelledPathNode | None:
        edge, before = node.edge, node.before
        assert edge is not None and before is not None
        costed = self.paths.costed(edge)
        if costed is None:
            return None
        step, paid, time = costed
        loads = self._loads.get(paid)
        if loads is None:
            loads = self._loads[paid] = self._loads_of(paid)
        label = before.label.plus(time + self.paths.tie, *loads)
        return self._node(label, node.state, before, edge)._replace(step=step, paid=paid)

    def _loads_of(self, collective: Collective) -> tuple[int, tuple[float, ...]]:
        """Return the stream of a step, and the seconds for which it keeps each level busy."""
        model = self.paths.model
        _, estimate = step_estimate(collective, model)
        task = StepTask(step_phases(collective, model, estimate), stream_of(collective))
        return task.stream, task.loads(len(collective.mesh.machine.levels))

    def _node(
        self,
        label: Label,
        state: int,
        before: LabelledPathNode | None = None,
        edge: Edge[int] | None = None,
    ) -> LabelledPathNode:
        left = map(add, label.ports, self._left[state])
        total = label.total + self.paths.remaining(state)
        pace = max((*label.streams, *left), default=0.0)
        return LabelledPathNode(total + (self.chunks - 1) * pace, label, state, before, edge)

    def objective(self, node: LabelledPathNode) -> float | None:
        """Return the seconds of all chunks, of a path that has arrived."""
        return None if node.open or not self.paths.reached(node.state) else node.bound

    def bound(self, node: LabelledPathNode) -> float:
        """Return a lower bound on the seconds of the whole program."""
        return node.bound

    def key(self, node: LabelledPathNode) -> Hashable:
        """Return the state; None of a path whose last step is not costed."""
        return None if node.open else node.state

    def cost(self, node: LabelledPathNode) -> tuple[float, ...]:
        """Return the label."""
        return (node.label.total, *node.label.streams, *node.label.ports)

    def identity(self) -> Hashable:
        """Return a key that no other run has: such a search is never checkpointed."""
        return id(self)


def pipelined(
    paths: StatePaths, chunks: int, seconds: float | None = None, better_than: float = math.inf
) -> CheapestPrograms:
    """Return the best programs on a number of chunks, scheduled.

    Args:
        paths: the programs on a chunk.
        better_than: seconds; a program that takes as long by ``least_on`` is not scheduled.
    """
    outcome = best_of(Pipelines(paths, chunks), TRIED, seconds, order="best-first")
    candidates = (candidate_of(paths, solution.node) for solution in outcome.solutions)
    scheduled = (
        in_chunks(candidate, chunks)
        for candidate in candidates
        if candidate.costs and least_on(candidate.costs, chunks) * (1 - _ROUNDED) < better_than
    )
    return CheapestPrograms(tuple(scheduled), outcome.statistics.reason)


def least_on(costs: Sequence[StepCost], chunks: int) -> float:
    """Return a lower bound on the seconds of any schedule of steps on chunks.

    A stream runs its steps one after the other. In the first chunk, other steps come before them;
    in the last chunk, other steps come after them.
    """
    tasks = _tasks(costs, 1)
    least = 0.0
    for stream in {task.stream for task in tasks}:
        places = [place for place, task in enumerate(tasks) if task.stream == stream]
        busy = sum(tasks[place].time for place in places)
        before = sum(task.time for task in tasks[: places[0]])
        behind = sum(task.time for task in tasks[places[-1] + 1 :])
        least = max(least, before + chunks * busy + behind)
    return least


def in_chunks(candidate: StepSequence, chunks: int) -> StepSequence:
    """Return the program on all chunks, given that on one, with its steps in the order of start."""
    tasks = _tasks(candidate.costs, chunks)
    spans = schedule(tasks, as_written=False)
    starts = sorted(range(len(tasks)), key=lambda number: spans[number][0])
    order = _order(candidate.steps, chunks, [divmod(n, len(candidate.costs)) for n in starts])
    end = max(end for _, end in spans)
    pipeline = ChunkPipeline(chunks, tuple(order), end)
    return replace(candidate, memory=candidate.memory * chunks, pipeline=pipeline)


def _tasks(costs: Sequence[StepCost], chunks: int) -> list[StepTask]:
    """Return the steps of every chunk as tasks, those of the first chunk first."""
    tasks: list[StepTask] = []
    for _ in range(chunks):
        for place, cost in enumerate(costs):
            after = (len(tasks) - 1,) if place else ()
            tasks.append(StepTask(cost.phases, stream_of(cost.collective), after, waited=False))
    return tasks


def _order(
    steps: Sequence[CollectiveStep], chunks: int, starts: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield all steps in the order of ``starts``: pairs of a chunk and the number of its sending
    step.

    A local step comes right before the next step of its chunk that sends, or at the end.
    """
    sending = [place for place, step in enumerate(steps) if step.does.sends]
    done = [0] * chunks
    for chunk, which in starts:
        yield from ((chunk, place) for place in range(done[chunk], sending[which] + 1))
        done[chunk] = sending[which] + 1
    for chunk in range(chunks):
        yield from ((chunk, place) for place in range(done[chunk], len(steps)))
