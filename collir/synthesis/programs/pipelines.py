"""Programs on a value in chunks: while one crosses the outer ports, another is reduced inside.

What a program takes on c chunks is not a sum over its steps. On each stream (that of the outermost
level a step goes through) and each port the steps of one chunk follow each other, and the busiest
of them sets the pace:

    sum over the steps of a chunk + (c - 1) max over streams and ports of what a chunk keeps it busy

So a path has several costs, its sum and what it adds to each stream and port, and of two paths to a
state one replaces the other only if it is nowhere greater (Pareto labels). The best programs under
that formula, for each number of chunks, are then scheduled, and the times told are those of the
schedules. A formula of steady state may be off where steps of one stream or port are not
neighbours, so what is claimed is how far a program is from ``least``: what the bytes take on the
busiest port by any program, on any number of chunks.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import add
from typing import NamedTuple

from collir.cost.collectives.collective import Collective
from collir.cost.model import StepCost, step_estimate, step_phases
from collir.cost.programs.cost import stream_of
from collir.cost.programs.schedule import StepTask, schedule
from collir.search import Problem
from collir.synthesis.programs.paths import Edge, Found, candidate_of
from collir.synthesis.programs.states import StatePaths
from collir.synthesis.programs.steps import Candidate, Pipeline, Step
from collir.synthesis.searching import best_of

TRIED = 3
"""How many of the best programs of a number of chunks are scheduled."""

_ROUNDED = 1e-9
"""By how much the times of a schedule may be rounded, as a part of them."""


def chunk_counts(most: int, units: int) -> list[int]:
    """The numbers of chunks that are tried: 2^k and 3 * 2^k, and of these the divisors of the
    number of units that a value can be cut into, if there are any: others need padding."""
    most = min(most, units)
    listed = [digit << power for power in range(most.bit_length()) for digit in (2, 3)]
    counts = sorted(count for count in set(listed) if count <= most)
    return [count for count in counts if units % count == 0] or counts


class Label(NamedTuple):
    """What the steps of a chunk take: in a row, on each stream, and on each port."""

    total: float
    streams: tuple[float, ...]
    ports: tuple[float, ...]

    def plus(self, time: float, stream: int, ports: Iterable[float]) -> "Label":
        """With one step more."""
        streams = tuple(one + time * (place == stream) for place, one in enumerate(self.streams))
        added = tuple(one + other for one, other in zip(self.ports, ports, strict=True))
        return Label(self.total + time, streams, added)


class Node(NamedTuple):
    """A path so far; as in ``paths``, ``edge`` is its last one, not costed yet if ``open``."""

    bound: float
    label: Label
    state: int
    before: "Node | None" = None
    edge: Edge[int] | None = None
    step: Step | None = None
    paid: object | None = None
    open: bool = False


class Pipelines(Problem[Node]):
    """All programs between two layouts, run on a number of chunks.

    Attributes:
        chunks: how many.
        paths: the programs on one of them.
    """

    sense = "min"

    def __init__(self, paths: StatePaths, chunks: int):
        self.paths, self.chunks = paths, chunks
        self._taken: dict[Collective, tuple[int, tuple[float, ...]]] = {}
        self._left = {state: self._on_all(busy) for state, busy in paths.busy_left().items()}

    def _on_all(self, busy: Sequence[float]) -> list[float]:
        """For all levels of the machine what is given for those that have several children."""
        found = [0.0] * len(self.paths.ports.mesh.machine.levels)
        for level, one in zip(self.paths.ports.levels, busy, strict=True):
            found[level] = one
        return found

    def root(self) -> Node:
        """No step is taken."""
        none = (0.0,) * len(self.paths.ports.mesh.machine.levels)
        return self._node(Label(0.0, none, none), self.paths.start())

    def children(self, node: Node) -> Iterator[Node]:
        """One step more; of a step that is not costed yet, the same step costed."""
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

    def _costed(self, node: Node) -> Node | None:
        edge, before = node.edge, node.before
        assert edge is not None and before is not None
        found = self.paths.costed(edge)
        if found is None:
            return None
        step, paid, time = found
        taken = self._taken.get(paid)
        if taken is None:
            taken = self._taken[paid] = self._taken_by(paid)
        label = before.label.plus(time + self.paths.tie, *taken)
        return self._node(label, node.state, before, edge)._replace(step=step, paid=paid)

    def _taken_by(self, collective: Collective) -> tuple[int, tuple[float, ...]]:
        """The stream of a step, and how long it keeps each level busy."""
        model = self.paths.model
        _, estimate = step_estimate(collective, model)
        task = StepTask(step_phases(collective, model, estimate), stream_of(collective))
        return task.stream, task.loads(len(collective.mesh.machine.levels))

    def _node(
        self,
        label: Label,
        state: int,
        before: Node | None = None,
        edge: Edge[int] | None = None,
    ) -> Node:
        left = map(add, label.ports, self._left[state])
        total = label.total + self.paths.remaining(state)
        pace = max((*label.streams, *left), default=0.0)
        return Node(total + (self.chunks - 1) * pace, label, state, before, edge)

    def objective(self, node: Node) -> float | None:
        """Seconds of all chunks, where a path has arrived."""
        return None if node.open or not self.paths.reached(node.state) else node.bound

    def bound(self, node: Node) -> float:
        """Seconds of the whole program at least."""
        return node.bound

    def key(self, node: Node) -> Hashable:
        """The state; a step that is not costed yet has none."""
        return None if node.open else node.state

    def cost(self, node: Node) -> tuple[float, ...]:
        """The label."""
        return (node.label.total, *node.label.streams, *node.label.ports)

    def identity(self) -> Hashable:
        """Never checkpointed."""
        return id(self)


def pipelined(
    paths: StatePaths, chunks: int, seconds: float | None = None, better_than: float = math.inf
) -> Found:
    """The best programs on a number of chunks, scheduled.

    Args:
        paths: of the value of one chunk.
        better_than: seconds; a program that takes as long by ``least_on`` is not scheduled.
    """
    outcome = best_of(Pipelines(paths, chunks), TRIED, seconds, order="best-first")
    found = (candidate_of(paths, solution.node) for solution in outcome.solutions)
    scheduled = (
        in_chunks(one, chunks)
        for one in found
        if one.costs and least_on(one.costs, chunks) * (1 - _ROUNDED) < better_than
    )
    return Found(tuple(scheduled), outcome.statistics.reason)


def least_on(costs: Sequence[StepCost], chunks: int) -> float:
    """Seconds that no schedule of steps on chunks takes less than: a stream does one step after the
    other, what the first chunk does before comes before, and what the last does after behind."""
    tasks = _tasks(costs, 1)
    least = 0.0
    for stream in {task.stream for task in tasks}:
        places = [place for place, task in enumerate(tasks) if task.stream == stream]
        busy = sum(tasks[place].time for place in places)
        before = sum(task.time for task in tasks[: places[0]])
        behind = sum(task.time for task in tasks[places[-1] + 1 :])
        least = max(least, before + chunks * busy + behind)
    return least


def in_chunks(candidate: Candidate, chunks: int) -> Candidate:
    """A program for one chunk as one for all, its steps in the order in which they start."""
    tasks = _tasks(candidate.costs, chunks)
    spans = schedule(tasks, as_written=False)
    starts = sorted(range(len(tasks)), key=lambda number: spans[number][0])
    order = _order(candidate.steps, chunks, [divmod(n, len(candidate.costs)) for n in starts])
    end = max(end for _, end in spans)
    pipeline = Pipeline(chunks, tuple(order), end)
    return replace(candidate, memory=candidate.memory * chunks, pipeline=pipeline)


def _tasks(costs: Sequence[StepCost], chunks: int) -> list[StepTask]:
    """The steps of every chunk, those of the first one first."""
    tasks: list[StepTask] = []
    for _ in range(chunks):
        for place, cost in enumerate(costs):
            after = (len(tasks) - 1,) if place else ()
            tasks.append(StepTask(cost.phases, stream_of(cost.collective), after, waited=False))
    return tasks


def _order(
    steps: Sequence[Step], chunks: int, starts: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """All steps, those that send in the order of (chunk, which of those that send), the others
    right before the next of their chunk that sends, or at the end."""
    sending = [place for place, step in enumerate(steps) if step.does.sends]
    done = [0] * chunks
    for chunk, which in starts:
        yield from ((chunk, place) for place in range(done[chunk], sending[which] + 1))
        done[chunk] = sending[which] + 1
    for chunk in range(chunks):
        yield from ((chunk, place) for place in range(done[chunk], len(steps)))
