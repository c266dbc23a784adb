"""Layouts with order: the graph in which redistributions are searched, between any two layouts.

States are the types of values, and steps are those that the typing rules allow: reductions,
gathers, scatters, all_to_all of the minor-most shards, permutes of blocks, and local steps. A value
that is replicated at both ends may be sliced in the beginning and gathered later. Axes with weights
cut blocks of different sizes. Their order then matters to the typing rules, and bounds count the
smallest block.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import permutations
from typing import Any, NamedTuple, TypeVar

import numpy as np

from collir.cost.collectives.collective import LayoutChange
from collir.cost.collectives.uneven import uneven_sizes
from collir.cost.model import CostModel, StepCost, step_cost
from collir.layout import Dim, DistType, Mesh, at_root, rules
from collir.layout.coll import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    KEEP_ROOT,
    MASK,
    PERMUTE,
    SLICE,
    collectives_from,
)
from collir.layout.cuts import (
    block_units,
    group_shares,
    is_even,
    same_cut,
    undefined_cut,
    units,
)
from collir.layout.steps import StepKind
from collir.layout.types import State
from collir.synthesis.programs.paths import TIE, Edge, Paths
from collir.synthesis.programs.ports import ports_of
from collir.synthesis.programs.steps import CollectiveStep, StepSequence

Axes = tuple[str, ...]
_T = TypeVar("_T")

_ALL_ORDERS = 3
"""The most sub-axes that a step scatters in every order."""

_FREE = 5
"""The number of sub-axes above which leading ones of a dimension at both ends stay in place; and
the number of other sub-axes above which ones replicated at both ends stay replicated."""

_GRID = 2**16
"""The most blocks, or combinations of coordinates, that are counted for a bound."""


class ReachedLayout(NamedTuple):
    """A layout, and what was done to reach it.

    Attributes:
        x: the layout.
        begun: whether anything has been sent.
        local: the dimension that the last step sliced; ``_ROOT`` behind a keep_root; -2 behind any
            other step. Local steps come in one order only.
    """

    x: DistType
    begun: bool = False
    local: int = -2


_ROOT = -1
"""The ``local`` of a state behind a keep_root."""


class _Known(dict[tuple[Axes, ...], _T]):
    """A cache of a function, which unlike ``functools.cache`` can be sent to other processes."""

    def __init__(self, function: Callable[..., _T]):
        super().__init__()
        self._function = function

    def __missing__(self, arguments: tuple[Axes, ...]) -> _T:
        result = self[arguments] = self._function(*arguments)
        return result


class LayoutPaths(Paths[ReachedLayout]):
    """The programs from a layout to another of the same shape and dtype.

    Raises:
        CostError: the mesh is not placed on levels.
    """

    def __init__(
        self,
        mesh: Mesh,
        source: DistType,
        target: DistType,
        model: CostModel,
        memory: float | None = None,
        scale: float = 1.0,
        without: frozenset[str] = frozenset(),
    ):
        super().__init__(ports_of(mesh, model), model, memory, scale)
        self.at = dict(source.place)
        masked = mesh.ordered(target.partial - source.partial)
        self.masks = (CollectiveStep(MASK.name, masked),) if masked else ()
        kept = target.partial - frozenset(masked)
        self.source = source
        self._goal = replace(target, partial=kept, reduction=target.reduction if kept else None)
        self._mesh = mesh
        self._sharded = frozenset(axis for dim in target.dims for axis in dim.axes)
        used = frozenset(axis for x in (source, target) for axis in x.axes)
        self._idle = frozenset(mesh.by_name) - used - mesh.uneven.keys() - without
        self._weighted = not used.isdisjoint(mesh.uneven)
        dims = zip(source.dims, target.dims, strict=True)
        common = [_common(before.axes, after.axes) for before, after in dims]
        moving = used - {axis for axes in common for axis in axes}
        self._kept = [0] * len(common)
        if len(self._idle) + len(used) > _FREE:
            self._kept = list(map(len, common))
            if len(self._idle) + len(moving) > _FREE:
                self._idle = frozenset[str]()
        self._left: dict[DistType, float] = {}
        self._units = _Known(partial(units, mesh))
        self._undefined = _Known(partial(undefined_cut, mesh))
        self._same_cut = _Known(partial(same_cut, mesh))
        item = source.elements * source.dtype.bytes * scale
        self.tie = TIE * max(self.remaining(self.start()), item * min(self.ports.per_byte) * 1e-6)

    def start(self) -> ReachedLayout:
        """Return the source."""
        return ReachedLayout(self.source)

    def reached(self, state: ReachedLayout) -> bool:
        """Return whether a state is the target, but for masks."""
        return state.x == self._goal

    def edges(self, state: ReachedLayout) -> list[tuple[float, Edge[ReachedLayout]]]:
        """Return all steps from a layout, the most promising first."""
        edges: list[tuple[float, Edge[ReachedLayout]]] = []
        for step, after in self._moves(state):
            edge = self._edge(state, step, after)
            least = self.tie
            if edge.kind:
                size = edge.uneven.least if edge.uneven else edge.size
                least += self.ports.least(edge.kind, edge.group, edge.at_root, size)
            edges.append((least, edge))
        edges.sort(key=lambda pair: pair[0] + self.remaining(pair[1].after))
        return edges

    def _edge(
        self, state: ReachedLayout, step: CollectiveStep, after: DistType
    ) -> Edge[ReachedLayout]:
        x, mesh, ports = state.x, self._mesh, self.ports
        before_bytes = x.local_bytes(mesh) * self.scale
        after_bytes = after.local_bytes(mesh) * self.scale
        memory = before_bytes + after_bytes
        if step.does.local:
            local = _ROOT if step.dim is None else step.dim
            return Edge(ReachedLayout(after, state.begun, local), (step,), memory=memory)
        size = max(before_bytes, after_bytes)
        group = ports.mask(step.axes)
        copies = ports.all & ~group & ~ports.mask(x.axes)
        root = ports.mask(x.placed) & ~group
        moves = LayoutChange(x, after) if step.to is not None else None
        uneven = uneven_sizes(mesh, x, after, None if moves else step.axes)
        if uneven is not None:
            uneven = uneven.scaled(self.scale)
            size = uneven.size
        return Edge(
            ReachedLayout(after, True),
            (),
            step.kind,
            group,
            root,
            copies,
            float(size),
            memory,
            step,
            moves,
            uneven=uneven,
        )

    def known(self) -> StepSequence | None:
        """Return the program that replicates everything that changes, and then cuts it."""
        x, goal, mesh = self.source, self._goal, self._mesh
        steps: list[tuple[CollectiveStep, DistType]] = []

        def then(step: CollectiveStep, after: DistType) -> DistType:
            steps.append((step, after))
            return after

        if axes := self._hardware(list(x.partial - goal.partial)):
            x = then(CollectiveStep(ALL_REDUCE.name, axes), rules.all_reduce(mesh, x, axes))
        if axes := self._hardware(list(x.placed - goal.placed)):
            x = then(CollectiveStep(BROADCAST.name, axes), rules.broadcast(mesh, x, axes))
        pairs = zip(x.dims, goal.dims, strict=True)
        ends = [(dim, *_apart(have.axes, want.axes)) for dim, (have, want) in enumerate(pairs)]
        for dim, axes, _ in ends:
            if axes:
                x = then(
                    CollectiveStep(ALL_GATHER.name, axes, dim), rules.all_gather(mesh, x, axes, dim)
                )
        for dim, _, axes in ends:
            if axes:
                x = then(CollectiveStep(SLICE.name, axes, dim), rules.slice(mesh, x, axes, dim))
        if axes := self._hardware(list(goal.placed - x.placed)):
            then(CollectiveStep(KEEP_ROOT.name, axes), rules.keep_root(mesh, x, axes))
        return self._candidate(steps)

    def _candidate(self, steps: Sequence[tuple[CollectiveStep, DistType]]) -> StepSequence | None:
        """Return steps as a program, given the types they lead to.

        None if a step has no cost, or takes too much memory.
        """
        state, memory = self.start(), 0.0
        costs: list[StepCost] = []
        for step, after in steps:
            edge = self._edge(state, step, after)
            memory = max(memory, edge.memory)
            if edge.kind:
                costed = self.costed(edge)
                if costed is None:
                    return None
                costs.append(step_cost(costed[1], self.model))
            state = ReachedLayout(after)
        if self.memory is not None and memory > self.memory:
            return None
        listed = (*(step for step, _ in steps), *self.masks)
        return StepSequence(self._mesh, listed, tuple(costs), memory)

    # --- steps ------------------------------------------------------------------------------

    def _moves(self, state: ReachedLayout) -> Iterator[tuple[CollectiveStep, DistType]]:
        for step, after in self._generated(state):
            if not self._weighted or self._weights_allow(state.x, step, after):
                yield step, after

    def _weights_allow(self, x: DistType, step: CollectiveStep, after: DistType) -> bool:
        """Return whether a step that is typed for equal blocks is typed.

        A list of sub-axes has to say how it cuts, a permute moves whole blocks, and a scatter into
        blocks of different sizes starts at coordinate 0.
        """
        for have, want in zip(x.dims, after.dims, strict=True):
            if have.axes == want.axes:
                continue
            if self._undefined[want.axes,]:
                return False
            if step.to is not None and not self._same_cut[have.axes, want.axes]:
                return False
            if step.does.before == "root" and any(n for axis, n in x.place if axis in step.axes):
                return group_shares(self._mesh, have.axes, step.axes) is None
        return True

    def _generated(self, state: ReachedLayout) -> Iterator[tuple[CollectiveStep, DistType]]:
        """Yield steps from a layout, all of them typed where blocks are equal."""
        x, target = state.x, self._goal
        for axes in _subsets(self._mesh.ordered(x.partial - target.partial)):
            rest = x.partial - frozenset(axes)
            reduced = replace(x, partial=rest, reduction=x.reduction if rest else None)
            yield from self._leaving("partial", reduced, axes)
        for axes in _subsets(self._mesh.ordered(x.placed - target.placed)):
            spread = x.without_place(axes)
            yield from self._leaving("root", spread, axes)
        yield from self._gathers(x)
        yield from self._local(state)
        yield from self._permutes(x)

    def _leaving(
        self, state: State, bare: DistType, axes: Axes
    ) -> Iterator[tuple[CollectiveStep, DistType]]:
        """Yield collectives that take sub-axes from a state.

        ``bare`` is the value replicated on the sub-axes.
        """
        kinds = collectives_from(state)
        for order in self.ports.orders(self.ports.mask(axes)):
            for kind in kinds:
                if not kind.ordered:
                    yield CollectiveStep(kind.name, order), _led(kind, bare, axes)
        for kind in kinds:
            if kind.shards:
                yield from self._spread(kind, bare, axes)

    def _gathers(self, x: DistType) -> Iterator[tuple[CollectiveStep, DistType]]:
        for dim, entry in enumerate(x.dims):
            for count in range(1, len(entry.axes) - self._kept[dim] + 1):
                axes = entry.axes[-count:]
                bare = _with(x, dim, entry.axes[:-count])
                yield from self._gathered(bare, axes, dim)

    def _gathered(
        self, bare: DistType, axes: Axes, dim: int
    ) -> Iterator[tuple[CollectiveStep, DistType]]:
        """Yield the collectives that take sub-axes from a dimension.

        ``bare`` is the value replicated on the sub-axes.
        """
        for kind in collectives_from("sharded"):
            if kind.exchanges:
                for to in range(len(bare.dims)):
                    if to != dim and self._divides(bare, axes, to):
                        moved = _with(bare, to, bare.dims[to].axes + axes)
                        yield CollectiveStep(kind.name, axes, dim, to), moved
            elif kind.after != "root" or self._goal.placed.issuperset(axes):
                yield CollectiveStep(kind.name, axes, dim), _led(kind, bare, axes)

    def _local(self, state: ReachedLayout) -> Iterator[tuple[CollectiveStep, DistType]]:
        x = state.x
        replicated = [axis for axis in self._mesh.by_name if axis not in x.axes]
        cut = [
            axis
            for axis in replicated
            if axis in self._sharded
            or axis in self._goal.placed
            or (not state.begun and axis in self._idle)
        ]
        for axes in _subsets(cut):
            for step, after in self._spread(SLICE, x, axes):
                if step.dim is not None and step.dim > state.local:
                    yield step, after
        if state.local < _ROOT:
            for axes in _subsets(cut):
                yield CollectiveStep(KEEP_ROOT.name, axes), _led(KEEP_ROOT, x, axes)

    def _spread(
        self, kind: StepKind, x: DistType, axes: Axes
    ) -> Iterator[tuple[CollectiveStep, DistType]]:
        """Yield steps that shard a dimension that divides, in all orders or the likely ones."""
        for dim, entry in enumerate(x.dims):
            if not self._divides(x, axes, dim):
                continue
            if len(axes) <= _ALL_ORDERS:
                orders = list(permutations(axes))
            else:
                in_goal = tuple(a for d in self._goal.dims for a in d.axes if a in axes)
                hardware = self._hardware(axes)
                orders = list(dict.fromkeys((hardware, hardware[::-1])))
                if len(in_goal) == len(axes) and in_goal not in orders:
                    orders.append(in_goal)
            for order in orders:
                yield CollectiveStep(kind.name, order, dim), _with(x, dim, entry.axes + order)

    def _divides(self, x: DistType, axes: Axes, dim: int) -> bool:
        entry = x.dims[dim]
        return entry.size % self._units[entry.axes + axes,] == 0

    def _permutes(self, x: DistType) -> Iterator[tuple[CollectiveStep, DistType]]:
        kept = [d.axes[:count] for d, count in zip(x.dims, self._kept, strict=True)]
        held = [a for d, count in zip(x.dims, self._kept, strict=True) for a in d.axes[count:]]
        if not held:
            return
        free = self._sharded.difference(x.axes)
        counts = [
            self._mesh.group_size(d.axes[count:])
            for d, count in zip(x.dims, self._kept, strict=True)
        ]
        for lists in self._arranged(counts, [*held, *self._mesh.ordered(free)]):
            dims = tuple(
                Dim(d.size, first + axes)
                for d, first, axes in zip(x.dims, kept, lists, strict=True)
            )
            if dims != x.dims:
                to = replace(x, dims=dims)
                yield CollectiveStep(PERMUTE.name, self._of(x, to), to=to), to

    def _of(self, x: DistType, to: DistType) -> Axes:
        """Return the sub-axes of a permute: all over which one of its layouts is sharded."""
        return self._mesh.ordered({axis for z in (x, to) for dim in z.dims for axis in dim.axes})

    def _arranged(self, counts: Sequence[int], axes: Sequence[str]) -> Iterator[list[Axes]]:
        """Yield all lists of sub-axes, one for each dimension, with these numbers of shards."""
        if not counts:
            yield []
            return
        for chosen in self._of_size(counts[0], axes):
            left = [axis for axis in axes if axis not in chosen]
            for rest in self._arranged(counts[1:], left):
                yield [chosen, *rest]

    def _of_size(self, shards: int, axes: Sequence[str]) -> Iterator[Axes]:
        """Yield all ordered lists of sub-axes whose sizes multiply to a number."""
        if shards == 1:
            yield ()
            return
        for axis in axes:
            size = self._mesh.by_name[axis].size
            if shards % size == 0:
                left = [a for a in axes if a != axis]
                for rest in self._of_size(shards // size, left):
                    yield (axis, *rest)

    def _hardware(self, axes: Sequence[str]) -> Axes:
        return self.ports.axes(self.ports.mask(axes))

    # --- bounds -----------------------------------------------------------------------------

    def remaining(self, state: ReachedLayout) -> float:
        """Return a lower bound on the seconds to the end, from the bytes that must be received.

        A child of a level holds the data of all its devices, and needs all that they need in the
        end; a part of a sum counts as held. The busiest port of a level carries at least the mean
        over its children.
        """
        x = state.x
        known = self._left.get(x)
        if known is None:
            known = max(
                (self._missing(x, place) for place in range(len(self.ports.levels))), default=0
            )
            known = self._left[x] = known + (0.0 if x == self._goal else self.tie)
        return known

    def _missing(self, x: DistType, place: int) -> float:
        """Return the least seconds that the missing bytes take on the ports of a level."""
        mesh, ports, target = self._mesh, self.ports, self._goal
        outer = [axis for axis in mesh.by_name if ports.inner(ports.bit[axis])[place] == 1]
        index = {axis: number for number, axis in enumerate(outer)}
        if math.prod(mesh.by_name[axis].size for axis in outer) > _GRID:
            return 0.0
        tables: list[Any] = []
        for have, want in zip(x.dims, target.dims, strict=True):
            if (table := self._overlap(have.axes, want.axes, index)) is None:
                return 0.0
            tables.append(table)
        roots = np.ones([mesh.by_name[axis].size for axis in outer])
        needed = np.ones_like(roots)
        for axis in outer:
            shape = [-1 if a == axis else 1 for a in outer]
            if axis in target.placed:
                needed = needed * self._one(axis, target).reshape(shape)
            if axis in x.placed:
                roots = roots * self._one(axis, x).reshape(shape)
        shards = math.prod(
            mesh.by_name[axis].size for dim in target.dims for axis in dim.axes if axis in index
        )
        held = reduce(np.multiply, tables, roots * needed)
        idle = mesh.group_size(axis for axis in outer if axis in x.placed & target.placed)
        mean = float((needed / shards - held).sum()) * idle / roots.size
        if mean < 1e-12:
            return 0.0
        distinct = ports.inner(ports.mask(x.partial & target.partial))[place]
        carried = mean * x.elements * x.dtype.bytes * self.scale * distinct
        return ports.latency[place] + carried * ports.per_byte[place]

    def _one(self, axis: str, x: DistType) -> Any:
        """Return 1 for the coordinate that holds a value, and 0 for the others."""
        one = np.zeros(self._mesh.by_name[axis].size)
        one[x.coordinate(axis)] = 1
        return one

    def _overlap(self, have: Axes, want: Axes, index: dict[str, int]) -> Any:
        """Return the share of a dimension that children of each coordinate hold and need.

        Returns: an array with an axis for each sub-axis outside of the children; None if there are
        too many blocks to count.
        """
        mesh = self._mesh
        grid = math.lcm(self._units[have,], self._units[want,])
        if grid > _GRID:
            return None
        needs: dict[str, Any] = {}
        valid = np.ones(grid, dtype=bool)
        for axes in (have, want):
            rest = self._blocks(axes, grid)
            for axis in reversed(axes):
                size = mesh.by_name[axis].size
                if axis in index:
                    if axis in needs:
                        valid &= needs[axis] == rest % size
                    needs[axis] = rest % size
                rest = rest // size
        sizes = [mesh.by_name[axis].size if axis in needs else 1 for axis in index]
        shares = np.zeros(sizes)
        none = np.zeros(int(valid.sum()), dtype=np.int64)
        at = tuple(needs[axis][valid] if axis in needs else none for axis in index)
        np.add.at(shares, at, 1 / grid)
        return shares

    def _blocks(self, axes: Axes, grid: int) -> Any:
        """Return for each of ``grid`` equal cells of a dimension the block that it lies in."""
        mesh = self._mesh
        if is_even(mesh, axes):
            return np.arange(grid) // (grid // mesh.group_size(axes))
        sizes = np.array(block_units(mesh, axes))
        return np.repeat(np.arange(len(sizes)), sizes * (grid // sizes.sum()))


def _common(a: Axes, b: Axes) -> Axes:
    """Return the longest common prefix."""
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return a[:count]


def _apart(a: Axes, b: Axes) -> tuple[Axes, Axes]:
    """Return the rests of two lists behind their longest common prefix."""
    count = len(_common(a, b))
    return a[count:], b[count:]


def _subsets(axes: Sequence[str]) -> Iterator[Axes]:
    """Yield all non-empty subsets, each in the given order."""
    for bits in range(1, 1 << len(axes)):
        yield tuple(axis for place, axis in enumerate(axes) if bits >> place & 1)


def _led(kind: StepKind, bare: DistType, axes: Axes) -> DistType:
    """Return the result type of a step that does not shard.

    ``bare`` is the value replicated on its sub-axes.
    """
    return bare.with_place(at_root(axes)) if kind.after == "root" else bare


def _with(x: DistType, dim: int, axes: Axes) -> DistType:
    dims = (*x.dims[:dim], Dim(x.dims[dim].size, axes), *x.dims[dim + 1 :])
    return replace(x, dims=dims)
