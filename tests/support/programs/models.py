"""Random programs with operations of models, on sharded and partial values."""

import random
from collections.abc import Sequence

from support.programs.collectives import (
    FunctionBuilder,
    axis_moves,
    local_moves,
    module_of,
    random_mesh,
)
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr
from xdsl.ir import Attribute, SSAValue

from collir.dialects.coll import OPERATIONS as STEPS
from collir.dialects.nn import OPERATIONS
from collir.dialects.tensor import SizesAttr, dist_type
from collir.layout import Dim, DistType, DType, LayoutError, Mesh, Reduction, check_type
from collir.layout.cuts import units
from collir.layout.nn_rows import NN

MOST_ELEMENTS = 600
"""The most elements of a value."""

MAPS = [name for name, kind in NN.items() if kind.operands and not kind.parameters]


def random_argument(rng: random.Random, mesh: Mesh, dtype: DType) -> DistType:
    """Return a type of rank 1 to 3, sharded or partial."""
    rank = rng.randint(1, 3)
    axes: list[list[str]] = [[] for _ in range(rank)]
    partial: set[str] = set()
    for axis in mesh.by_name:
        where = rng.choice([*range(rank), "partial", "none"])
        if isinstance(where, int):
            axes[where].append(axis)
        elif where == "partial":
            partial.add(axis)
    unit = units(mesh, list(mesh.by_name))
    sizes = [unit * rng.choice([1, 1, 2]) if own or rng.random() < 0.8 else 1 for own in axes]
    dims = tuple(Dim(size, tuple(own)) for size, own in zip(sizes, axes, strict=True))
    reduction = rng.choice([Reduction.SUM, Reduction.SUM, Reduction.MAX]) if partial else None
    return DistType(dtype, dims, frozenset(partial), reduction)


def add_operation(rng: random.Random, builder: FunctionBuilder) -> SSAValue | None:
    """Add a random operation of a model on values that are there, if it is well typed."""
    name = rng.choice(["einsum"] * 8 + ["mul", "sub", "div", "sum", "max", "softmax"] * 2 + MAPS)
    kind, properties = NN[name], dict[str, Attribute]()
    recent = builder.values[-6:] + builder.values[:3]
    if name == "einsum":
        operands = [rng.choice(recent) for _ in range(rng.randint(1, 3))]
        properties["equation"] = StringAttr(random_equation(rng, operands))
    else:
        operands = [rng.choice(recent) for _ in range(kind.operands or 1)]
    names = {parameter.name for parameter in kind.parameters}
    rank = len(dist_type(operands[0]).dims)
    if "dims" in names:
        if not rank:
            return None
        properties["dims"] = SizesAttr(tuple(rng.sample(range(rank), rng.randint(1, rank))))
    if "keepdims" in names and rng.random() < 0.7:
        properties["keepdims"] = UnitAttr()
    return builder.try_op(OPERATIONS[name], operands, properties)


def random_equation(rng: random.Random, operands: Sequence[SSAValue]) -> str:
    """Return an equation in which dimensions of one size often have one index."""
    letters: dict[int, list[str]] = {}
    texts: list[list[str]] = []
    for operand in operands:
        own: list[str] = []
        for dim in dist_type(operand).dims:
            known = letters.setdefault(int(dim.size), [])
            free = [letter for letter in known if letter not in own]
            if free and rng.random() < 0.8:
                own.append(rng.choice(free))
            else:
                own.append(f"i{dim.size}x{len(known)}")
                known.append(own[-1])
        texts.append(own)
    used = list(dict.fromkeys(index for over in texts for index in over))
    result = rng.sample(used, rng.randint(0, min(3, len(used))))
    return f"{', '.join(' '.join(over) for over in texts)} -> {' '.join(result)}"


def add_move(rng: random.Random, builder: FunctionBuilder) -> SSAValue | None:
    """Add a random step that changes a layout, or a local one, if it is well typed."""
    value = rng.choice(builder.values[-4:])
    x = dist_type(value)
    if rng.random() < 0.3:
        other = rng.choice(builder.values)
        return builder.try_op(STEPS["add"], [value, other], {})
    local = rng.random() < 0.3
    moves = list(local_moves(x, rng) if local else axis_moves(builder.mesh, len(x.dims)))
    moves = [move for move in moves if move.op is not STEPS["cast"]]
    rng.shuffle(moves)
    if x.partial and not local and rng.random() < 0.8:
        moves.sort(key=lambda move: move.op not in (STEPS["all_reduce"], STEPS["reduce_scatter"]))
    return builder.try_first(value, moves[:40])


def random_model(rng: random.Random, steps: int = 8, weights: float = 0.0) -> ModuleOp | None:
    """Return a module with a function that returns the results of random operations.

    It is None if its values are too large.
    """
    mesh = random_mesh(rng, devices=rng.choice([1, 2, 4, 4, 6]), weights=weights)
    types = [random_argument(rng, mesh, DType.F64) for _ in range(rng.randint(1, 3))]
    try:
        for x in types:
            check_type(mesh, x)
    except LayoutError:
        return None
    builder = FunctionBuilder(mesh, types)
    for _ in range(4 * steps):
        add = add_operation if rng.random() < 0.65 else add_move
        result = add(rng, builder)
        if result is not None and dist_type(result).elements > MOST_ELEMENTS:
            return None
        steps -= result is not None
        if not steps:
            break
    return module_of([mesh], [builder.function(builder.values[len(types) :])])
