"""Functions of one operation each, for every collective and local operation, on various meshes."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from support.programs.collectives import (
    FunctionBuilder,
    Move,
    integer,
    local_moves,
    permutes,
    random_layout,
)
from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects import coll
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.dialects.tensor import AxesAttr, DistTensorType, PlaceAttr
from collir.layout import Axis, Dim, DistType, DType, Factor, Mesh, Reduction, at_root, place_at
from collir.layout.mesh import digits_over, index_over
from collir.machine import Level, Machine

# --- meshes -------------------------------------------------------------------------------------


def placed(name: str, **axes: Mapping[str, int]) -> Mesh:
    """Return a mesh of axes with factors on some levels, which are in alphabetical order."""
    levels = sorted({level for factors in axes.values() for level in factors})
    sizes = [math.prod(factors.get(level, 1) for factors in axes.values()) for level in levels]
    machine = Machine(
        f"{name}_machine",
        tuple(Level(level, n, 1e9, 1e-6) for level, n in zip(levels, sizes, strict=True)),
    )
    factors = {
        axis: [Factor(level, n) for level, n in sorted(sizes_on.items())]
        for axis, sizes_on in axes.items()
    }
    return Mesh(name, machine, tuple(Axis.placed(axis, parts) for axis, parts in factors.items()))


def unplaced(name: str, **axes: int) -> Mesh:
    """Return a mesh of axes with sizes and no levels."""
    machine = Machine(f"{name}_machine", (Level("l", math.prod(axes.values()), 1e9, 1e-6),))
    return Mesh(name, machine, tuple(Axis(axis, n) for axis, n in axes.items()))


MESHES = [
    unplaced("one", x=1),
    unplaced("two", x=2),
    placed("three", x={"a": 3}),
    placed("four", x={"a": 2, "b": 2}),
    placed("five", x={"a": 1, "b": 5}),
    placed("six", x={"a": 2}, y={"b": 3}),
    placed("six_on_one_level", x={"a": 3}, y={"a": 2}),
    unplaced("seven", x=7),
    placed("eight", x={"a": 2, "b": 2}, y={"b": 2}),
    placed("nine", x={"a": 3, "b": 3}),
    unplaced("ten", x=5, y=2),
    placed("eleven", x={"a": 11}),
    placed("twelve", x={"a": 3}, y={"b": 4}),
    placed("twelve_in_three", x={"a": 2, "c": 3}, y={"b": 2}),
    placed("thirteen", x={"a": 13}),
    placed("fourteen", x={"b": 7}, y={"a": 2}),
    unplaced("fifteen", x=3, y=5),
    placed("sixteen", x={"a": 2, "b": 2}, y={"b": 1, "c": 4}),
    placed("sixteen_crossed", x={"a": 2, "b": 2}, y={"a": 2, "b": 2}),
]


def meshes_of(devices: int) -> list[Mesh]:
    """Return the meshes with a number of devices."""
    return [mesh for mesh in MESHES if mesh.devices == devices]


def over_lists(mesh: Mesh) -> list[tuple[str, ...]]:
    """Return all non-empty lists of distinct sub-axes, in every order."""
    names = list(mesh.by_name)
    return [axes for n in range(len(names)) for axes in itertools.permutations(names, n + 1)]


# --- collectives --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A collective on a dtype, with a reduction if it reduces."""

    op: type[DistOp]
    dtype: DType
    reduction: Reduction | None

    def __str__(self) -> str:
        return "_".join(filter(None, (mnemonic(self.op), self.dtype, self.reduction)))


def mnemonic(op: type[DistOp]) -> str:
    """Return the name of an operation in ``.coll`` files."""
    return op.name.partition(".")[2]


def reductions(dtype: DType) -> list[Reduction]:
    """Return the reductions of a dtype; integers have no average, truth values no sum."""
    if dtype is DType.BOOL:
        return [Reduction.MAX, Reduction.MIN]
    return [r for r in Reduction if dtype.is_float or r is not Reduction.AVG]


KINDS = [
    Kind(op, dtype, reduction)
    for op in coll.COLLECTIVES
    for dtype in DType
    for reduction in (reductions(dtype) if op.KIND.reduces else [None])
]


