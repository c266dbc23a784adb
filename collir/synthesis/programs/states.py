"""Layouts without order: the graph in which programs for reductions are searched.

If every sub-axis shards its own part of a dimension, the order of scattering and gathering does not
matter. The layout of a value is then one state per sub-axis: partial, at root, sharded (as it was,
or on another dimension) or replicated. A state changes one way only, partial -> root -> sharded ->
replicated (to root behind sharded, if root is the target). A replicated value may be cut or dropped
in the beginning (for free, so that less is sent) and is brought back later; a result that a
collective gives to more devices than want it is cut or dropped at once.

A lower bound on every way to the end is computed for all states at once, from bounds of the single
steps; the search then costs little more than the steps of the best program.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Literal

import numpy as np

from collir.cost.model import CostModel
from collir.cost.network.group import CostError
from collir.layout import DistType, Mesh
from collir.layout.coll import KEEP_ROOT, MASK, SLICE, STEPS
from collir.synthesis.programs.graph import (
    ELSEWHERE,
    KINDS,
    LETTERS,
    MANY_EDGES,
    MAX_EDGES,
    PARTIAL,
    REPLICATED,
    ROOT,
    SHARDED,
    TRANSITIONS,
    Array,
    Chain,
    count_edges,
    graph,
)
from collir.synthesis.programs.paths import TIE, Edge, Paths
from collir.synthesis.programs.ports import ports_of
from collir.synthesis.programs.steps import CollectiveStep

Change = tuple[str, str]
"""The states of an axis at both ends."""

_CHAINS: dict[Change, Chain] = {
    (PARTIAL, REPLICATED): "PMSR",
    (PARTIAL, SHARDED): "PMS",
    (PARTIAL, ROOT): "PSM",
    (ROOT, REPLICATED): "MSR",
    (ROOT, SHARDED): "MS",
    (SHARDED, REPLICATED): "SR",
    (SHARDED, ROOT): "SM",
    (SHARDED, ELSEWHERE): "ST",
    (REPLICATED, REPLICATED): "MSR",
    (REPLICATED, SHARDED): "S",
    (REPLICATED, ROOT): "SM",
}
"""The states that an axis may take between its ends. Copies may be cut or dropped first."""

_BEGUN = -1
"""The number of the state in which nothing has been cut or dropped yet."""


def is_unordered(source: DistType, target: DistType) -> bool:
    """Return whether the order of shards does not matter: no dimension gains and loses shards."""
    return all(
        before.axes[: len(after.axes)] == after.axes
        or after.axes[: len(before.axes)] == before.axes
        for before, after in zip(source.dims, target.dims, strict=True)
    )


class StatePaths(Paths[int]):
    """The programs between two layouts for which ``is_unordered`` is true.

    Attributes:
        between: the sub-axes that may shard the value on the way, and do at neither end.
        units: the sets of sub-axes that change together: single sub-axes, or, where the graph would
            be too large, all sub-axes of one level and one kind of change.
        padding: the factor by which the value grows so that it divides among ``between``.
        graph: the states and edges.
        costs: for each edge a lower bound on its seconds, the tie included.
        left: for each state a lower bound on the seconds to the end.

    Raises:
        CostError: the mesh is not placed on levels, or too many sub-axes change.
    """

    def __init__(
        self,
        mesh: Mesh,
        source: DistType,
        target: DistType,
        model: CostModel,
        memory: float | None = None,
        between: frozenset[str] | None = None,
        scale: float = 1.0,
        without: frozenset[str] = frozenset(),
    ):
        """``between``: the sub-axes that may shard the value on the way; None: all that can.
        ``without``: the sub-axes that do not change if the value is whole at both ends."""
        super().__init__(ports_of(mesh, model), model, memory, scale)
        self.at = dict(source.place)
        before, after = _states(mesh, source), _states(mesh, target)
        for axis in mesh.by_name:
            if source.dim_of(axis) is not None and target.dim_of(axis) is not None:
                after[axis] = SHARDED if source.dim_of(axis) == target.dim_of(axis) else ELSEWHERE
        masked = [axis for axis in mesh.by_name if after[axis] == PARTIAL != before[axis]]
        self.masks = (CollectiveStep(MASK.name, tuple(masked)),) if masked else ()
        after |= dict.fromkeys(masked, REPLICATED)
        # Blocks along an axis with weights differ, so copies along it are not divided.
        stays = [axis for axis, state in before.items() if state == after[axis]]
        whole = mesh.uneven.keys() | without
        fixed = [a for a in stays if before[a] != REPLICATED or a in whole]
        self._fixed_root = self.ports.mask(axis for axis in fixed if before[axis] == ROOT)
        self._changes = {axis: (before[axis], after[axis]) for axis in before if axis not in fixed}
        ends = {axis for axis, change in self._changes.items() if _shards(change)}
        inner = self._changes.keys() - ends
        self.between = frozenset(inner if between is None else inner & between)
        self.units = self._joined()
        self._masks = [self.ports.mask(unit) for unit in self.units]
        self.graph = graph(tuple(map(self._chain, self.units)))
        self._goal = self.graph.number([self._changes[unit[0]][1] for unit in self.units])
        self._measure(source)
        self._tabulate()

    # --- tables -----------------------------------------------------------------------------

    def _joined(self) -> list[tuple[str, ...]]:
        axes = self.ports.axes(self.ports.mask(self._changes))
        units = [(axis,) for axis in axes]
        if self._edges(units) <= MANY_EDGES:
            return units
        together: dict[object, tuple[str, ...]] = {}
        for axis in axes:
            key = self.ports.mesh.by_name[axis].level, self._changes[axis], axis in self.between
            together[key] = (*together.get(key, ()), axis)
        units = list(together.values())
        if self._edges(units) > MAX_EDGES:
            raise CostError(
                f"{len(axes)} sub-axes on {len(self.ports.levels)} levels are too many to look at "
                "all programs: write out some of the steps, so that each is over fewer levels"
            )
        return units

    def _edges(self, units: Sequence[Sequence[str]]) -> int:
        return count_edges(list(map(self._chain, units)))

    def _chain(self, unit: Sequence[str]) -> Chain:
        chain = _CHAINS[self._changes[unit[0]]]
        may = unit[0] in self.between or _shards(self._changes[unit[0]])
        return chain if may else chain.replace(SHARDED, "")

    def _measure(self, source: DistType) -> None:
        """Tabulate the bytes that a device holds in each state, padding included."""
        mesh = self.ports.mesh
        given = mesh.group_size(a for a, change in self._changes.items() if change[0] == SHARDED)
        gained = mesh.group_size(a for a, change in self._changes.items() if change[1] in "ST")
        elements = math.prod(source.local_shape(mesh)) * given
        self._rest = elements // (given * gained)
        self.padding = self.padding_for(self.between)
        whole = elements * self.padding * source.dtype.bytes * self.scale
        self._given = whole / given
        ranks = [self.ports.size(mask) for mask in self._masks]
        self._bytes = whole / self.graph.product(ranks, SHARDED + ELSEWHERE)

    def padding_for(self, axes: Iterable[str]) -> float:
        """Return the factor by which the value grows so that it divides among some sub-axes."""
        divisor = self.ports.mesh.group_size(self.between.intersection(axes))
        return -(-self._rest // divisor) * divisor / self._rest

    def most_chunks(self) -> int:
        """Return the most chunks of the value that all of ``between`` divide."""
        return -(-self._rest // self.ports.mesh.group_size(self.between))

    def padding_in(self, chunks: int) -> float:
        """Return the factor by which the padded value grows in chunks.

        The chunks are equal and divide among ``between``.
        """
        units = self.most_chunks()
        return -(-units // chunks) * chunks / units

    def _tabulate(self) -> None:
        """Tabulate lower bounds: of every edge, and of the way to the end from every state."""
        edges, ports = self.graph, self.ports
        ranks = _products([ports.size(mask) for mask in self._masks])
        before, after = self._bytes[edges.start], self._bytes[edges.end]
        self._sizes = np.where(self._are("gathers"), before * ranks[edges.group], before)
        result = np.where(self._are("shards"), after, self._sizes)
        self._held = before + result
        step = edges.kind * len(ranks) + edges.group
        from_root = np.array([[TRANSITIONS[kind][0] == ROOT] for kind in KINDS])
        self._busy = np.zeros((len(ports.levels), len(edges.start)))
        for place, total in enumerate(ports.inner(ports.all & ~self._fixed_root)):
            inner = [ports.inner(mask)[place] for mask in self._masks]
            own = _products(inner)
            sent = self._shares(ranks, ranks / own) / np.where(from_root, 1.0, own)
            beside = total / edges.product(inner, ROOT)[edges.start]
            self._busy[place] = sent.ravel()[step] * self._sizes * beside * ports.per_byte[place]
        costs = self._busy.max(axis=0, initial=0.0) + self._latencies()
        self.tie = TIE * float(costs.min(initial=1.0, where=costs > 0))
        self.costs = costs + self.tie
        if self.memory is not None:
            self.costs[self._held > self.memory] = np.inf
        self._sets = [self._mask(group) for group in range(1 << len(self.units))]
        self.left = edges.least(self.costs, {self._goal: 0.0})

    def _are(self, what: Literal["gathers", "shards"]) -> Array:
        """Return for every edge whether its collective has a property: it gathers, or shards."""
        numbers = [n for n, kind in enumerate(KINDS) if getattr(STEPS[kind], what)]
        return np.isin(self.graph.kind, numbers)

    def _shares(self, ranks: Array, parts: Array) -> Array:
        """Return the share of the buffer that each step sends through a port of a level.

        The result has a row for each kind of step and a column for each group (see ``Ports``).
        """
        shares = [self.ports.share(kind, ranks, parts) for kind in KINDS]
        return np.where(parts > 1, shares, 0.0)

    def _latencies(self) -> Array:
        table = np.zeros((len(KINDS), 1 << len(self.units)))
        kinds, groups = self.graph.kind, self.graph.group
        for pair in np.unique(kinds * table.shape[1] + groups).tolist():
            kind, group = divmod(int(pair), table.shape[1])
            table[kind, group] = self.ports.empty(KINDS[kind], self._mask(group))
        return table[kinds, groups]

    def _mask(self, group: int) -> int:
        """Return the sub-axes of a set of units."""
        return sum(mask for place, mask in enumerate(self._masks) if group >> place & 1)

    # --- paths ------------------------------------------------------------------------------

    def start(self) -> int:
        """Return the source, in which nothing replicated has been cut or dropped yet."""
        return _BEGUN

    def reached(self, state: int) -> bool:
        """Return whether nothing is left to do but masks."""
        return state == self._goal

    def remaining(self, state: int) -> float:
        """Return a lower bound on the seconds to the end."""
        if state == _BEGUN:
            return min(float(self.left[number]) for number, _ in self._beginnings())
        return float(self.left[state])

    def busy_left(self) -> dict[int, tuple[float, ...]]:
        """Return for every state a lower bound on the load of each level on any way to the end.

        The load is the seconds that bytes take on the busiest port; the levels are those of
        ``Ports``.
        """
        tables = [self.graph.least(busy, {self._goal: 0.0}) for busy in self._busy]
        rows = zip(*(table.tolist() for table in tables), strict=True)
        loads = dict(enumerate(rows)) if tables else dict.fromkeys(range(len(self.left)), ())
        starts = [loads[number] for number, _ in self._beginnings()]
        return loads | {_BEGUN: tuple(map(min, zip(*starts, strict=True)))}

    def edges(self, state: int) -> Iterator[tuple[float, Edge[int]]]:
        """Yield all steps from a state, over all sets of sub-axes; the most promising first."""
        if state == _BEGUN:
            beginnings = sorted(self._beginnings(), key=lambda start: self.left[start[0]])
            for number, free in beginnings:
                memory = self._given + float(self._bytes[number]) if free else 0.0
                yield 0.0, Edge(number, free, memory=memory)
            return
        first, last = self.graph.first.get(state, (0, 0))
        values = self.costs[first:last] + self.left[self.graph.end[first:last]]
        for index in (first + np.argsort(values, kind="stable")).tolist():
            if math.isinf(values[index - first]):
                return
            yield float(self.costs[index]), self._edge(state, index)

    def _edge(self, state: int, index: int) -> Edge[int]:
        graph = self.graph
        kind, units = KINDS[int(graph.kind[index])], int(graph.group[index])
        group, after = self._sets[units], int(graph.end[index])
        masks = dict.fromkeys("PMSTR", 0)
        for letter, mask in zip(graph.states_of(state), self._masks, strict=True):
            masks[letter] |= mask
        ends = zip(self.units, graph.states_of(after), strict=True)
        made = [(unit, end) for place, (unit, end) in enumerate(ends) if units >> place & 1]
        copies = TRANSITIONS[kind][1] == REPLICATED
        return Edge(
            after,
            (),
            kind,
            group,
            self._fixed_root | masks[ROOT] & ~group,
            masks[REPLICATED] & ~group,
            float(self._sizes[index]),
            float(self._held[index]),
            then=self._cuts(made) if copies else (),
        )

    def _cuts(self, made: Sequence[tuple[Sequence[str], str]]) -> tuple[CollectiveStep, ...]:
        """Return the local steps that bring units from replicated to these states."""
        cuts: list[CollectiveStep] = []
        for states, kind in ((SHARDED + ELSEWHERE, SLICE), (ROOT, KEEP_ROOT)):
            mask = self.ports.mask(axis for unit, end in made if end in states for axis in unit)
            if mask:
                cuts.append(CollectiveStep(kind.name, self.ports.axes(mask)))
        return tuple(cuts)

    def _beginnings(self) -> Iterator[tuple[int, tuple[CollectiveStep, ...]]]:
        """Yield the states after each way to cut or drop copies in the beginning, and its steps."""
        choices: list[str] = []
        for unit, chain in zip(self.units, self.graph.chains, strict=True):
            before = self._changes[unit[0]][0]
            choices.append(chain[::-1] if before == REPLICATED else before)
        for states in product(*choices):
            held = (
                (unit, state)
                for unit, state in zip(self.units, states, strict=True)
                if self._changes[unit[0]][0] == REPLICATED
            )
            yield self.graph.number(states), self._cuts(list(held))

    def count(self) -> int:
        """Return the number of programs."""
        ways = self.graph.paths(np.isfinite(self.costs), [self._goal])
        return sum(int(ways[number]) for number, _ in self._beginnings())


def _shards(change: Change) -> bool:
    """Return whether an axis shards the value at an end."""
    return SHARDED in change or ELSEWHERE in change


def _states(mesh: Mesh, x: DistType) -> dict[str, str]:
    return {axis: LETTERS[x.state_of(axis)] for axis in mesh.by_name}


def _products(factors: Sequence[float]) -> Array:
    """Return for every set of places the product of their factors."""
    products = np.ones(1)
    for factor in factors:
        products = np.concatenate((products, products * factor))
    return products
