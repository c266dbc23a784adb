"""Programs of collectives found the plain way: all steps from every layout, and no bounds.

A layout without order is a string: the state of every sub-axis of a mesh, P(artial), M (root only),
S(harded) or R(eplicated). Nothing here looks at how collir searches.
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
"""What collectives do to the state of their sub-axes."""

LOCAL = {"slice": "RS", "keep_root": "RM"}
"""What they do that send nothing."""

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Taken:
    """A step from one layout to another: its name, its sub-axes, and seconds."""

    kind: str
    axes: tuple[str, ...]
    time: float
    after: str


@dataclass
class Unordered:
    """All steps between layouts without order, of a value with so many elements in all.

    ``start`` and ``goal`` are layouts, ``elements`` those of a device where nothing is sharded.
    ``memory``: bytes that operand and result of a step may take together. ``cutting``: what a
    collective leaves copies of is cut or dropped at once, where it is to be sharded or at root in
    the end.
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
        """The sub-axes, in the order of layouts."""
        return list(self.mesh.by_name)

    def held(self, state: str) -> float:
        """Bytes on a device."""
        sizes = [self.mesh.by_name[name].size for name in self.names]
        shards = math.prod(n for n, one in zip(sizes, state, strict=True) if one == "S")
        return math.ceil(self.elements / shards) * self.item

    def within(self, before: str, after: str) -> bool:
        """Whether a step stays within the memory."""
        return self.held(before) + self.held(after) <= self.memory

    def seconds(self, kind: str, before: str, after: str, axes: tuple[str, ...]) -> float:
        """What a collective takes in the best of two orders of its ranks; inf if it cannot."""
        key = (kind, before, axes)
        if key in self._paid:
            return self._paid[key]
        each = list(zip(self.names, before, strict=True))
        root = frozenset(name for name, one in each if one == "M" and name not in axes)
        size = max(self.held(before), self.held(after))
        strides = self.mesh.by_name
        hardware = tuple(sorted(axes, key=lambda axis: -strides[axis].stride))
        orders = [hardware]
        if kind in ("all_reduce", "reduce", "broadcast"):
            orders.append(hardware[::-1])
        found = math.inf
        for order in orders:
            try:
                collective = Collective(kind, self.mesh, order, size, root)
                found = min(found, step_cost(collective, self.model).time)
            except CostError:
                continue
        self._paid[key] = found
        return found

    def steps(self, state: str, kinds: Iterable[str] = KINDS) -> Iterator[Taken]:
        """Every collective over every set of sub-axes that are in the state it needs."""
        for kind in kinds:
            before, after = KINDS[kind]
            able = [place for place, one in enumerate(state) if one == before]
            for places in subsets(able):
                arrived = changed(state, places, after)
                axes = tuple(self.names[place] for place in places)
                if self.within(state, arrived):
                    time = self.seconds(kind, state, arrived, axes)
                    if time < math.inf:
                        yield Taken(kind, axes, time, arrived)

    # --- one way only -----------------------------------------------------------------------

    def order_of(self, place: int) -> str:
        """The states that a sub-axis may go through, in order."""
        begin, end = self.start[place], self.goal[place]
        if begin == end != "R":
            return begin
        if begin == "R" and end == "S":
            return end
        order = "PSM" if end == "M" else "PMSR"
        first = "M" if begin == "R" and end != "M" else "S" if begin == "R" else begin
        return order[order.index(first) : order.index(end) + 1]

    def beginnings(self) -> list[str]:
        """The layouts that cutting or dropping copies leads to."""
        choices = [
            self.order_of(place) if one == "R" else one for place, one in enumerate(self.start)
        ]
        made = ["".join(states) for states in itertools.product(*choices)]
        return [one for one in made if one == self.start or self.within(self.start, one)]

    def onwards(self, state: str) -> Iterator[Taken]:
        """The steps that bring sub-axes further on their way."""
        orders = [self.order_of(place) for place in range(len(state))]
        for step in self.steps(state):
            moved = [place for place, one in enumerate(state) if one != step.after[place]]
            after = step.after
            if self.cutting and KINDS[step.kind][1] == "R":
                for place in moved:
                    after = changed(after, [place], self.goal[place])
            each = [(orders[place], state[place], after[place]) for place in moved]
            if all(-1 < order.find(a) < order.find(b) for order, a, b in each):
                yield Taken(step.kind, step.axes, step.time, after)

    def best(self) -> float:
        """Seconds of the cheapest program that goes one way only; inf if there is none."""
        begin = dict.fromkeys(self.beginnings(), 0.0)
        return dijkstra(begin, self._edges(self.onwards)).get(self.goal, math.inf)

    def to_go(self) -> dict[str, float]:
        """Of every layout on the way, the seconds to the goal."""
        known: dict[str, float] = {self.goal: 0.0}

        def left(state: str) -> float:
            if state not in known:
                steps = self.onwards(state)
                known[state] = min((s.time + left(s.after) for s in steps), default=math.inf)
            return known[state]

        for state in self.beginnings():
            left(state)
        return known

    def programs(self) -> Iterator[tuple[Taken, ...]]:
        """All programs that go one way only, each once for every way to begin."""
        for state in self.beginnings():
            yield from self._programs(state)

    def _programs(self, state: str) -> Iterator[tuple[Taken, ...]]:
        if state == self.goal:
            yield ()
            return
        for step in self.onwards(state):
            for rest in self._programs(step.after):
                yield (step, *rest)

    # --- any way ----------------------------------------------------------------------------

    def anywhere(self, fixed: str = "") -> float:
        """Seconds of the cheapest program of all steps in any order: what is replicated may be cut
        or dropped at any time, and what is sharded or at root may come back to be so later.

        Sub-axes whose state is the same at both ends stay in it, where it is one of ``fixed``.
        """
        still = [a == b and a in fixed for a, b in zip(self.start, self.goal, strict=True)]

        def edges(state: str) -> Iterator[tuple[float, str]]:
            each = [(step.time, step.after) for step in self.steps(state)]
            for before, after in LOCAL.values():
                able = [place for place, one in enumerate(state) if one == before]
                made = [changed(state, places, after) for places in subsets(able)]
                each += [(0.0, one) for one in made if self.within(state, one)]
            for time, after in each:
                moved = zip(still, state, after, strict=True)
                if not any(kept and a != b for kept, a, b in moved):
                    yield time, after

        return dijkstra({self.start: 0.0}, edges).get(self.goal, math.inf)

    @staticmethod
    def _edges(
        steps: Callable[[str], Iterator[Taken]],
    ) -> Callable[[str], Iterator[tuple[float, str]]]:
        return lambda state: ((step.time, step.after) for step in steps(state))


def dijkstra(
    begin: dict[State, float], edges: Callable[[State], Iterable[tuple[float, State]]]
) -> dict[State, float]:
    """The least cost of everything that can be reached."""
    found: dict[State, float] = {}
    tie = itertools.count()
    heap = [(cost, next(tie), state) for state, cost in begin.items()]
    heapq.heapify(heap)
    while heap:
        cost, _, state = heapq.heappop(heap)
        if state in found:
            continue
        found[state] = cost
        for more, after in edges(state):
            if after not in found:
                heapq.heappush(heap, (cost + more, next(tie), after))
    return found


def subsets(items: Sequence[State]) -> Iterator[tuple[State, ...]]:
    """All non-empty subsets."""
    for count in range(1, len(items) + 1):
        yield from itertools.combinations(items, count)


def changed(state: str, places: Iterable[int], to: str) -> str:
    """A layout with some sub-axes in another state."""
    listed = list(state)
    for place in places:
        listed[place] = to
    return "".join(listed)


def equal(one: float, other: float, tolerance: float = TOLERANCE) -> bool:
    """Whether times are the same but for rounding."""
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-300)