@dataclass(frozen=True)
class Place:
    """The sub-axes and the dimension, one of three, on which a collective works."""

    mesh: Mesh
    axes: tuple[str, ...]
    dim: int


def places_of(devices: int) -> list[Place]:
    """Return all places on the meshes with a number of devices."""
    return [
        Place(mesh, axes, dim)
        for mesh in meshes_of(devices)
        for axes in over_lists(mesh)
        for dim in range(3)
    ]


def operand(rng: random.Random, kind: Kind, place: Place, other: int) -> DistType:
    """Return a random operand of a collective; ``other`` is the target of an all_to_all.

    On other sub-axes, the operand is replicated, at one coordinate, sharded or partial.
    """
    mesh, axes = place.mesh, place.axes
    sharded: list[tuple[str, ...]] = [(), (), ()]
    partial, root = frozenset[str](), frozenset[str]()
    for axis in (axis for axis in mesh.by_name if axis not in axes):
        state = rng.choice(["replicated", "root", "partial", 0, 1, 2])
        if isinstance(state, int):
            sharded[state] += (axis,)
        elif state == "root":
            root |= {axis}
        elif state == "partial":
            partial |= {axis}
    if kind.op.KIND.reduces:
        partial |= set(axes)
    elif kind.op.KIND.before == "root":
        root |= set(axes)
    else:
        sharded[place.dim] += axes
    cut = None  # the dimension that the group must divide
    if kind.op in (OPERATIONS["reduce_scatter"], OPERATIONS["scatter"]):
        cut = place.dim
    elif kind.op is OPERATIONS["all_to_all"]:
        cut = other
    dims = [
        Dim(mesh.group_size(names + axes * (d == cut)) * rng.randint(1, 3), names)
        for d, names in enumerate(sharded)
    ]
    reduction = kind.reduction or rng.choice(reductions(kind.dtype))
    at = place_at((axis, rng.randrange(mesh.by_name[axis].size)) for axis in sorted(root))
    return DistType(kind.dtype, tuple(dims), partial, reduction if partial else None, at)


def collective(rng: random.Random, kind: Kind, place: Place, name: str) -> FuncOp:
    """Return a function of one collective."""
    other = rng.choice([d for d in range(3) if d != place.dim])
    x, count = operand(rng, kind, place, other), place.mesh.group_size(place.axes)
    properties: dict[str, Attribute] = {"axes": AxesAttr(place.axes)}
    if kind.op is OPERATIONS["all_to_all"]:
        properties |= {"source": integer(place.dim), "target": integer(other)}
    elif kind.op is OPERATIONS["send"]:
        sender = index_over(place.mesh, place.axes, dict(x.place))
        ahead = rng.randrange(1, count)
        properties |= {"sender": integer(sender), "receiver": integer((sender + ahead) % count)}
    elif kind.op is OPERATIONS["shift"]:
        is_open = rng.random() < 0.5
        distance = rng.choice([-1, 1]) * rng.randrange(1, count + (not is_open))
        properties |= {"distance": integer(distance), **({"open": UnitAttr()} if is_open else {})}
    elif kind.op not in (
        OPERATIONS["all_reduce"],
        OPERATIONS["reduce"],
        OPERATIONS["broadcast"],
    ):
        properties |= {"dim": integer(place.dim)}
    moves = [Move(kind.op, properties)]
    if kind.op is OPERATIONS["permute"]:
        stay = DistTensorType(x)
        moves = list(permutes(place.mesh, x))
        rng.shuffle(moves)
        moves.sort(key=lambda move: move.properties["to"] == stay)  # last
    builder = FunctionBuilder(place.mesh, [x], name)
    tried = (builder.try_move(builder.values[0], move) for move in moves)
    return builder.function([next(result for result in tried if result is not None)])


def collectives(devices: int, rounds: int = 1) -> Iterator[FuncOp]:
    """Yield every kind of collective in each round, each at the next place."""
    rng = random.Random(devices)
    places = places_of(devices)
    rng.shuffle(places)
    turn = itertools.cycle(places)
    for index, kind in itertools.product(range(rounds), KINDS):
        yield collective(rng, kind, next(turn), f"{kind}_{index}")


