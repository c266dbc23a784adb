"""Layouts without order: the graph on which strategies for reductions are found.

Where every sub-axis shards a part of a dimension that is its own, the order in which sub-axes are
scattered and gathered does not matter, and the layout of a value is one state per sub-axis:
partial, at root, sharded or replicated. Each goes one way only, partial -> root -> sharded ->
replicated (to root behind sharded, where that is its target): no step back pays off where
collectives of less cost less. What all hold already may be cut or dropped in the beginning (for
free, so that less is sent) and is brought back later.

What every way takes at least is computed for all states at once, from bounds of the single steps;
the search then costs little more than the steps of the best program.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from collir.cost.group import CostError
from collir.cost.model import CostModel
from collir.layout import DistType, Mesh
from collir.synthesis.graph import (
    KINDS,
    MAX_EDGES,
    PARTIAL,
    REPLICATED,
    ROOT,
    SHARDED,
    STEPS,
    Array,
    Chain,
    count_edges,
    graph,
)
from collir.synthesis.paths import TIE, Edge, Paths
from collir.synthesis.ports import Ports, ports_of
from collir.synthesis.steps import Step

_CHAINS: dict[tuple[str, str], Chain] = {
    (PARTIAL, REPLICATED): "PMSR",
    (PARTIAL, SHARDED): "PMS",
    (PARTIAL, ROOT): "PSM",
    (ROOT, REPLICATED): "MSR",
    (ROOT, SHARDED): "MS",
    (SHARDED, REPLICATED): "SR",
    (SHARDED, ROOT): "SM",
    (REPLICATED, REPLICATED): "MSR",
    (REPLICATED, SHARDED): "S",
    (REPLICATED, ROOT): "SM",
}
"""The states that an axis takes from one end to the other. Copies may be cut or dropped first."""

_BEGUN = -1
"""The number of the state in which nothing has been cut or dropped yet."""

_AFTER_SIZE = ("all_gather", "gather")
"""Whose size is that of the result."""


def fits(source: DistType, target: DistType) -> bool:
    """Whether order does not matter between two layouts: dimensions only gain or only lose shards,
    and none of them goes from one dimension to another."""
    each = list(zip(source.dims, target.dims, strict=True))
    common = [set(one.axes) & set(other.axes) for one, other in each]
    sharded = [{axis for dim in x.dims for axis in dim.axes} for x in (source, target)]
    return set().union(*common) == sharded[0] & sharded[1] and all(
        one.axes[: len(other.axes)] == other.axes or other.axes[: len(one.axes)] == one.axes
        for one, other in each
    )


class StatePaths(Paths[int]):
    """All programs between two layouts that ``fits`` says yes to.

    Attributes:
        units: the sub-axes that change, in sets that change together: each alone, or those of one
            level and one kind of change where the graph would be too large.

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
    ):
        ports = ports_of(mesh, model)
        before, after = _states(mesh, source), _states(mesh, target)
        masked = [axis for axis in mesh.by_name if after[axis] == PARTIAL != before[axis]]
        after |= dict.fromkeys(masked, REPLICATED)
        self.fixed_root = ports.mask(a for a in before if before[a] == after[a] == ROOT)
        self.distinct = ports.mask(
            a for a in before if before[a] == after[a] and before[a] in (PARTIAL, SHARDED)
        )
        self._changes = {
            axis: (before[axis], after[axis])
            for axis in before
            if before[axis] != after[axis] or before[axis] == REPLICATED
        }
        self.units = _units(ports, self._changes)
        chains = tuple(_CHAINS[self._changes[unit[0]]] for unit in self.units)
        self._masks = [ports.mask(unit) for unit in self.units]
        self.graph = graph(chains)
        self.elements = math.prod(source.local_shape(mesh)) * math.prod(
            mesh.by_name[axis].size
            for axis, change in self._changes.items()
            if change[0] == SHARDED
        )
        self.item = source.dtype.bytes
        ends = [self._changes[unit[0]][1] for unit in self.units]
        self._goal = self.graph.number(ends)
        super().__init__(ports, model, memory)
        self.masks = (Step("mask", tuple(masked)),) if masked else ()
        self._tabulate()

    def _tabulate(self) -> None:
        """What every edge takes at least, and with it the way to the end from every state."""
        found, ports = self.graph, self.ports
        ranks = [ports.size(mask) for mask in self._masks]
        shards = found.product(ranks, SHARDED)
        self._bytes = np.ceil(self.elements / shards) * self.item
        held = self._bytes[found.start] + self._bytes[found.end]
        later = np.isin(found.kind, [KINDS.index(kind) for kind in _AFTER_SIZE])
        sizes = np.where(later, self._bytes[found.end], self._bytes[found.start])
        from_root = np.array([STEPS[kind][0] == ROOT for kind in KINDS])[found.kind]
        sets = np.array([self._mask(group) for group in range(1 << len(self.units))])
        busy = np.zeros(len(found.start))
        live = ports.inner(ports.all & ~self.fixed_root)
        for place, total in enumerate(live):
            inner = [ports.inner(mask)[place] for mask in self._masks]
            idle = found.product(inner, ROOT)[found.start]
            own = _products(inner)[found.group]
            beside = total / np.where(from_root, idle, idle * own)
            sent = self._sent(place, own)
            np.maximum(busy, sent * sizes * beside * ports.per_byte[place], out=busy)
        costs = busy + self._latencies()
        self.tie = TIE * float(costs.min(initial=1.0, where=costs > 0))
        self.costs = costs + self.tie
        if self.memory is not None:
            self.costs[held > self.memory] = np.inf
        self._held = held
        self._sizes = sizes
        self._groups = sets[found.group]
        self.left = found.least(self.costs, {self._goal: 0.0})

    def _sent(self, place: int, own: Array) -> Array:
        """Of the buffer, what each edge's group sends through a port of a level (see ``Ports``)."""
        found, ports = self.graph, self.ports
        ranks = _products([ports.size(mask) for mask in self._masks])[found.group]
        parts = ranks / own
        share = np.zeros(len(found.start))
        for number, kind in enumerate(KINDS):
            at = found.kind == number
            share[at] = ports.share(kind, ranks[at], parts[at])
        return np.where(parts > 1, share, 0.0)

    def _latencies(self) -> Array:
        table = np.zeros((len(KINDS), 1 << len(self.units)))
        kinds, groups = self.graph.kind, self.graph.group
        for pair in np.unique(kinds * table.shape[1] + groups).tolist():
            kind, group = divmod(int(pair), table.shape[1])
            table[kind, group] = self.ports.empty(KINDS[kind], self._mask(group))
        return table[kinds, groups]

    def _mask(self, group: int) -> int:
        """The sub-axes of some units."""
        return sum(mask for place, mask in enumerate(self._masks) if group >> place & 1)

    # --- paths ------------------------------------------------------------------------------

    def start(self) -> int:
        """The source; what is replicated has not been cut or dropped yet."""
        return _BEGUN

    def reached(self, state: int) -> bool:
        """Whether nothing is left to do but masks."""
        return state == self._goal

    def remaining(self, state: int) -> float:
        """Seconds to the end at least."""
        if state == _BEGUN:
            return min(self.left[number] for number, _ in self._beginnings())
        return float(self.left[state])

    def edges(self, state: int) -> Iterator[tuple[float, Edge[int]]]:
        """All steps from a state, over all sets of sub-axes; the most promising first."""
        if state == _BEGUN:
            found = sorted(self._beginnings(), key=lambda one: self.left[one[0]])
            for number, free in found:
                yield 0.0, Edge(number, free, memory=self._memory_of_cut(number, free))
            return
        first, last = self.graph.first.get(state, (0, 0))
        values = self.costs[first:last] + self.left[self.graph.end[first:last]]
        for index in (first + np.argsort(values, kind="stable")).tolist():
            if math.isinf(values[index - first]):
                return
            yield float(self.costs[index]), self._edge(state, index)

    def _edge(self, state: int, index: int) -> Edge[int]:
        found = self.graph
        group = int(self._groups[index])
        states = found.states_of(state)
        masks = dict.fromkeys("PMSR", 0)
        for one, mask in zip(states, self._masks, strict=True):
            masks[one] |= mask
        return Edge(
            int(found.end[index]),
            (),
            KINDS[int(found.kind[index])],
            group,
            self.fixed_root | masks[ROOT] & ~group,
            masks[REPLICATED] & ~group,
            float(self._sizes[index]),
            float(self._held[index]),
        )

    def _beginnings(self) -> Iterator[tuple[int, tuple[Step, ...]]]:
        """What may be cut or dropped of the copies that devices have."""
        choices: list[str] = []
        for unit in self.units:
            before, after = self._changes[unit[0]]
            chain = _CHAINS[before, after]
            choices.append(chain[::-1] if before == REPLICATED else before)
        for states in product(*choices):
            free: list[Step] = []
            for state, kind in ((SHARDED, "slice"), (ROOT, "keep_root")):
                made = [
                    unit
                    for unit, one in zip(self.units, states, strict=True)
                    if one == state and self._changes[unit[0]][0] == REPLICATED
                ]
                if made:
                    axes = self.ports.mask(axis for unit in made for axis in unit)
                    free.append(Step(kind, self.ports.axes(axes)))
            yield self.graph.number(states), tuple(free)

    def _memory_of_cut(self, number: int, free: Sequence[Step]) -> float:
        if not free:
            return 0.0
        return self._bytes.max() + float(self._bytes[number])

    def count(self) -> int:
        """How many programs there are."""
        ways = self.graph.paths(np.isfinite(self.costs), [self._goal])
        return sum(int(ways[number]) for number, _ in self._beginnings())


