"""Random programs with several collectives of few kinds, and computations between them."""

import random

from support.programs.collectives import (
    FunctionBuilder,
    Move,
    axis_moves,
    module_of,
    random_layout,
    random_mesh,
)
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr
from collir.dialects.tensor import dist_type
from collir.layout import DType, Mesh


def gradients(rng: random.Random, mesh: Mesh | None = None) -> ModuleOp:
    """Return a module of collectives of few kinds on values of many shapes; some need others."""
    mesh = mesh or random_mesh(rng)
    dtype = rng.choice([DType.F32, DType.F32, DType.I32])
    builder = FunctionBuilder(mesh, [random_layout(rng, mesh, dtype) for _ in range(4)], "f")
    rate = mesh.machine.device is not None and dtype is DType.F32
    results: list[SSAValue] = []
    axes = [move for move in axis_moves(mesh, 3) if move.op.KIND.may_be_async]
    for _ in range(8):
        value = rng.choice(builder.values)
        if rate and rng.random() < 0.3:
            flops: dict[str, Attribute] = {"flops": NumberAttr(rng.choice([0.0, 1e5, 1e8]))}
            value = builder.try_op(
                OPERATIONS["compute"], [value, rng.choice(builder.values)], flops
            )
            assert value is not None
        rank = len(dist_type(value).dims)
        for move in rng.sample(axes, len(axes)):
            if _fits(move, rank) and (made := builder.try_move(value, move)) is not None:
                results.append(made)
                break
    results = rng.sample(results, rng.randint(0, len(results)))
    return module_of([mesh], [builder.function([*results, builder.values[-1]])])


def _fits(move: Move, rank: int) -> bool:
    """Return whether all dimensions that a step names exist."""
    dims = [
        move.properties[name] for name in ("dim", "source", "target") if name in move.properties
    ]
    return all(int(str(dim).split()[0]) < rank for dim in dims)