def collectives_everywhere(devices: int, at_most: int) -> Iterator[FuncOp]:
    """Yield every kind of collective at every place, or at most ``at_most`` of them."""
    rng = random.Random(devices)
    every = list(itertools.product(KINDS, places_of(devices)))
    for index, (kind, place) in enumerate(rng.sample(every, min(at_most, len(every)))):
        yield collective(rng, kind, place, f"{kind}_{index}")


# --- local operations ---------------------------------------------------------------------------

PADS = [(0, 2, 0.0), (1, 0, 1.0), (-1, 3, -2.0), (0, -1, 0.0), (-1, 0, 0.0), (2, 1, 0.0)]
FACTORS = [2.0, -1.0, 0.0, 3.0, -128.0]
FRACTIONS = [0.5, 0.1, -1e-3]
"""Factors of floats; all but the first cause rounding."""


def local_steps(rng: random.Random, mesh: Mesh, x: DistType) -> Iterator[tuple[str, Move]]:
    """Yield local operations on an operand, well typed or not, each with a name for its kind."""
    dim = integer(rng.randrange(3))
    if lists := over_lists(mesh):
        over = AxesAttr(rng.choice(lists))
        yield "keep_root", Move(OPERATIONS["keep_root"], {"axes": over})
        axis = over.data[0]
        coordinate = rng.randrange(mesh.by_name[axis].size)
        yield "keep", Move(OPERATIONS["keep"], {"place": PlaceAttr(((axis, coordinate),))})
        at = integer(coordinate)
        part: dict[str, Attribute] = {"axes": AxesAttr((axis,)), "coordinate": at, "dim": dim}
        yield "part", Move(OPERATIONS["part"], part)
        yield "terms", Move(OPERATIONS["terms"], {"axes": over, "dim": dim})
        yield "slice", Move(OPERATIONS["slice"], {"axes": over, "dim": dim})
        for reduction in (Reduction.SUM, Reduction.PROD):
            kept: dict[str, Attribute] = {"axes": over, "reduction": StringAttr(reduction)}
            yield f"mask_{reduction}", Move(OPERATIONS["mask"], kept)
    for move in local_moves(x, rng):
        if move.op not in (
            OPERATIONS["pad"],
            OPERATIONS["scale"],
            OPERATIONS["cast"],
        ):
            yield mnemonic(move.op), move
    for index, (low, high, value) in enumerate(PADS):
        sizes = {"dim": dim, "low": integer(low), "high": integer(high)}
        yield f"pad_{index}", Move(OPERATIONS["pad"], {**sizes, "value": NumberAttr(value)})
    for index, factor in enumerate(FACTORS + FRACTIONS):
        yield f"scale_{index}", Move(OPERATIONS["scale"], {"factor": NumberAttr(factor)})
    for dtype in DType:
        yield f"cast_to_{dtype}", Move(OPERATIONS["cast"], {"dtype": StringAttr(dtype)})


def local_operations(devices: int) -> Iterator[FuncOp]:
    """Yield every kind of local operation on every dtype, on random layouts."""
    rng = random.Random(devices)
    for dtype in DType:
        missing = {"keep_root", "keep", "part", "slice", "mask_sum", "mask_prod"}
        missing = missing if devices > 1 else set[str]()
        if dtype is DType.BOOL:
            missing -= {"mask_sum", "mask_prod"}
        elif devices > 1:
            missing.add("terms")
        missing |= {"split", "merge", "reshape", "transpose"}
        missing |= {f"pad_{i}" for i, pad in enumerate(PADS) if dtype.represents(pad[2])}
        factors = FACTORS + FRACTIONS * dtype.is_float
        if dtype is not DType.BOOL:
            missing |= {f"scale_{i}" for i in range(len(factors))}
        missing |= {f"cast_to_{other}" for other in DType}
        while missing:
            mesh = rng.choice(meshes_of(devices))
            x = random_layout(rng, mesh, dtype)
            if x.elements > 2048:
                continue
            steps = [(name, move) for name, move in local_steps(rng, mesh, x) if name in missing]
            for name, move in rng.sample(steps, min(3, len(steps))):  # at most 3 for one layout
                builder = FunctionBuilder(mesh, [x], f"{name}_{dtype}")
                if (made := builder.try_move(builder.values[0], move)) and name in missing:
                    missing.remove(name)
                    yield builder.function([made])
        if devices > 1:
            yield assembly(rng, rng.choice(meshes_of(devices)), dtype)
        yield from joins(rng, rng.choice(meshes_of(devices)), dtype)


