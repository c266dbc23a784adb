"""Exhaustive search for programs of collectives: all steps from every layout, without bounds.

A layout without order is a string: the state of every sub-axis of a mesh, P(artial), M (root only),
S(harded) or R(eplicated). Nothing is shared with collir's search.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.layout import Mesh

State = TypeVar("State")

KINDS = {
    "all_reduce": "PR",
    "reduce": "PM",
    "reduce_scatter": "PS",
    "broadcast": "MR",
    "scatter": "MS",
    "all_gather": "SR",
    "gather": "SM",
}
"""The states of their sub-axes before and after each collective."""

LOCAL = {"slice": "RS", "keep_root": "RM"}
"""The same for the steps that send nothing."""

TOLERANCE = 1e-9


@dataclass(frozen=True)
class PlainStep:
    """A step to another layout: its name, its sub-axes, its seconds and the layout after it."""

    kind: str
    axes: tuple[str, ...]
    time: float
    after: str


@dataclass
class Unordered:
    """The graph of steps between layouts without order of a value.

    Attributes:
        start, goal: layouts.
        elements: elements of the value on a device if no sub-axis shards it.
        item: bytes of an element.
        memory: maximum bytes of operand and result of a step together.
        cutting: whether a sub-axis that a collective replicates becomes sharded or root at once,
            if it is so in the goal.
    """

    mesh: Mesh
    start: str
    goal: str
    elements: int
    item: int
    model: CostModel
    memory: float = math.inf
    cutting: bool = True
    _paid: dict[tuple[str, str, tuple[str, ...]], float] = field(
        default_factory=dict[tuple[str, str, tuple[str, ...]], float]
    )

    @property
    def names(self) -> list[str]:
        """Return the sub-axes in the order of layouts."""
        return list(self.mesh.by_name)

    def held(self, state: str) -> float:
        """Return the bytes on a device."""
        sizes = [self.mesh.by_name[name].size for name in self.names]
        shards = math.prod(n for n, letter in zip(sizes, state, strict=True) if letter == "S")
        return math.ceil(self.elements / shards) * self.item

    def within(self, before: str, after: str) -> bool:
        """Return whether a step stays within the memory."""
        return self.held(before) + self.held(after) <= self.memory

    def seconds(self, kind: str, before: str, after: str, axes: tuple[str, ...]) -> float:
        """Return the seconds of a collective in the better of two rank orders; inf if none."""
        key = (kind, before, axes)
        if key in self._paid:
            return self._paid[key]
        states = list(zip(self.names, before, strict=True))
        root = frozenset(name for name, letter in states if letter == "M" and name not in axes)
        size = max(self.held(before), self.held(after))
        strides = self.mesh.by_name
        hardware = tuple(sorted(axes, key=lambda axis: -strides[axis].stride))
        orders = [hardware]
        if kind in ("all_reduce", "reduce", "broadcast"):
            orders.append(hardware[::-1])
        best = math.inf
        for order in orders:
            try:
                collective = Collective(kind, self.mesh, order, size, root)
                best = min(best, step_cost(collective, self.model).time)
            except CostError:
                continue
        self._paid[key] = best
        return best

    def steps(self, state: str, kinds: Iterable[str] = KINDS) -> Iterator[PlainStep]:
        """Yield every collective over every set of sub-axes that are in the state it needs."""
        for kind in kinds:
            before, after = KINDS[kind]
            ready = [place for place, letter in enumerate(state) if letter == before]
            for places in subsets(ready):
                new_state = changed(state, places, after)
                axes = tuple(self.names[place] for place in places)
                if self.within(state, new_state):
                    time = self.seconds(kind, state, new_state, axes)
                    if time < math.inf:
                        yield PlainStep(kind, axes, time, new_state)

    # --- forward steps only -----------------------------------------------------------------

    def order_of(self, place: int) -> str:
        """Return the states that a sub-axis may pass through, in order."""
        begin, end = self.start[place], self.goal[place]
        if begin == end != "R":
            return begin
        if begin == "R" and end == "S":
            return end
        order = "PSM" if end == "M" else "PMSR"
        first = "M" if begin == "R" and end != "M" else "S" if begin == "R" else begin
        return order[order.index(first) : order.index(end) + 1]

    def beginnings(self) -> list[str]:
        """Return the layouts that local steps lead to from the start, and the start."""
        choices = [
            self.order_of(place) if letter == "R" else letter
            for place, letter in enumerate(self.start)
        ]
        layouts = ["".join(states) for states in itertools.product(*choices)]
        return [x for x in layouts if x == self.start or self.within(self.start, x)]

    def onwards(self, state: str) -> Iterator[PlainStep]:
        """Yield the steps that bring sub-axes forward in their orders of states."""
        orders = [self.order_of(place) for place in range(len(state))]
        for step in self.steps(state):
            moved = [place for place, letter in enumerate(state) if letter != step.after[place]]
            after = step.after
            if self.cutting and KINDS[step.kind][1] == "R":
                for place in moved:
                    after = changed(after, [place], self.goal[place])
            changes = [(orders[place], state[place], after[place]) for place in moved]
            if all(-1 < order.find(a) < order.find(b) for order, a, b in changes):
                yield PlainStep(step.kind, step.axes, step.time, after)

    def best(self) -> float:
        """Return the seconds of the cheapest program of forward steps; inf if there is none."""
        begin = dict.fromkeys(self.beginnings(), 0.0)
        return dijkstra(begin, self._edges(self.onwards)).get(self.goal, math.inf)

    def to_go(self) -> dict[str, float]:
        """Return the seconds from every reachable layout to the goal."""
        known: dict[str, float] = {self.goal: 0.0}

        def left(state: str) -> float:
            if state not in known:
                steps = self.onwards(state)
                known[state] = min((s.time + left(s.after) for s in steps), default=math.inf)
            return known[state]

        for state in self.beginnings():
            left(state)
        return known

    def programs(self) -> Iterator[tuple[PlainStep, ...]]:
        """Yield all programs of forward steps, each once for every beginning."""
        for state in self.beginnings():
            yield from self._programs(state)

    def _programs(self, state: str) -> Iterator[tuple[PlainStep, ...]]:
        if state == self.goal:
            yield ()
            return
        for step in self.onwards(state):
            for rest in self._programs(step.after):
                yield (step, *rest)

    # --- all steps --------------------------------------------------------------------------

    def anywhere(self, fixed: str = "") -> float:
        """Return the seconds of the cheapest program of all steps in any order.

        A replicated sub-axis may become sharded or root at any time, and a sub-axis may return to a
        state that it has left. A sub-axis whose state is equal at both ends and one of ``fixed``
        never leaves it.
        """
        still = [a == b and a in fixed for a, b in zip(self.start, self.goal, strict=True)]

        def edges(state: str) -> Iterator[tuple[float, str]]:
            steps = [(step.time, step.after) for step in self.steps(state)]
            for before, after in LOCAL.values():
                ready = [place for place, letter in enumerate(state) if letter == before]
                layouts = [changed(state, places, after) for places in subsets(ready)]
                steps += [(0.0, x) for x in layouts if self.within(state, x)]
            for time, after in steps:
                moved = zip(still, state, after, strict=True)
                if not any(kept and a != b for kept, a, b in moved):
                    yield time, after

        return dijkstra({self.start: 0.0}, edges).get(self.goal, math.inf)

    @staticmethod
    def _edges(
        steps: Callable[[str], Iterator[PlainStep]],
    ) -> Callable[[str], Iterator[tuple[float, str]]]:
        return lambda state: ((step.time, step.after) for step in steps(state))


def dijkstra(
    begin: dict[State, float], edges: Callable[[State], Iterable[tuple[float, State]]]
) -> dict[State, float]:
    """Return the least cost of every reachable state."""
    costs: dict[State, float] = {}
    tie = itertools.count()
    heap = [(cost, next(tie), state) for state, cost in begin.items()]
    heapq.heapify(heap)
    while heap:
        cost, _, state = heapq.heappop(heap)
        if state in costs:
            continue
        costs[state] = cost
        for weight, after in edges(state):
            if after not in costs:
                heapq.heappush(heap, (cost + weight, next(tie), after))
    return costs


def subsets(items: Sequence[State]) -> Iterator[tuple[State, ...]]:
    """Yield all non-empty subsets, the smallest first."""
    for count in range(1, len(items) + 1):
        yield from itertools.combinations(items, count)


def changed(state: str, places: Iterable[int], to: str) -> str:
    """Return a layout with some sub-axes in another state."""
    listed = list(state)
    for place in places:
        listed[place] = to
    return "".join(listed)


def equal(a: float, b: float, tolerance: float = TOLERANCE) -> bool:
    """Return whether times are equal up to rounding."""
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-300)
