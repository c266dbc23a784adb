"""The cheapest ways from one layout to another, as paths through the states of a value.

A path is a program: its edges are steps. Local steps cost nothing; what a collective costs is asked
of the cost model only where a bound does not settle it: an edge is first opened with the least its
ports must take, and costed once nothing better is open. Of equal programs the one of fewer steps
wins.
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.group import CostError
from collir.layout import DistType
from collir.layout.steps import STEPS
from collir.search import Problem
from collir.synthesis.programs.ports import Ports
from collir.synthesis.programs.steps import Candidate, Step
from collir.synthesis.searching import best_of

State = TypeVar("State", bound=Hashable)

TIE = 1e-9
"""Of the shortest step: what a step more counts, so that of equal programs the shorter is better;
and what times may differ by and count as equal."""


class Edge(NamedTuple, Generic[State]):
    """What one step does to a state.

    ``free`` are local steps; ``kind`` is the collective behind them, or ``""``: then the others
    mean nothing. ``then`` are local steps behind it. ``group``, ``at_root`` and ``replicated`` are
    sets of sub-axes as in ``Ports``, ``size`` is that of ``Collective``, ``memory`` the bytes that
    operand and result take together. ``step`` says how it is written, where the group alone does
    not, and ``moves`` are the layouts of a permute.
    """

    after: State
    free: tuple[Step, ...] = ()
    kind: str = ""
    group: int = 0
    at_root: int = 0
    replicated: int = 0
    size: float = 0.0
    memory: float = 0.0
    step: Step | None = None
    moves: tuple[DistType, DistType] | None = None
    then: tuple[Step, ...] = ()


class Node(NamedTuple, Generic[State]):
    """A path so far: ``edge`` is its last one, not yet costed if ``open`` is set."""

    bound: float
    cost: float
    state: State
    before: "Node[State] | None" = None
    edge: Edge[State] | None = None
    step: Step | None = None
    paid: Collective | None = None
    open: bool = False


class Paths(Problem[Node[State]]):
    """All paths from a state to another.

    Attributes:
        memory: no step may need more bytes on a device.
        scale: how many times as large as its type says the value is taken to be.
        tie: seconds that every step counts beside its time.
        masks: the steps behind every path.
    """

    sense = "min"
    sorted_by_bound = True

    def __init__(
        self, ports: Ports, model: CostModel, memory: float | None = None, scale: float = 1.0
    ):
        self.ports, self.model, self.memory, self.scale = ports, model, memory, scale
        self._paid: dict[Hashable, tuple[Step, Collective, float] | None] = {}
        self.tie = 0.0
        self.masks: tuple[Step, ...] = ()

    @abstractmethod
    def start(self) -> State:
        """Where paths begin."""

    @abstractmethod
    def reached(self, state: State) -> bool:
        """Whether paths may end here."""

    @abstractmethod
    def edges(self, state: State) -> Iterable[tuple[float, Edge[State]]]:
        """All steps from a state, with what each takes at least (``tie`` included); in the order of
        what programs take at least that go on with them."""

    @abstractmethod
    def remaining(self, state: State) -> float:
        """Seconds that any way from here to the end takes at least."""

    def known(self) -> Candidate | None:
        """A program that is known without a search; None if there is none."""
        return None

    # --- as a problem -----------------------------------------------------------------------

    def root(self) -> Node[State]:
        """No step is taken."""
        return Node(self.remaining(self.start()), 0.0, self.start())

    def children(self, node: Node[State]) -> Iterator[Node[State]]:
        """One step more; of a step that is not costed yet, the same step costed."""
        if node.open:
            if (costed := self._costed(node)) is not None:
                yield costed
            return
        for least, edge in self.edges(node.state):
            if self.memory is None or edge.memory <= self.memory:
                cost = node.cost + least
                bound = cost + self.remaining(edge.after)
                yield Node(bound, cost, edge.after, node, edge, open=bool(edge.kind))

    def objective(self, node: Node[State]) -> float | None:
        """Seconds, and a trifle for each step, where a path has arrived."""
        return None if node.open or not self.reached(node.state) else node.cost

    def bound(self, node: Node[State]) -> float:
        """Seconds of the whole program at least."""
        return node.bound

    def key(self, node: Node[State]) -> Hashable:
        """The state; a step that is not costed yet has none."""
        return None if node.open else node.state

    def cost(self, node: Node[State]) -> float:
        """Seconds so far."""
        return node.cost

    def identity(self) -> Hashable:
        """Never checkpointed."""
        return id(self)

    # --- costs ------------------------------------------------------------------------------

    def _costed(self, node: Node[State]) -> Node[State] | None:
        edge, before = node.edge, node.before
        assert edge is not None and before is not None
        found = self.costed(edge)
        if found is None:
            return None
        step, paid, time = found
        cost = before.cost + time + self.tie
        return Node(cost + self.remaining(node.state), cost, node.state, before, edge, step, paid)

    def costed(self, edge: Edge[State]) -> tuple[Step, Collective, float] | None:
        """The cheapest order of the ranks, with its seconds; None if the model has no cost."""
        name = (edge.kind, edge.group, edge.at_root, edge.size, edge.step, edge.moves)
        if name not in self._paid:
            self._paid[name] = self._cheapest_order(edge)
        return self._paid[name]

    def _cheapest_order(self, edge: Edge[State]) -> tuple[Step, Collective, float] | None:
        best: tuple[Step, Collective, float] | None = None
        for step, collective in self._written(edge):
            try:
                time = self.ports.time(collective)
            except CostError:
                continue
            if best is None or time < best[2] * (1 - TIE):
                best = step, collective, time
        return best

    def _written(self, edge: Edge[State]) -> Iterator[tuple[Step, Collective]]:
        """A collective with its ranks in the order of the hardware, and backwards, where the order
        matters for nothing but its cost: blocks in another order would have to be packed."""
        ports = self.ports
        listed = [edge.step]
        if edge.step is None:
            ordered = STEPS[edge.kind].ordered
            orders = [ports.axes(edge.group)] if ordered else ports.orders(edge.group)
            listed = [Step(edge.kind, over) for over in orders]
        root = frozenset(ports.axes(edge.at_root))
        copies = frozenset(ports.axes(edge.replicated))
        for step in filter(None, listed):
            yield (
                step,
                Collective(
                    edge.kind, ports.mesh, step.axes, edge.size, root, copies, moves=edge.moves
                ),
            )


@dataclass(frozen=True)
class Found:
    """The cheapest programs, best first.

    Attributes:
        ended: why the search was cut off, so that there may be better ones; or "".
        bound: seconds that no program takes less than; None: none is known.
    """

    candidates: tuple[Candidate, ...]
    ended: str
    bound: float | None = None


def cheapest(paths: Paths[Any], top: int = 1, seconds: float | None = None) -> Found:
    """The cheapest programs; after some seconds the best so far."""
    known = paths.known()
    outcome = best_of(
        paths,
        top,
        seconds,
        better_than=known.time * (1 + TIE) if known and top == 1 else None,
        order="best-first",
    )
    candidates = [candidate_of(paths, solution.node) for solution in outcome.solutions]
    if known and len(candidates) < top and all(one.steps != known.steps for one in candidates):
        candidates.append(known)
        candidates.sort(key=lambda one: one.time)
    return Found(tuple(candidates), outcome.statistics.reason, outcome.bound)


def candidate_of(paths: Paths[Any], node: Any) -> Candidate:
    """The program of a path that has arrived, given by its last node (as ``Node``)."""
    nodes = [node]
    while (before := nodes[-1].before) is not None:
        nodes.append(before)
    steps: list[Step] = []
    costs: list[StepCost] = []
    for one in reversed(nodes):
        if one.edge is not None:
            steps += one.edge.free
        if one.step is not None and one.paid is not None:
            steps.append(one.step)
            costs.append(step_cost(one.paid, paths.model))
        if one.edge is not None:
            steps += one.edge.then
    memory = max((one.edge.memory for one in nodes if one.edge is not None), default=0.0)
    return Candidate(paths.ports.mesh, (*steps, *paths.masks), tuple(costs), memory)