def assembly(rng: random.Random, mesh: Mesh, dtype: DType) -> FuncOp:
    """Return a function that assembles a dimension from its pieces, which it is given or cuts."""
    axes, dim = rng.choice(over_lists(mesh)), rng.randrange(3)
    count = mesh.group_size(axes)
    others = tuple(axis for axis in mesh.by_name if axis not in axes)
    shape = [Dim(2), Dim(3 * mesh.group_size(others), others), Dim(5)]
    at = [place_at(digits_over(mesh, axes, index)) for index in range(count)]
    arguments = [DistType(dtype, tuple(shape), place=place) for place in at]
    whole = shape[dim]
    shape[dim] = Dim(whole.size * count, whole.axes + axes)
    builder = FunctionBuilder(
        mesh, [*arguments, DistType(dtype, tuple(shape))], f"assemble_{dtype}"
    )
    *pieces, sharded = builder.values
    over: dict[str, Attribute] = {"axes": AxesAttr(axes), "dim": integer(dim)}
    for index in range(count):
        if rng.random() < 0.5:
            cut = {**over, "coordinate": integer(index)}
            pieces[index] = builder.try_op(OPERATIONS["part"], [sharded], cut) or pieces[index]
    made = [builder.try_op(OPERATIONS["assemble"], pieces, over)]
    double: dict[str, Attribute] = {"factor": NumberAttr(-1.0)}
    scaled = [builder.try_op(OPERATIONS["scale"], [piece], double) or piece for piece in pieces]
    made.append(builder.try_op(OPERATIONS["assemble"], scaled, over))
    return builder.function([value for value in made if value is not None])


def joins(rng: random.Random, mesh: Mesh, dtype: DType) -> Iterator[FuncOp]:
    """Yield additions, and concatenations along every dimension, of one dtype."""
    names = list(mesh.by_name)
    first = frozenset(names[:1])
    shape = (Dim(2), Dim(mesh.group_size(names[1:]), tuple(names[1:])), Dim(3))
    whole = DistType(dtype, shape)
    rooted = DistType(dtype, shape, place=at_root(first))
    parts = {r: DistType(dtype, shape, first, r) for r in reductions(dtype)} if names else {}
    terms = [] if dtype is DType.BOOL else [(whole, whole), (rooted, rooted)]
    terms += [(parts[r], parts[r]) for r in parts if r.linear]
    shifted = [r for r in parts if r not in (Reduction.SUM, Reduction.PROD)]
    terms += [(parts[r], whole) for r in shifted if dtype is not DType.BOOL]
    for index, (x, y) in enumerate(terms):
        builder = FunctionBuilder(mesh, [x, y], f"add_{index}_{dtype}")
        made = builder.try_op(OPERATIONS["add"], rng.sample(builder.values, 2), {})
        assert made is not None
        yield builder.function([made])
    joined = itertools.product(range(3), [whole, rooted, *parts.values()])
    for index, (dim, x) in enumerate(joined):
        count = rng.randint(1, 3)
        builder = FunctionBuilder(mesh, [x] * count, f"concat_{index}_{dtype}")
        made = builder.try_op(OPERATIONS["concat"], builder.values[:count], {"dim": integer(dim)})
        if made is not None:  # a sharded dimension stays as it is
            yield builder.function([made])


TO_OTHER_SIZES = """
machine @four { level a[2] { port = 1 GB/s, latency = 1 us }
                level b[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @four { x = a:2 weights [1, 2], y = b:2 weights [1, 2] }
func @f(%x: f32[2, 9@x]) -> f32[2, 9@y] on @m {
  %r = permute %x to f32[2, 9@y]
  return %r
}
"""
"""A permute to a rank whose block has another size than its own, as both axes have weights."""
