"""Exhaustive search for programs in chunks: all paths of the graph, each priced by the formula.

It shares with collir the edges of a state and the costs of steps, but nothing of its search.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from support.programs.collectives import (
    FunctionBuilder,
    axis_moves,
    random_layout,
    random_mesh,
)
from xdsl.dialects.func import FuncOp

from collir.cost.model import StepCost, step_cost
from collir.cost.network.loads import Resource
from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.layout import Dim, DistType, DType, Mesh, Reduction, at_root
from collir.machine import Level, Machine
from collir.synthesis.programs.states import StatePaths
from collir.synthesis.programs.steps import CollectiveStep


@dataclass(frozen=True)
class Way:
    """A path: the steps of a program, and the costs of the steps that send."""

    steps: tuple[CollectiveStep, ...]
    costs: tuple[StepCost, ...]


class TooManyError(Exception):
    """An error that says that there are more paths than a limit."""


def all_paths(paths: StatePaths, most: int) -> list[Way]:
    """Return all paths from the start to the end.

    Raises:
        TooManyError: there are more than ``most``.
    """
    listed: list[Way] = []
    for path in _paths_from(paths, paths.start()):
        listed.append(path)
        if len(listed) > most:
            raise TooManyError
    return listed


def _paths_from(paths: StatePaths, state: int) -> Iterator[Way]:
    if paths.reached(state):
        yield Way(paths.masks, ())
    for _, edge in paths.edges(state):
        steps, costs = edge.free, ()
        if edge.kind:
            costed = paths.costed(edge)
            if costed is None:
                continue
            step, collective, _ = costed
            steps, costs = (*steps, step), (step_cost(collective, paths.model),)
        for rest in _paths_from(paths, edge.after):
            yield Way((*steps, *edge.then, *rest.steps), (*costs, *rest.costs))


def loads(cost: StepCost) -> list[float]:
    """Return the seconds that a step keeps the busiest resource of each level busy."""
    parts: dict[Resource, float] = {}
    for phase in cost.phases:
        for resource, use in phase.uses:
            parts[resource] = parts.get(resource, 0.0) + use * phase.time
    levels = range(len(cost.collective.mesh.machine.levels))
    return [max((t for (n, *_), t in parts.items() if n == level), default=0.0) for level in levels]


def stream(cost: StepCost) -> int:
    """Return the outermost level that a step uses."""
    mesh = cost.collective.mesh
    names = [level.name for level in mesh.machine.levels]
    return min(names.index(str(mesh.by_name[axis].level)) for axis in cost.collective.axes)


def formula(costs: Sequence[StepCost], chunks: int) -> float:
    """Return the seconds of a program on so many chunks in a steady state."""
    if not costs:
        return 0.0
    levels = range(len(costs[0].collective.mesh.machine.levels))
    streams = [sum(cost.time for cost in costs if stream(cost) == level) for level in levels]
    ports = [sum(loads(cost)[level] for cost in costs) for level in levels]
    return sum(cost.time for cost in costs) + (chunks - 1) * max(*streams, *ports)


# --- random cases -------------------------------------------------------------------------------


def quick_mesh(rng: random.Random, devices: int | None = None, name: str = "m") -> Mesh:
    """Return a placed mesh over several levels, mostly on plain switches without latencies.

    Without latencies chunks pay even for the smallest values.
    """
    while True:
        mesh = random_mesh(rng, devices, name)
        levels = mesh.machine.levels
        if not mesh.placed or len({sub.level for sub in mesh.sub_axes}) < 2:
            continue
        if any(level.taper > 9 for level in levels):
            continue
        if rng.random() < 0.7:
            plain = [Level(x.name, x.size, x.port, rng.choice([0.0, 0.0, 1e-12])) for x in levels]
            machine = Machine(mesh.machine.name, tuple(plain), mesh.machine.device)
            mesh = Mesh(mesh.name, machine, mesh.axes)
        return mesh


def states(rng: random.Random, mesh: Mesh, shape: Sequence[int], dtype: DType) -> DistType:
    """Return a random layout of a tensor, sharded only where sub-axes divide dimensions."""
    dims = [Dim(size) for size in shape]
    partial: set[str] = set()
    root: set[str] = set()
    names = list(mesh.by_name)
    rng.shuffle(names)
    for axis in names:
        state = rng.choice("PPPSSRM")
        if state == "P":
            partial.add(axis)
        elif state == "M":
            root.add(axis)
        elif state == "S" and dims:
            place = rng.randrange(len(dims))
            axes = (*dims[place].axes, axis)
            if dims[place].size % mesh.group_size(axes) == 0:
                dims[place] = Dim(dims[place].size, axes)
    reductions = [op for op in Reduction if dtype.is_float or op is not Reduction.AVG]
    reduction = rng.choice(reductions) if partial else None
    return DistType(dtype, tuple(dims), frozenset(partial), reduction, at_root(root))


def further(rng: random.Random, mesh: Mesh, x: DistType) -> DistType:
    """Return a random layout that programs reach from x without changing the order of shards."""
    dims = [list(dim.axes) for dim in x.dims]
    partial, root = set(x.partial), set(x.placed)
    idle = set(mesh.by_name) - set(x.axes)

    def shard(axis: str) -> bool:
        divisible = [
            place
            for place, dim in enumerate(x.dims)
            if dim.size % mesh.group_size((*dims[place], axis)) == 0
            and dims[place][: len(dim.axes)] == list(dim.axes)
        ]
        if not divisible:
            return False
        dims[rng.choice(divisible)].append(axis)
        return True

    for axis in [*sorted(x.partial), *sorted(x.placed), *sorted(idle)]:
        to = rng.choice("RRSM" if axis in x.partial | x.placed else "RRRSM")
        if rng.random() < 0.2:
            continue
        if (to == "S" and shard(axis)) or to in "RM":
            partial.discard(axis)
            root.discard(axis)
            if to == "M":
                root.add(axis)
    for place, dim in enumerate(x.dims):
        while dims[place] == list(dim.axes[: len(dims[place])]) and dims[place]:
            if rng.random() < 0.5:
                break
            axis = dims[place].pop()
            if rng.random() < 0.2:
                root.add(axis)
            elif rng.random() < 0.5:
                divisible = [
                    p
                    for p in range(len(dims))
                    if p != place
                    and dims[p][: len(x.dims[p].axes)] == list(x.dims[p].axes)
                    and x.dims[p].size % mesh.group_size((*dims[p], axis)) == 0
                ]
                if divisible:
                    dims[rng.choice(divisible)].append(axis)
    new_dims = tuple(Dim(d.size, tuple(axes)) for d, axes in zip(x.dims, dims, strict=True))
    reduction = x.reduction if partial else None
    return DistType(x.dtype, new_dims, frozenset(partial), reduction, at_root(root))


def random_shape(rng: random.Random, most: int = 2048) -> tuple[int, ...]:
    """Return a shape of up to three dimensions, of sizes that sub-axes divide and do not divide."""
    while True:
        rank = rng.choice([1, 1, 2, 2, 3])
        shape = tuple(
            rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 48, 96, 144]) for _ in range(rank)
        )
        elements = 1
        for size in shape:
            elements *= size
        if elements <= most:
            return shape


def redistribution(rng: random.Random, mesh: Mesh, name: str, dtype: DType) -> FuncOp:
    """Return a function of one redistribute that keeps the order of shards."""
    while True:
        x = states(rng, mesh, random_shape(rng), dtype)
        y = further(rng, mesh, x)
        if x == y:
            continue
        builder = FunctionBuilder(mesh, [x], name)
        to = coll.DistTensorType(y)
        value = builder.try_op(OPERATIONS["redistribute"], builder.values, {"to": to})
        if value is not None:
            return builder.function([value])


def collective(rng: random.Random, mesh: Mesh, name: str, dtype: DType) -> FuncOp:
    """Return a function of one collective; all kinds are equally likely."""
    kind = rng.choice([op for op in coll.COLLECTIVES if op.KIND.is_searched])
    while True:
        x = states(rng, mesh, random_shape(rng), dtype)
        if rng.random() < 0.3:
            x = random_layout(rng, mesh, dtype)
        if x.elements > 4096:
            continue
        moves = [move for move in axis_moves(mesh, len(x.dims)) if move.op is kind]
        rng.shuffle(moves)
        moves.sort(key=lambda move: -len(move.properties["axes"].data) + rng.random())  # pyright: ignore
        builder = FunctionBuilder(mesh, [x], name)
        for move in moves:
            if (value := builder.try_move(builder.values[0], move)) is not None:
                return builder.function([value])