def _states(mesh: Mesh, x: DistType) -> dict[str, str]:
    found = dict.fromkeys(mesh.by_name, REPLICATED)
    found |= dict.fromkeys((axis for dim in x.dims for axis in dim.axes), SHARDED)
    return found | dict.fromkeys(x.partial, PARTIAL) | dict.fromkeys(x.root, ROOT)


def _units(ports: Ports, changes: dict[str, tuple[str, str]]) -> list[tuple[str, ...]]:
    units = [(axis,) for axis in ports.axes(ports.mask(changes))]
    if _small(units, changes):
        return units
    together: dict[tuple[str | None, tuple[str, str]], tuple[str, ...]] = {}
    for (axis,) in units:
        key = ports.mesh.by_name[axis].level, changes[axis]
        together[key] = (*together.get(key, ()), axis)
    units = list(together.values())
    if not _small(units, changes):
        raise CostError(
            f"{len(changes)} sub-axes on {len(ports.levels)} levels are too many to look at all "
            "programs: write out some of the steps, so that each is over fewer levels"
        )
    return units


def _small(units: Sequence[tuple[str, ...]], changes: dict[str, tuple[str, str]]) -> bool:
    return count_edges([_CHAINS[changes[unit[0]]] for unit in units]) <= MAX_EDGES


def _products(factors: Sequence[float]) -> Array:
    """For every set of places the product of their factors."""
    found = np.ones(1)
    for factor in factors:
        found = np.concatenate((found, found * factor))
    return found
