"""Small meshes, all of their layouts, all steps from a layout, and random programs of these."""

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import TypeVar

from hypothesis import strategies as st
from support.machine.topologies import kinds_of, some_level, some_parents
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr, UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from collir.dialects import coll, nn
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import (
    MESH_ATTRIBUTE,
    MachineOp,
    MeshOp,
    NumberAttr,
)
from collir.dialects.nested import CallOp, RepeatOp, Signature, YieldOp, argument_types
from collir.dialects.operation import DistOp, attribute_of
from collir.dialects.tensor import AxesAttr, DistTensorType, PlaceAttr, SizesAttr, dist_type
from collir.ir.ahead import drop_misplaced
from collir.ir.builders import machine_op, mesh_op
from collir.ir.diagnostics import DiagnosticError
from collir.ir.parameters import parameters_of, set_parameters
from collir.layout import (
    Axis,
    Dim,
    DistType,
    DType,
    Factor,
    LayoutError,
    Mesh,
    Reduction,
    at_root,
    place_at,
)
from collir.layout.cuts import undefined_cut, units
from collir.layout.formulas import Formula
from collir.layout.mesh import index_over
from collir.layout.sizes import Size, same_size, size_with
from collir.layout.steps import AHEAD, ArgumentKind
from collir.layout.types import with_sizes
from collir.machine import Device, DeviceKind, Fabric, Level, Machine
from collir.transforms.instantiation import instantiate

T = TypeVar("T")

SIZES = [
    sizes
    for count in (1, 2, 3)
    for sizes in itertools.product(range(2, 9), repeat=count)
    if math.prod(sizes) <= 8
]
"""The sizes of the sub-axes of all meshes up to 8 devices and 3 sub-axes."""


def mesh_of_sizes(sizes: Sequence[int], name: str = "m") -> Mesh:
    """Return a mesh with a level, an axis and a sub-axis for each size: a.l0, b.l1, ..."""
    levels = tuple(Level(f"l{i}", n, 1e9, 1e-6) for i, n in enumerate(sizes)) or (
        Level("l0", 1, 1e9, 1e-6),
    )
    axes = tuple(Axis.placed("abc"[i], [Factor(f"l{i}", n)]) for i, n in enumerate(sizes)) or (
        Axis.placed("a", [Factor("l0", 1)]),
    )
    return Mesh(name, Machine(f"{name}_machine", levels), axes)


def random_machine(rng: random.Random, sizes: Sequence[int], name: str) -> Machine:
    """Return a machine with levels l0, l1, ... of these sizes, with mostly default settings."""

    def rarely(default: T, *others: T) -> T:
        return rng.choice(others) if rng.random() < 0.3 else default

    levels: list[Level] = []
    for i, size in enumerate(sizes):
        below = math.prod(sizes[i + 1 :])
        kind = rarely("switch", *kinds_of(size))
        level = some_level(rng, f"l{i}", size, rarely(1e9, 12.5e9, rng.uniform(1, 1e12)), 0, kind)
        levels.append(
            replace(
                level,
                latency=rarely(1e-6, 0.0, rng.uniform(0, 1e-3)),
                taper=1.0 if level.ports else rarely(1.0, 2.0, 1e23, rng.uniform(1, 9)),
                rails=rarely(1, *(n for n in range(1, below + 1) if below % n == 0)),
                fabric=rarely(None, *Fabric),
            )
        )
    if sizes and sizes[0] > 1 and rng.random() < 0.1:
        levels[0] = replace(some_parents(rng, levels[0], "above"), fabric=levels[0].fabric)
    device = Device(
        (("f32", 1e12),),
        memory=rarely(None, 1e9, 2.0**34),
        memory_bandwidth=None,
        reduction=rarely(None, 2e10, rng.uniform(1, 1e12)),
    )
    return Machine(name, tuple(levels), rarely(None, device))


