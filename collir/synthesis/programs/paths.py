"""The cheapest programs from one layout to another, as paths through the states of a value.

The edges of a path are steps. Local steps cost nothing. The cost model is asked only where bounds
do not decide: an edge is first opened with the lower bound of its ports, and costed once no better
edge is open. Of equal programs the one of fewer steps wins.
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from collir.cost.collectives.collective import Collective, LayoutChange
from collir.cost.collectives.uneven import UnevenSizes
from collir.cost.model import CostModel, StepCost, step_cost
from collir.cost.network.group import CostError
from collir.layout.coll import STEPS
from collir.search import Problem
from collir.synthesis.programs.ports import Ports
from collir.synthesis.programs.steps import CollectiveStep, StepSequence
from collir.synthesis.searching import best_of

State = TypeVar("State", bound=Hashable)

TIE = 1e-9
"""The penalty for each step, relative to the shortest step, which breaks ties towards fewer steps;
and the relative difference below which two times count as equal."""


class Edge(NamedTuple, Generic[State]):
    """A step from a state: local steps, at most one collective, and local steps behind it.

    Attributes:
        after: the state that the step leads to.
        free: the local steps in front of the collective.
        kind: the collective; "" if there is none (the fields that describe it then mean nothing).
        group, at_root, replicated: the sub-axes of the collective, sets as in ``Ports``.
        size: bytes, as of ``Collective``.
        memory: bytes that operand and result take together.
        step: the collective as written, where the group alone does not determine it.
        moves: the layouts of a permute.
        then: the local steps behind the collective.
        uneven: the sizes that count where blocks differ in size (see ``Collective``).
    """

    after: State
    free: tuple[CollectiveStep, ...] = ()
    kind: str = ""
    group: int = 0
    at_root: int = 0
    replicated: int = 0
    size: float = 0.0
    memory: float = 0.0
    step: CollectiveStep | None = None
    moves: LayoutChange | None = None
    then: tuple[CollectiveStep, ...] = ()
    uneven: UnevenSizes | None = None


class PathNode(NamedTuple, Generic[State]):
    """A path so far.

    Attributes:
        bound: a lower bound on the seconds of the whole program.
        cost: seconds so far.
        before: the node of the path without its last edge.
        edge: the last edge of the path.
        step, paid: the collective of that edge as it is written, and as it was costed.
        open: whether the collective of that edge is not costed yet.
    """

    bound: float
    cost: float
    state: State
    before: "PathNode[State] | None" = None
    edge: Edge[State] | None = None
    step: CollectiveStep | None = None
    paid: Collective | None = None
    open: bool = False


class Paths(Problem[PathNode[State]]):
    """The paths from a state to another.

    Attributes:
        memory: the most bytes that a step may need on a device; None: no limit.
        scale: the factor by which the size of the value is multiplied.
        tie: the penalty for each step, in seconds.
        masks: the steps that every program ends with.
        at: the coordinates at which the source is held.
    """

    sense = "min"
    sorted_by_bound = True

    def __init__(
        self, ports: Ports, model: CostModel, memory: float | None = None, scale: float = 1.0
    ):
        self.ports, self.model, self.memory, self.scale = ports, model, memory, scale
        self._paid: dict[Hashable, tuple[CollectiveStep, Collective, float] | None] = {}
        self.tie = 0.0
        self.masks: tuple[CollectiveStep, ...] = ()
        self.at: dict[str, int] = {}

    @abstractmethod
    def start(self) -> State:
        """Return the state in which paths begin."""

    @abstractmethod
    def reached(self, state: State) -> bool:
        """Return whether paths may end in a state."""

    @abstractmethod
    def edges(self, state: State) -> Iterable[tuple[float, Edge[State]]]:
        """Return all steps from a state, each with a lower bound on its seconds, ``tie`` included.

        Steps come in the order of the lower bounds of programs that go on with them.
        """

    @abstractmethod
    def remaining(self, state: State) -> float:
        """Return a lower bound on the seconds from a state to the end."""

    def known(self) -> StepSequence | None:
        """Return a program that is known without a search; None if there is none."""
        return None

    # --- as a problem -----------------------------------------------------------------------

    def root(self) -> PathNode[State]:
        """Return the path of no steps."""
        return PathNode(self.remaining(self.start()), 0.0, self.start())

    def children(self, node: PathNode[State]) -> Iterator[PathNode[State]]:
        """Yield paths of one step more, or the same path once its last step is costed."""
        if node.open:
            if (costed := self._costed(node)) is not None:
                yield costed
            return
        for least, edge in self.edges(node.state):
            if self.memory is None or edge.memory <= self.memory:
                cost = node.cost + least
                bound = cost + self.remaining(edge.after)
                yield PathNode(bound, cost, edge.after, node, edge, open=bool(edge.kind))

    def objective(self, node: PathNode[State]) -> float | None:
        """Return the seconds of a path that has arrived, with the penalty for its steps."""
        return None if node.open or not self.reached(node.state) else node.cost

    def bound(self, node: PathNode[State]) -> float:
        """Return a lower bound on the seconds of the whole program."""
        return node.bound

    def key(self, node: PathNode[State]) -> Hashable:
        """Return the state; None of a path whose last step is not costed."""
        return None if node.open else node.state

    def cost(self, node: PathNode[State]) -> float:
        """Return the seconds so far."""
        return node.cost

    def identity(self) -> Hashable:
        """Return a key that no other run has: such a search is never checkpointed."""
        return id(self)

    # --- costs ------------------------------------------------------------------------------

    def _costed(self, node: PathNode[State]) -> PathNode[State] | None:
        edge, before = node.edge, node.before
        assert edge is not None and before is not None
        costed = self.costed(edge)
        if costed is None:
            return None
        step, paid, time = costed
        cost = before.cost + time + self.tie
        return PathNode(
            cost + self.remaining(node.state), cost, node.state, before, edge, step, paid
        )

    def costed(self, edge: Edge[State]) -> tuple[CollectiveStep, Collective, float] | None:
        """Return the cheapest order of ranks and its seconds; None if the model has no cost."""
        name = (
            edge.kind,
            edge.group,
            edge.at_root,
            edge.size,
            edge.step,
            edge.moves,
            edge.uneven,
        )
        if name not in self._paid:
            self._paid[name] = self._cheapest_order(edge)
        return self._paid[name]

    def _cheapest_order(self, edge: Edge[State]) -> tuple[CollectiveStep, Collective, float] | None:
        best: tuple[CollectiveStep, Collective, float] | None = None
        for step, collective in self._written(edge):
            try:
                time = self.ports.time(collective)
            except CostError:
                continue
            if best is None or time < best[2] * (1 - TIE):
                best = step, collective, time
        return best

    def _written(self, edge: Edge[State]) -> Iterator[tuple[CollectiveStep, Collective]]:
        """Yield a collective with its ranks in the order of the hardware, and backwards.

        Where the order decides the places of blocks, only one is tried: others would have to pack
        them.
        """
        ports = self.ports
        listed = [edge.step]
        if edge.step is None:
            ordered = STEPS[edge.kind].ordered
            orders = [ports.axes(edge.group)] if ordered else ports.orders(edge.group)
            listed = [CollectiveStep(edge.kind, over) for over in orders]
        root = frozenset(ports.axes(edge.at_root))
        strides = {axis: sub.stride for axis, sub in ports.mesh.by_name.items()}
        base = sum(n * strides[axis] for axis, n in self.at.items() if axis in root)
        copies = frozenset(ports.axes(edge.replicated))
        for step in filter(None, listed):
            yield (
                step,
                Collective(
                    edge.kind,
                    ports.mesh,
                    step.axes,
                    edge.size,
                    root,
                    copies,
                    sent_by=edge.moves,
                    base=base,
                    uneven=edge.uneven,
                ),
            )


@dataclass(frozen=True)
class CheapestPrograms:
    """The cheapest programs, best first.

    Attributes:
        ended: why the search was cut off, so that there may be better programs; or "".
        bound: a lower bound on the seconds of all programs; None: none is known.
    """

    candidates: tuple[StepSequence, ...]
    ended: str
    bound: float | None = None


def cheapest(paths: Paths[Any], top: int = 1, seconds: float | None = None) -> CheapestPrograms:
    """Return the cheapest programs; after some seconds the best so far."""
    known = paths.known()
    outcome = best_of(
        paths,
        top,
        seconds,
        better_than=known.time * (1 + TIE) if known and top == 1 else None,
        order="best-first",
    )
    candidates = [candidate_of(paths, solution.node) for solution in outcome.solutions]
    if known and len(candidates) < top and all(c.steps != known.steps for c in candidates):
        candidates.append(known)
        candidates.sort(key=lambda candidate: candidate.time)
    return CheapestPrograms(tuple(candidates), outcome.statistics.reason, outcome.bound)


def candidate_of(paths: Paths[Any], node: Any) -> StepSequence:
    """Return the program of a path that has arrived, given by its last node (as ``PathNode``)."""
    nodes = [node]
    while (before := nodes[-1].before) is not None:
        nodes.append(before)
    steps: list[CollectiveStep] = []
    costs: list[StepCost] = []
    for visited in reversed(nodes):
        if visited.edge is not None:
            steps += visited.edge.free
        if visited.step is not None and visited.paid is not None:
            steps.append(visited.step)
            costs.append(step_cost(visited.paid, paths.model))
        if visited.edge is not None:
            steps += visited.edge.then
    memory = max((n.edge.memory for n in nodes if n.edge is not None), default=0.0)
    return StepSequence(paths.ports.mesh, (*steps, *paths.masks), tuple(costs), memory)
