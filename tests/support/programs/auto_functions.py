"""Random ``auto`` functions: operations of models on whole values, and types for some of them."""

import random
from dataclasses import replace

from support.programs.collectives import FunctionBuilder, module_of, random_mesh
from support.programs.models import MOST_ELEMENTS, add_move, add_operation
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import OpResult

from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.auto import lay_out_argument, set_auto
from collir.layout import Dim, DistType, DType, LayoutError, Mesh, check_type
from collir.layout.cuts import units
from collir.machine import Device


def random_layout(rng: random.Random, mesh: Mesh, x: DistType) -> DistType:
    """Return the type of a value that is sharded over some axes, or of the whole value."""
    axes: list[list[str]] = [[] for _ in x.dims]
    for axis in rng.sample(list(mesh.by_name), len(mesh.by_name)):
        where = rng.randrange(2 * len(x.dims) + 1)
        if where < len(x.dims):
            axes[where].append(axis)
    dims = tuple(Dim(dim.size, tuple(own)) for dim, own in zip(x.dims, axes, strict=True))
    sharded = DistType(x.dtype, dims)
    try:
        check_type(mesh, sharded)
    except LayoutError:
        return x
    return sharded


def random_auto(
    rng: random.Random, steps: int = 8, weights: float = 0.2, computes: bool = False
) -> ModuleOp | None:
    """Return a module with an ``auto`` function; None if its values are too large.

    Args:
        computes: whether the machine says how fast its devices are.
    """
    mesh = random_mesh(rng, devices=rng.choice([1, 2, 4, 4, 6, 8]), weights=weights)
    if computes and not mesh.placed:
        return None
    if computes:
        device = Device((("f64", 1e12),), memory_bandwidth=10 ** rng.uniform(9, 12))
        mesh = replace(mesh, machine=replace(mesh.machine, device=device))
    unit = units(mesh, list(mesh.by_name))
    types = [
        DistType(DType.F64, tuple(Dim(unit * rng.choice([1, 1, 2])) for _ in range(rank)))
        for rank in (rng.randint(1, 3) for _ in range(rng.randint(1, 3)))
    ]
    builder = FunctionBuilder(mesh, types)
    for _ in range(4 * steps):
        value = rng.choice(builder.values[-4:])
        x = dist_type(value)
        if rng.random() < 0.15:
            to = DistTensorType(random_layout(rng, mesh, x))
            there = builder.try_op(OPERATIONS["redistribute"], [value], {"to": to})
            if there is not None:
                builder.try_op(OPERATIONS["redistribute"], [there], {"to": DistTensorType(x)})
                builder.values.remove(there)
            continue
        add = add_operation if rng.random() < 0.75 else add_move
        result = add(rng, builder)
        if result is not None and dist_type(result).axes:  # what devices do is not said
            builder.values.remove(result)
            assert isinstance(result, OpResult)
            result.op.detach()
            result.op.erase()
            continue
        if result is not None and dist_type(result).elements > MOST_ELEMENTS:
            return None
        steps -= result is not None
        if not steps:
            break
    results = rng.sample(builder.values[len(types) :], min(3, len(builder.values) - len(types)))
    if not results:
        return None
    function = builder.function(results)
    module = module_of([mesh], [function])
    for argument in function.args:
        x = dist_type(argument)
        if (to := random_layout(rng, mesh, x)) != x:
            lay_out_argument(argument, DistTensorType(to))
    inputs = [argument.type for argument in function.args]
    outputs = list(function.function_type.outputs)
    function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
    set_auto(function)
    return module