def with_random_kinds(rng: random.Random, machine: Machine) -> Machine:
    """Return the machine with up to three kinds of devices, on some level."""
    device = machine.device or Device((("f32", 1e12),))
    index = rng.randrange(len(machine.levels))
    level = machine.levels[index]
    marks = sorted(rng.sample(range(1, level.size), min(rng.choice([1, 2]), level.size - 1)))
    counts = [end - start for start, end in pairwise([0, *marks, level.size])]

    def faster(rate: float | None) -> float | None:
        return rate and rate * rng.uniform(0.5, 2)

    kinds = [
        DeviceKind(
            f"k{number}",
            Device(
                tuple((dtype, rate * rng.uniform(0.5, 2)) for dtype, rate in device.compute),
                faster(device.memory),
                faster(device.memory_bandwidth),
                faster(device.reduction),
            ),
        )
        for number in range(len(counts))
    ]
    runs = tuple((kind.name, count) for kind, count in zip(kinds, counts, strict=True))
    levels = list(machine.levels)
    levels[index] = replace(level, kinds=runs)
    return replace(machine, levels=tuple(levels), device=None, kinds=tuple(kinds))


def random_mesh(
    rng: random.Random,
    devices: int | None = None,
    name: str = "m",
    weights: float = 0.0,
    kinds: float = 0.0,
) -> Mesh:
    """Return a mesh of up to 16 devices, on up to 3 levels, of up to 3 axes; or an unplaced one.

    Args:
        kinds: the probability that devices of a mesh that is placed differ in kind.
        weights: the probability that axes have weights.
    """
    factors: list[tuple[int, int, int]] = []  # level, axis, size
    left = devices or rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 12, 15, 16, 16])
    levels, axes = rng.randint(1, 3), rng.randint(1, 3)
    while left > 1:
        size = rng.choice([n for n in range(2, left + 1) if left % n == 0])
        left //= size
        factors.append((rng.randrange(levels), rng.randrange(axes), size))
    size_of = {
        (level, axis): math.prod(n for i, j, n in factors if (i, j) == (level, axis))
        for level in range(levels)
        for axis in range(axes)
    }
    sizes = [math.prod(size_of[i, j] for j in range(axes)) for i in range(levels)]
    machine = random_machine(rng, sizes, f"{name}_machine")
    if rng.random() < 0.2:
        totals = [math.prod(size_of[i, j] for i in range(levels)) for j in range(axes)]
        made = [Axis("xyz"[j], n) for j, n in enumerate(totals)]
    else:
        made = [
            Axis.placed("xyz"[j], [Factor(f"l{i}", size_of[i, j]) for i in range(levels)])
            for j in range(axes)
        ]
        if kinds and rng.random() < kinds:
            machine = with_random_kinds(rng, machine)
    if rng.random() < weights:
        made = [axis.weighted(random_weights(rng, axis)) for axis in made]
    return Mesh(name, machine, tuple(made))


def random_weights(rng: random.Random, axis: Axis) -> list[int]:
    """Return weights of an axis: equal, a product of weights of its factors, or any small ones."""
    kind = rng.choice(["equal", "product", "any", "any"])
    if kind == "any":
        return [rng.choice([1, 1, 2, 3]) for _ in range(axis.size)]
    weights = [1]
    for size in [factor.size for factor in axis.factors or ()] or [axis.size]:
        shares = [rng.choice([1, 1, 2]) if kind == "product" else 1 for _ in range(size)]
        weights = [weight * share for weight in weights for share in shares]
    return weights


