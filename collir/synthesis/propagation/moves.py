"""The time to bring a value from one layout to another."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from collir.cost.model import CostModel, step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.collectives import collective_between, packs
from collir.cost.programs.local_steps import COPY, LocalStep, local_times, sent_phases
from collir.layout import Dim, DistType, DType, Mesh, Reduction
from collir.layout.coll import step_between
from collir.layout.cuts import units
from collir.layout.sizes import without_formula
from collir.layout.steps import DIM, OVER, Argument, StepKind
from collir.layout.types import with_axes
from collir.synthesis.propagation.graph import Layout
from collir.synthesis.propagation.ways import way
from collir.transforms.terms import single_steps

IMPOSSIBLE = 1e5
"""The seconds of a collective that cannot run, or has no cost."""


class Moves:
    """The times of moves on a mesh, each computed once."""

    def __init__(self, mesh: Mesh, model: CostModel):
        self.mesh, self.model = mesh, model
        self.apart = bool(mesh.uneven)
        self._paths = lru_cache(maxsize=None)(self._path)
        self._known: dict[tuple[object, ...], float] = {}
        self._steps: dict[tuple[object, ...], float] = {}

    def seconds(self, x: DistType, to: DistType) -> float:
        """Return the time to bring a value to another layout, in seconds: as programs do it, or
        with one step for each level, if that is faster."""
        if x.agrees(to):
            return 0.0
        if self.apart:
            return self._all_steps(x, to)
        pairs = list(zip(x.dims, to.dims, strict=True))
        axes = tuple((a.axes, b.axes) for a, b in pairs if a.axes or b.axes)
        key = (axes, _first_rest(pairs), x.partial, x.reduction, bytes_of(x))
        if key not in self._known:
            self._known[key] = self._all_steps(*_in_one(x, to))
        return self._known[key]

    def _all_steps(self, x: DistType, to: DistType) -> float:
        path = self._paths(_axes(x), x.partial, x.reduction, _axes(to))
        return sum(self.step(x, step) for step in path)

    def split(self, x: DistType, to: DistType) -> float:
        """Return the time to move a value inside of a kernel, with its write and read."""
        if x.agrees(to):
            return 0.0
        return self.seconds(x, to) + self._copy(x.local_bytes(self.mesh), x.local_bytes(self.mesh))

    def _copy(self, *sizes: int) -> float:
        """Return the time of a kernel that reads and writes some bytes."""
        step = LocalStep(COPY, float(sum(map(int, sizes))))
        return local_times(step, self.mesh.machine.slowest).seconds

    def _path(
        self,
        before: Layout,
        partial: frozenset[str],
        reduction: Reduction | None,
        after: Layout,
    ) -> "list[MoveStep]":
        """Return the steps from one layout to another, of any type that divides by all axes."""
        size = units(self.mesh, list(self.mesh.by_name))
        dims = tuple(Dim(size, axes) for axes in before)
        x = DistType(DType.F32, dims, partial, reduction)
        to = DistType(DType.F32, tuple(Dim(size, axes) for axes in after))
        return list(self._between(x, to))

    def _between(self, x: DistType, to: DistType) -> "Iterator[MoveStep]":
        for there in (*way(x, to), to):
            if there == x:
                continue
            move = next(single_steps(self.mesh, x, there), None)
            if move is not None:
                blocks = self._blocks(x), self._blocks(there)
                yield MoveStep(*move, x, there, _over(move[1]), frozenset(x.axes), *blocks)
            else:
                whole = replace(x, dims=tuple(Dim(dim.size) for dim in x.dims))
                if whole not in (x, there):
                    yield from self._between(x, whole)
                    yield from self._between(whole, there)
            x = there

    def _blocks(self, x: DistType) -> int:
        """Return the number of blocks of a value."""
        return math.prod(units(self.mesh, dim.axes) for dim in x.dims)

    def step(self, value: DistType, step: "MoveStep") -> float:
        """Return the time of a step of a path on a value, in seconds."""
        key: tuple[object, ...] = (step.kind.name, step.axes, step.held)
        x, to = step.of(value)
        if self.apart:
            key += x, to
            bytes_after = to.local_bytes(self.mesh)
        else:
            size = bytes_of(value)
            bytes_after = size // step.blocks_after
            key += size // step.blocks_before, bytes_after, packs(step.kind, self.mesh, x, to)
        if step.kind.local:
            if step.kind.place_in_operand(self.mesh, x, step.arguments) is not None:
                return 0.0  # a view
            return self._copy(bytes_after, bytes_after)
        if key not in self._steps:
            alone = self._collective(step.kind.name, x, to, step.axes, step.arguments)
            self._steps[key] = min(alone, *self._by_levels(step, x, to))
        return self._steps[key]

    def _by_levels(self, step: "MoveStep", x: DistType, to: DistType) -> Iterator[float]:
        """Yield the times of a step that is divided into one for each sub-axis."""
        yield float("inf")
        if len(step.axes) < 2 or self.apart:
            return
        match step.kind.before, step.kind.after:
            case "partial", "replicated":
                yield from self._reduced(x, to, step.axes)
            case ("partial", "sharded") | ("sharded", "replicated"):
                number = next(n for n, dim in enumerate(x.dims) if dim.axes != to.dims[n].axes)
                yield self._one_by_one(step.kind, x, number, step.axes)
            case _:
                return

    def _reduced(self, x: DistType, to: DistType, axes: tuple[str, ...]) -> Iterator[float]:
        """Yield the times of reducing into parts, level by level, and gathering them."""
        for number, dim in enumerate(x.dims):
            if dim.size % units(self.mesh, (*dim.axes, *axes)) == 0:
                inside = axes[::-1]
                parts = with_axes(to, number, (*dim.axes, *inside))
                down, up = step_between("partial", "sharded"), step_between("sharded", "replicated")
                if down is not None and up is not None:
                    seconds = self._one_by_one(down, x, number, inside)
                    yield seconds + self._one_by_one(up, parts, number, inside)
                return

    def _one_by_one(self, kind: StepKind, x: DistType, number: int, axes: tuple[str, ...]) -> float:
        """Return the time of scattering a sum, or gathering, along a dimension, one sub-axis after
        the other."""
        total, own = 0.0, x.dims[number].axes
        scatters = kind.before == "partial"
        for axis in axes if scatters else axes[::-1]:
            own = (*own, axis) if scatters else own[:-1]
            there = with_axes(x, number, own)
            if scatters:
                left = x.partial - {axis}
                there = replace(there, partial=left, reduction=x.reduction if left else None)
            arguments: Mapping[str, Argument] = {OVER.name: (axis,), DIM.name: number}
            total += self._collective(kind.name, x, there, (axis,), arguments)
            x = there
        return total

    def _collective(
        self,
        kind: str,
        x: DistType,
        to: DistType,
        axes: tuple[str, ...],
        arguments: Mapping[str, Argument],
    ) -> float:
        try:
            collective = collective_between(kind, self.mesh, x, to, axes, arguments)
            done = step_cost(collective, self.model)
        except CostError:
            return IMPOSSIBLE
        return sum(phase.time for phase in sent_phases(done))


class MoveStep(NamedTuple):
    """A step of a path, between layouts of a value of any size.

    Attributes:
        axes: the sub-axes over which it sends.
        held: the sub-axes that the value names before.
        blocks_before, blocks_after: the numbers of blocks of the value.
    """

    kind: StepKind
    arguments: Mapping[str, Argument]
    before: DistType
    after: DistType
    axes: tuple[str, ...]
    held: frozenset[str]
    blocks_before: int
    blocks_after: int

    def of(self, value: DistType) -> tuple[DistType, DistType]:
        """Return the types before and after the step of a value."""
        before, after = (
            DistType(
                value.dtype,
                tuple(Dim(d.size, e.axes) for d, e in zip(value.dims, x.dims, strict=True)),
                x.partial,
                x.reduction,
            )
            for x in (self.before, self.after)
        )
        return before, after


def bytes_of(x: DistType) -> int:
    """Return the bytes of a whole value."""
    return math.prod(without_formula(dim.size) for dim in x.dims) * x.dtype.bytes


def _in_one(x: DistType, to: DistType) -> tuple[DistType, DistType]:
    """Return two types of a value in which the dimensions that neither shards are joined into the
    first of them: blocks of later dimensions lie in several rows."""
    pairs = list(zip(x.dims, to.dims, strict=True))
    listed = [(a, b) for a, b in pairs if a.axes or b.axes]
    rest = Dim(math.prod(without_formula(a.size) for a, b in pairs if not (a.axes or b.axes)))
    listed.insert(_first_rest(pairs), (rest, rest))
    before, after = (tuple(dims) for dims in zip(*listed, strict=True))
    return replace(x, dims=before), replace(to, dims=after)


def _first_rest(pairs: Sequence[tuple[Dim, Dim]]) -> int:
    """Return the number of dimensions in front of the first one with several elements that neither
    of two types shards."""
    count = 0
    for a, b in pairs:
        if a.axes or b.axes:
            count += 1
        elif a.size > 1:
            break
    return count


def _over(arguments: Mapping[str, Argument]) -> tuple[str, ...]:
    over = arguments.get(OVER.name)
    return tuple(x for x in over if isinstance(x, str)) if isinstance(over, tuple) else ()


def _axes(x: DistType) -> Layout:
    return tuple(dim.axes for dim in x.dims)
