"""Programs in chunks the plain way: all paths of the graph, and the formula of each.

What is taken from collir are the edges of a state and what a step costs, nothing of how it
searches.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from programs import (
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
from collir.layout import Dim, DistType, DType, Mesh, Reduction
from collir.machine import Level, Machine
from collir.synthesis.programs.states import StatePaths
from collir.synthesis.programs.steps import Step


@dataclass(frozen=True)
class Way:
    """The steps of a program, and what those that send cost."""

    steps: tuple[Step, ...]
    costs: tuple[StepCost, ...]


class TooManyError(Exception):
    """More paths than are to be looked at."""


def all_paths(paths: StatePaths, most: int) -> list[Way]:
    """Every way from the start to the end.

    Raises:
        TooManyError: there are more than ``most``.
    """
    found: list[Way] = []
    for path in _onwards(paths, paths.start()):
        found.append(path)
        if len(found) > most:
            raise TooManyError
    return found


def _onwards(paths: StatePaths, state: int) -> Iterator[Way]:
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
        for rest in _onwards(paths, edge.after):
            yield Way((*steps, *edge.then, *rest.steps), (*costs, *rest.costs))


def loads(cost: StepCost) -> list[float]:
    """Seconds that a step keeps the port of each level busy, or whatever of it is more so."""
    parts: dict[Resource, float] = {}
    for phase in cost.phases:
        for resource, use in phase.uses:
            parts[resource] = parts.get(resource, 0.0) + use * phase.time
    levels = range(len(cost.collective.mesh.machine.levels))
    return [max((t for (n, _), t in parts.items() if n == level), default=0.0) for level in levels]


def stream(cost: StepCost) -> int:
    """The outermost level that a step goes through."""
    mesh = cost.collective.mesh
    names = [level.name for level in mesh.machine.levels]
    return min(names.index(str(mesh.by_name[axis].level)) for axis in cost.collective.axes)


def formula(costs: Sequence[StepCost], chunks: int) -> float:
    """What a program takes on so many chunks in a steady state."""
    if not costs:
        return 0.0
    levels = range(len(costs[0].collective.mesh.machine.levels))
    streams = [sum(one.time for one in costs if stream(one) == level) for level in levels]
    ports = [sum(loads(one)[level] for one in costs) for level in levels]
    return sum(one.time for one in costs) + (chunks - 1) * max(*streams, *ports)


# --- random cases -------------------------------------------------------------------------------


def quick_mesh(rng: random.Random, devices: int | None = None, name: str = "m") -> Mesh:
    """A placed mesh over two or three levels, mostly on plain switches without latencies: chunks
    pay for the smallest values."""
    while True:
        mesh = random_mesh(rng, devices, name)
        levels = mesh.machine.levels
        if not mesh.placed or len({sub.level for sub in mesh.sub_axes}) < 2:
            continue
        if any(level.taper > 9 for level in levels):
            continue
        if rng.random() < 0.7:
            plain = [
                Level(one.name, one.size, one.port, rng.choice([0.0, 0.0, 1e-12])) for one in levels
            ]
            machine = Machine(mesh.machine.name, tuple(plain), mesh.machine.device)
            mesh = Mesh(mesh.name, machine, mesh.axes)
        return mesh


def states(rng: random.Random, mesh: Mesh, shape: Sequence[int], dtype: DType) -> DistType:
    """A random layout of a tensor, sharded where that divides."""
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
    reductions = [one for one in Reduction if dtype.is_float or one is not Reduction.AVG]
    reduction = rng.choice(reductions) if partial else None
    return DistType(dtype, tuple(dims), frozenset(partial), reduction, frozenset(root))


def further(rng: random.Random, mesh: Mesh, x: DistType) -> DistType:
    """A layout that programs may bring another one to without changing the order of shards."""
    dims = [list(dim.axes) for dim in x.dims]
    partial, root = set(x.partial), set(x.root)
    idle = set(mesh.by_name) - set(x.axes)

    def shard(axis: str) -> bool:
        able = [
            place
            for place, dim in enumerate(x.dims)
            if dim.size % mesh.group_size((*dims[place], axis)) == 0
            and dims[place][: len(dim.axes)] == list(dim.axes)
        ]
        if not able:
            return False
        dims[rng.choice(able)].append(axis)
        return True

    for axis in [*sorted(x.partial), *sorted(x.root), *sorted(idle)]:
        to = rng.choice("RRSM" if axis in x.partial | x.root else "RRRSM")
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
                others = [p for p in range(len(dims)) if p != place]
                grown = [
                    p
                    for p in others
                    if dims[p][: len(x.dims[p].axes)] == list(x.dims[p].axes)
                    and x.dims[p].size % mesh.group_size((*dims[p], axis)) == 0
                ]
                if grown:
                    dims[rng.choice(grown)].append(axis)
    made = tuple(Dim(d.size, tuple(axes)) for d, axes in zip(x.dims, dims, strict=True))
    reduction = x.reduction if partial else None
    return DistType(x.dtype, made, frozenset(partial), reduction, frozenset(root))


def random_shape(rng: random.Random, most: int = 2048) -> tuple[int, ...]:
    """Up to three dimensions, of sizes that divide and that do not."""
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
    """A function of one redistribute between layouts of one order."""
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
    """A function of one collective, all kinds as likely."""
    wanted = rng.choice([kind for kind in coll.COLLECTIVES if kind is not OPERATIONS["permute"]])
    while True:
        x = states(rng, mesh, random_shape(rng), dtype)
        if rng.random() < 0.3:
            x = random_layout(rng, mesh, dtype)
        if x.elements > 4096:
            continue
        moves = [move for move in axis_moves(mesh, len(x.dims)) if move.op is wanted]
        rng.shuffle(moves)
        moves.sort(key=lambda move: -len(move.properties["axes"].data) + rng.random())  # pyright: ignore
        builder = FunctionBuilder(mesh, [x], name)
        for move in moves:
            if (value := builder.try_move(builder.values[0], move)) is not None:
                return builder.function([value])