def ordered_lists(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield all non-empty lists of distinct sub-axes, in every order."""
    for count in range(1, len(axes) + 1):
        yield from itertools.permutations(axes, count)


def layouts(
    mesh: Mesh, rank: int, reduction: Reduction, dtype: DType = DType.F32, multiple: int = 1
) -> Iterator[DistType]:
    """Yield all layouts of a tensor of some rank on a mesh.

    Dimension d has ``multiple + d`` times as many elements as the mesh has devices, so that all
    dimensions differ.
    """
    names = list(mesh.by_name)
    states = ["R", "P", "M", *range(rank)]
    for chosen in itertools.product(states, repeat=len(names)):
        sharded = [[n for n, s in zip(names, chosen, strict=True) if s == d] for d in range(rank)]
        partial = frozenset(n for n, s in zip(names, chosen, strict=True) if s == "P")
        root = frozenset(n for n, s in zip(names, chosen, strict=True) if s == "M")
        for orders in itertools.product(*(itertools.permutations(axes) for axes in sharded)):
            dims = tuple(
                Dim(mesh.devices * (multiple + d), tuple(axes)) for d, axes in enumerate(orders)
            )
            yield DistType(dtype, dims, partial, reduction if partial else None, at_root(root))


@dataclass(frozen=True)
class Move:
    """An operation with its properties, to try on a value."""

    op: type[DistOp]
    properties: dict[str, Attribute]

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.properties.items())
        return f"{self.op.name}({shown})"


def integer(value: int) -> Attribute:
    """Return a property that is an integer."""
    return _integer(value) if type(value) is int else attribute_of(ArgumentKind.INTEGER, value)


@cache
def _integer(value: int) -> Attribute:
    return attribute_of(ArgumentKind.INTEGER, value)


OVER = (
    OPERATIONS["all_reduce"],
    OPERATIONS["reduce"],
    OPERATIONS["broadcast"],
    OPERATIONS["keep_root"],
)
OVER_DIM = (
    OPERATIONS["reduce_scatter"],
    OPERATIONS["all_gather"],
    OPERATIONS["scatter"],
    OPERATIONS["gather"],
    OPERATIONS["slice"],
)


def axis_moves(mesh: Mesh, rank: int) -> Sequence[Move]:
    """Return every step over sub-axes for a tensor of some rank, well typed or not."""
    return _axis_moves(tuple(mesh.by_name), rank)


@cache
def _axis_moves(names: tuple[str, ...], rank: int) -> Sequence[Move]:
    return tuple(_moves_over(names, rank))


def _moves_over(names: tuple[str, ...], rank: int) -> Iterator[Move]:
    for axes in ordered_lists(list(names)):
        over = AxesAttr(axes)
        for op in OVER:
            yield Move(op, {"axes": over})
        for reduction in (Reduction.SUM, Reduction.PROD):
            yield Move(OPERATIONS["mask"], {"axes": over, "reduction": StringAttr(reduction)})
        for dim in range(rank):
            for op in OVER_DIM:
                yield Move(op, {"axes": over, "dim": integer(dim)})
            for target in range(rank):
                yield Move(
                    OPERATIONS["all_to_all"],
                    {"axes": over, "source": integer(dim), "target": integer(target)},
                )


def local_moves(x: DistType, rng: random.Random) -> Iterator[Move]:
    """Yield local operations on a tensor, with a few parameters each, well typed or not."""
    rank = len(x.dims)
    for dim in range(rank):
        size = x.dims[dim].size
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        for outer in {rng.choice(divisors) for _ in range(3)}:
            yield Move(
                OPERATIONS["split"],
                {"dim": integer(dim), "sizes": SizesAttr((outer, size // outer))},
            )
        if dim + 1 < rank:
            yield Move(OPERATIONS["merge"], {"dim": integer(dim)})
        pads = [(0, 2, 0), (1, 0, 1), (-1, 3, 2), (0, -1, 0)]
        if isinstance(size, Size):  # amounts that are formulas too
            half = size // 2
            pads += [(0, size, 0), (-half, half, 0), (half - size, 0, 0), (size - 1, 1 - size, 0)]
        for low, high, value in pads:
            yield Move(
                OPERATIONS["pad"],
                {
                    "dim": integer(dim),
                    "low": integer(low),
                    "high": integer(high),
                    "value": NumberAttr(float(value)),
                },
            )
    for _ in range(2):
        order = list(range(rank))
        rng.shuffle(order)
        yield Move(OPERATIONS["transpose"], {"order": SizesAttr(tuple(order))})
        yield Move(OPERATIONS["reshape"], {"shape": SizesAttr(_random_shape(x.elements, rng))})
    yield Move(OPERATIONS["barrier"], {})
    for factor in (2.0, -1.0, 0.5, 0.0):
        yield Move(OPERATIONS["scale"], {"factor": NumberAttr(factor)})
    for dtype in DType:
        yield Move(OPERATIONS["cast"], {"dtype": StringAttr(dtype)})


def _random_shape(elements: int, rng: random.Random) -> tuple[int, ...]:
    shape: list[int] = []
    while elements > 1 and len(shape) < 4:
        n = rng.choice([n for n in range(1, elements + 1) if elements % n == 0])
        shape.append(n)
        elements //= n
    return (*shape, elements)


def permutes(mesh: Mesh, x: DistType) -> Iterator[Move]:
    """Yield permutes to every layout that differs only in replicated and sharded sub-axes."""
    free = [a for a in mesh.by_name if a not in x.partial | x.placed]
    rank = len(x.dims)
    for chosen in itertools.product(["R", *range(rank)], repeat=len(free)):
        sharded = [[a for a, s in zip(free, chosen, strict=True) if s == d] for d in range(rank)]
        for orders in itertools.product(*(itertools.permutations(axes) for axes in sharded)):
            dims = tuple(Dim(d.size, tuple(o)) for d, o in zip(x.dims, orders, strict=True))
            to = DistType(x.dtype, dims, x.partial, x.reduction, x.place)
            yield Move(OPERATIONS["permute"], {"to": DistTensorType(to)})


def redistributions(mesh: Mesh, x: DistType, rng: random.Random) -> Iterator[Move]:
    """Yield redistributes to random layouts, most of them well typed."""
    for _ in range(3):
        to = with_sizes(random_layout(rng, mesh, x.dtype, rank=len(x.dims)), x.shape)
        keep = rng.choice([frozenset[str](), x.partial & to.partial, to.partial])
        reduction = (x.reduction or to.reduction) if keep else None
        yield Move(
            OPERATIONS["redistribute"],
            {"to": DistTensorType(replace(to, partial=keep, reduction=reduction))},
        )


def place_moves(mesh: Mesh, x: DistType, rng: random.Random) -> Iterator[Move]:
    """Yield steps that keep, send, shift or take a part of a tensor, most of them well typed."""
    names = list(mesh.by_name)
    for axis in names:
        coordinate = rng.randrange(mesh.by_name[axis].size)
        yield Move(OPERATIONS["keep"], {"place": PlaceAttr(((axis, coordinate),))})
    placed = rng.sample(sorted(x.placed), len(x.placed))
    for count in range(1, len(placed) + 1):
        over = tuple(placed[:count])
        ends: dict[str, Attribute] = {"axes": AxesAttr(over)}
        ends["sender"] = integer(index_over(mesh, over, dict(x.place)))
        ends["receiver"] = integer(rng.randrange(mesh.group_size(over)))
        yield Move(OPERATIONS["send"], ends)
    for dim, entry in enumerate(x.dims):
        for count in range(1, len(entry.axes) + 1):
            over = entry.axes[-count:]
            size = mesh.group_size(over)
            yield Move(
                OPERATIONS["part"],
                {
                    "axes": AxesAttr(over),
                    "coordinate": integer(rng.randrange(size)),
                    "dim": integer(dim),
                },
            )
            moved: dict[str, Attribute] = {"axes": AxesAttr(over)}
            moved["distance"] = integer(rng.randint(-size, size))
            moved |= {"open": UnitAttr()} if rng.random() < 0.5 else {}
            yield Move(OPERATIONS["shift"], moved)


def reassembled(builder: "FunctionBuilder", value: SSAValue, rng: random.Random) -> SSAValue | None:
    """Add the parts of a sharded value, some steps on them, and the value assembled from them."""
    x, mesh = dist_type(value), builder.mesh
    dims = [dim for dim, entry in enumerate(x.dims) if entry.axes]
    if not dims:
        return None
    dim = rng.choice(dims)
    over = x.dims[dim].axes[-rng.randint(1, len(x.dims[dim].axes)) :]
    axes, count = AxesAttr(over), mesh.group_size(over)
    pieces: list[SSAValue] = []
    moved = rng.randrange(count) if rng.random() < 0.5 else 0
    for index in range(count):
        source = (index + moved) % count
        cut: dict[str, Attribute] = {
            "axes": axes,
            "coordinate": integer(source),
            "dim": integer(dim),
        }
        piece = builder.try_op(OPERATIONS["part"], [value], cut)
        if piece is not None and moved:
            ends: dict[str, Attribute] = {
                "axes": axes,
                "sender": integer(source),
                "receiver": integer(index),
            }
            piece = builder.try_op(OPERATIONS["send"], [piece], ends)
        if piece is not None and rng.random() < 0.3:
            factor: dict[str, Attribute] = {"factor": NumberAttr(2.0)}
            piece = builder.try_op(OPERATIONS["scale"], [piece], factor) or piece
        if piece is None:
            return None
        pieces.append(piece)
    return builder.try_op(OPERATIONS["assemble"], pieces, {"axes": axes, "dim": integer(dim)})


# --- modules ------------------------------------------------------------------------------------


def mesh_ops(mesh: Mesh) -> list[MachineOp | MeshOp]:
    """Return the operations that declare a mesh and its machine."""
    return [_machine_op(mesh.machine).clone(), mesh_op(mesh)]


@lru_cache(maxsize=64)
def _machine_op(machine: Machine) -> MachineOp:
    return machine_op(machine)


class FunctionBuilder:
    """A builder of a function step by step, which refuses steps that are not well typed.

    Attributes:
        models: whether random steps may be operations of models, and an add that broadcasts.
        redistributes: the probability that a random step is preceded by a redistribute.
    """

    def __init__(
        self,
        mesh: Mesh,
        arguments: Iterable[DistType],
        name: str = "f",
        parameters: Mapping[str, int] = MappingProxyType({}),
        models: bool = False,
        redistributes: float = 0.0,
    ):
        self.models = models
        self.redistributes = redistributes
        self.parameters = parameters
        self.mesh = mesh
        self.name = name
        self.block = Block(arg_types=[DistTensorType(x) for x in arguments])
        self.values: list[SSAValue] = list(self.block.args)

    def try_move(self, value: SSAValue, move: Move) -> SSAValue | None:
        """Add a step and return its result, or None if it is not well typed."""
        return self.try_op(move.op, [value], move.properties)

    def try_first(self, value: SSAValue, moves: Iterable[Move]) -> SSAValue | None:
        """Add the first step that is well typed and return its result, or None if none is."""
        tried = (self.try_move(value, move) for move in moves)
        return next((result for result in tried if result is not None), None)

    def try_op(
        self, op: type[DistOp], operands: Sequence[SSAValue], properties: dict[str, Attribute]
    ) -> SSAValue | None:
        """Add an operation and return its result, or None if it is not well typed."""
        try:
            made = op.make(self.mesh, *operands, **properties)
        except LayoutError:
            return None
        self.block.add_op(made)
        self.values.append(made.result)
        return made.result

    def function(self, results: Sequence[SSAValue]) -> FuncOp:
        """Return the finished function."""
        self.block.add_op(ReturnOp(*results))
        inputs = [arg.type for arg in self.block.args]
        function = FuncOp(
            self.name, (inputs, [value.type for value in results]), Region(self.block)
        )
        function.attributes[MESH_ATTRIBUTE] = SymbolRefAttr(self.mesh.name)
        set_parameters(function, self.parameters)
        return function


def module_of(meshes: Iterable[Mesh], functions: Iterable[FuncOp]) -> ModuleOp:
    """Return a module of meshes and functions."""
    return ModuleOp([*(op for mesh in meshes for op in mesh_ops(mesh)), *functions])


def random_layout(
    rng: random.Random,
    mesh: Mesh,
    dtype: DType | None = None,
    places: bool = False,
    rank: int | None = None,
) -> DistType:
    """Return a random type on a mesh, of rank 0 to 3; most dimensions can be divided further.

    With ``places``, values are held at other coordinates than 0, too.
    """
    dtype = dtype or rng.choice(list(DType))
    rank = rng.choice([0, 1, 1, 2, 2, 3]) if rank is None else rank
    axes: list[list[str]] = [[] for _ in range(rank)]
    partial: list[str] = []
    root: list[str] = []
    states = ["P"] * 3 + ["M", "R"] + list(range(rank))
    names = list(mesh.by_name)
    rng.shuffle(names)
    for name in names:
        state = rng.choice(states)
        if state == "P":
            partial.append(name)
        elif state == "M":
            root.append(name)
        elif isinstance(state, int):
            axes[state].append(name)
    dims: list[Dim] = []
    all_units = units(mesh, list(mesh.by_name))
    for over in axes:
        if undefined_cut(mesh, over):
            over.sort(key=list(mesh.by_name).index)
        if undefined_cut(mesh, over):
            over.clear()
        more = all_units // units(mesh, over) if rng.random() < 0.7 else rng.randint(1, 3)
        dims.append(Dim(units(mesh, over) * max(1, more) * rng.randint(1, 2), tuple(over)))
    reductions = dtype.reductions
    reduction = rng.choice(reductions) if partial else None
    place = at_root(root)
    if places:
        place = place_at((axis, rng.randrange(mesh.by_name[axis].size)) for axis in root)
    return DistType(dtype, tuple(dims), frozenset(partial), reduction, place)


def random_parameters(rng: random.Random) -> dict[str, int]:
    """Return one to three parameters of a function with defaults."""
    names = rng.sample(["batch", "hidden", "heads", "dim", "over"], rng.randint(1, 3))
    return {name: rng.choice([1, 2, 2, 3, 4, 5, 8]) for name in names}


def random_formula(rng: random.Random, value: int, parameters: Mapping[str, int]) -> int:
    """Return an integer with a formula of parameters that it is the value of; or without one."""
    (a, m), (b, n) = (rng.choice(list(parameters.items())) for _ in range(2))
    x, y = Size(m, Formula.parameter(a)), Size(n, Formula.parameter(b))
    forms = [value, x + (value - m), x + y + (value - m - n), value * m // x]
    forms += [value // m * x] * 4 if value % m == 0 else []
    forms += [value // m // n * x * y] * 2 if value % (m * n) == 0 else []
    forms += [value // (m + n) * (x + y), value * (m + n) // (x + y)] * (value % (m + n) == 0)
    return rng.choice(forms)


def with_formulas(rng: random.Random, x: DistType, parameters: Mapping[str, int]) -> DistType:
    """Return a type whose sizes are formulas of parameters."""
    return with_sizes(x, [random_formula(rng, size, parameters) for size in x.shape])


def random_function(
    rng: random.Random,
    mesh: Mesh,
    steps: int = 6,
    name: str = "f",
    dtype: DType | None = None,
    parametric: float = 0.25,
    nested: bool = True,
    callee: tuple[FuncOp, Mapping[str, int]] | None = None,
    models: bool = False,
    redistributes: float = 0.0,
) -> FuncOp:
    """Return a well-typed function of up to ``steps`` steps on some arguments.

    Args:
        redistributes: the probability of a redistribute beside a step.
        models: whether there may be operations of models.
        parametric: the probability that its sizes are formulas of parameters.
        nested: whether there may be loops.
        callee: a function on the mesh that is called first, and values of its parameters.
    """
    first = random_layout(rng, mesh, dtype, places=rng.random() < 0.5)
    parameters = random_parameters(rng) if rng.random() < parametric else {}
    if parameters:
        first = with_formulas(rng, first, parameters)
    arguments = [first] + ([first] if rng.random() < 0.3 else [])
    count = rng.choice([1, 2, 2, 3])
    loops = nested and rng.random() < 0.4
    if loops and rng.random() < 0.7:
        arguments.append(replace(first, dims=(Dim(count), *first.dims)))
    called: list[DistType] = []
    bindings: dict[str, int] = {}
    if callee is not None:
        bindings = {
            name: random_formula(rng, value, parameters) if parameters else value
            for name, value in callee[1].items()
        }
        values = parameters_of(callee[0]) | bindings
        # Formulas that follow from those of the values fit at other values too.
        followed = rng.random() < 0.6
        for x in map(dist_type, callee[0].args):
            bound = with_sizes(x, [size_with(size, values) for size in x.shape])
            plain = with_sizes(x, map(int, bound.shape))
            other = with_formulas(rng, plain, parameters) if parameters else plain
            called.append(bound if followed else other)
    arguments += called
    builder = FunctionBuilder(mesh, arguments, name, parameters, models, redistributes)
    for value, hint in zip(builder.values, ("x", "y"), strict=False):
        value.name_hint = hint
    if callee is not None:
        operands = builder.values[len(builder.values) - len(called) :]
        call = CallOp.of(mesh, Signature.of(callee[0]), operands, bindings)
        builder.block.add_op(call)
        builder.values += call.results
    if loops:
        _add_steps(rng, builder, steps // 3)
        add_repeat(rng, builder, count, max(1, steps // 2))
    _add_steps(rng, builder, steps - len(list(builder.block.ops)))
    returned = rng.choice([1, 1, 2])
    results = builder.values[-returned:]
    if rng.random() < 0.1:
        results = [*results, rng.choice(builder.values)]
    return builder.function(results)


def add_repeat(
    rng: random.Random, builder: FunctionBuilder, count: int, steps: int, depth: int = 0
) -> RepeatOp | None:
    """Add a loop with a random body, if one can be made, and return it."""
    mesh, values = builder.mesh, builder.values
    sliced = [x for x in values if _has_slices(dist_type(x), count)]
    small = [x for x in values if dist_type(x).elements <= 1024]
    operands = [
        rng.sample(small, min(len(small), rng.choice([0, 1, 1, 2]))),
        rng.sample(sliced, min(len(sliced), rng.choice([0, 1, 1, 2]))),
        rng.sample(small, min(len(small), rng.choice([0, 0, 1]))),
    ]
    types = [dist_type(x) for group in operands for x in group]
    if not types:
        return None
    first = len(operands[0])
    types = argument_types(mesh, count, types, first, len(operands[1]))
    body = FunctionBuilder(mesh, types, models=builder.models, redistributes=builder.redistributes)
    if depth == 0 and rng.random() < 0.2:
        add_repeat(rng, body, rng.choice([1, 2, 3]), 2, depth=1)
    _add_steps(rng, body, steps)
    yielded: list[SSAValue] = []
    for carry in body.block.args[:first]:
        alike = [x for x in body.values if dist_type(x).agrees(dist_type(carry))]
        yielded.append(rng.choice(alike[-2:]))
    small = [x for x in body.values if dist_type(x).elements <= 1024]
    yielded += rng.sample(small, min(len(small), rng.choice([0, 1, 1, 2])))
    if not yielded:
        return None
    body.block.add_op(YieldOp.create(operands=yielded))
    op = RepeatOp.of(mesh, count, operands, body.block, rng.random() < 0.5)
    state = rng.getstate()  # the marks do not change what else is chosen
    if rng.random() < 0.7:
        _mark_ahead(rng, op)
    rng.setstate(state)
    builder.block.add_op(op)
    builder.values += op.results
    return op


def _mark_ahead(rng: random.Random, loop: RepeatOp) -> None:
    """Let some steps of a loop that may be ahead be so."""
    for op in loop.body.block.ops:
        if isinstance(op, DistOp) and op.kind.may_be_async and rng.random() < 0.7:
            op.properties[AHEAD.name] = UnitAttr()
    drop_misplaced(loop.body.block.ops)


def _has_slices(x: DistType, count: int) -> bool:
    return bool(x.dims) and not x.dims[0].axes and same_size(x.dims[0].size, count)


def _add_steps(rng: random.Random, builder: FunctionBuilder, steps: int) -> None:
    """Add up to a number of random steps to a function."""
    mesh = builder.mesh
    for _ in range(steps):
        value = rng.choice(builder.values[-3:])
        x = dist_type(value)
        if x.elements > (16384 if mesh.uneven else 4096):
            break
        moves = [*axis_moves(mesh, len(x.dims)), *local_moves(x, rng)]
        moves += itertools.islice(permutes(mesh, x), 20)
        rng.shuffle(moves)
        if builder.models and rng.random() < 0.4:
            _add_broadcast(rng, builder, value)
        for term in builder.values:
            same = builder.models or same_size(dist_type(term).shape, x.shape)
            if rng.random() < 0.2 and same and builder.try_op(OPERATIONS["add"], [value, term], {}):
                break
        if x.dims and rng.random() < 0.1:
            dim = rng.randrange(len(x.dims))
            builder.try_op(OPERATIONS["concat"], [value, value], {"dim": integer(dim)})
        if builder.redistributes and rng.random() < builder.redistributes:
            builder.try_first(value, redistributions(mesh, x, rng))
        if rng.random() < 0.1:
            reassembled(builder, value, rng)
        if rng.random() < 0.2:
            places = list(place_moves(mesh, x, rng))
            builder.try_first(value, rng.sample(places, len(places)))
        if rng.random() < 0.1:
            builder.try_op(
                OPERATIONS["compute"], [value, rng.choice(builder.values)], _flops(mesh, x)
            )
        # Collectives are rare among the well-typed moves, so they are often tried first.
        first_collectives = rng.random() < 0.7
        collectives = [m for m in moves if m.op in coll.COLLECTIVES]
        builder.try_first(value, (collectives if first_collectives else []) + moves)


def _add_broadcast(rng: random.Random, builder: FunctionBuilder, value: SSAValue) -> None:
    """Add a tensor that devices make to a value, along some of its last dimensions."""
    x = dist_type(value)
    dims = x.dims[rng.randint(0, len(x.dims)) :]
    dims = tuple(Dim(1) if rng.random() < 0.2 else dim for dim in dims)
    y = DistType(x.dtype, dims, place=x.place)
    value_of = NumberAttr(float(rng.randint(0, 1)))
    amount: dict[str, Attribute] = {"value": value_of, "to": DistTensorType(y)}
    term = builder.try_op(nn.OPERATIONS["constant"], [], amount)
    if term is not None and dims and rng.random() < 0.5:
        counted: dict[str, Attribute] = {"dim": integer(0), "to": DistTensorType(y)}
        term = builder.try_op(nn.OPERATIONS["iota"], [], counted) or term
    if term is not None and rng.random() < 0.5:
        whole = replace(x, partial=frozenset(), reduction=None)
        to: dict[str, Attribute] = {"to": DistTensorType(whole)}
        term = builder.try_op(nn.OPERATIONS["broadcast_to"], [term], to) or term
    if term is not None:
        builder.try_op(OPERATIONS["add"], [value, term], {})


def _flops(mesh: Mesh, x: DistType) -> dict[str, Attribute]:
    """Return the flops of a microsecond, if the device has a rate for the dtype (only for f32)."""
    known = mesh.machine.slowest is not None and x.dtype is DType.F32
    return {"flops": NumberAttr(1e6 if known else 0.0)}


def random_module(
    rng: random.Random,
    functions: int = 3,
    steps: int = 6,
    weights: float = 0.0,
    nested: bool = True,
    kinds: float = 0.2,
    models: bool = False,
    redistributes: float = 0.0,
) -> ModuleOp:
    """Return a module of random functions on one or two random meshes.

    Args:
        redistributes: the probability of a redistribute beside a step.
        models: whether there may be operations of models.
        weights: the probability that axes of a mesh have weights.
        nested: whether there may be loops and calls.
        kinds: the probability that devices of a mesh that is placed differ in kind.
    """
    names = ("m", "n")[: rng.randint(1, 2)]
    meshes = [random_mesh(rng, name=name, weights=weights, kinds=kinds) for name in names]
    made: list[FuncOp] = []
    for i in range(functions):
        mesh = rng.choice(meshes)
        alike = [f for f in made if f.attributes[MESH_ATTRIBUTE] == SymbolRefAttr(mesh.name)]
        callee = None
        if nested and alike and rng.random() < 0.3:
            called = rng.choice(alike)
            callee = called, values_that_fit(rng, mesh, called, made)
        function = random_function(
            rng,
            mesh,
            steps,
            f"f{i}",
            nested=nested,
            callee=callee,
            models=models,
            redistributes=redistributes,
        )
        made.append(function)
    return module_of(meshes, made)


def values_that_fit(
    rng: random.Random, mesh: Mesh, function: FuncOp, others: Sequence[FuncOp]
) -> dict[str, int]:
    """Return values of some parameters of a function at which it is well typed and small.

    Args:
        others: the functions that it may call.
    """
    defaults = parameters_of(function)
    for _ in range(4 if defaults else 0):
        values = {
            name: rng.choice([value, value * 2, value * 3, rng.randint(1, 9)])
            for name, value in defaults.items()
            if rng.random() < 0.8
        }
        module = module_of([mesh], _with_callees(function, others))
        if not values:
            continue
        try:
            instantiate(module, values, function.sym_name.data)
        except DiagnosticError:
            continue
        *_, copy = (op for op in module.ops if isinstance(op, FuncOp))
        made = [*copy.args, *(result for op in copy.walk() for result in op.results)]
        small = all(dist_type(value).elements <= 16384 for value in made)
        if small and _signs(copy) == _signs(function):
            return values
    return {}


def _signs(function: FuncOp) -> list[int]:
    """Return the signs of what pads add, which emitted code takes to be those at the defaults."""
    pads = (op for op in function.walk() if isinstance(op, DistOp) and op.mnemonic == "pad")
    amounts = (int(op.integer(end)) for op in pads for end in ("low", "high"))
    return [(amount > 0) - (amount < 0) for amount in amounts]


def _with_callees(function: FuncOp, others: Sequence[FuncOp]) -> list[FuncOp]:
    """Return copies of the functions that a function calls, directly or not, and then of itself."""
    by_name = {other.sym_name.data: other for other in others}
    names: set[str] = set()
    missing = [function]
    while missing:
        calls = (op for op in missing.pop().walk() if isinstance(op, CallOp))
        new = {call.symbol for call in calls} - names
        names |= new
        missing += [by_name[name] for name in new]
    callees = [other for other in others if other.sym_name.data in names]
    return [other.clone() for other in (*callees, function)]


RANDOM = st.builds(random.Random, st.integers(0, 2**32 - 1))
"""Random generators by seed: a failure names the seed, and no time goes into shrinking."""
