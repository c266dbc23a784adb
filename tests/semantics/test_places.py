"""Steps between places, against blocks of the whole tensor in numpy, and against each other."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from numpy.typing import NDArray
from support.programs.collectives import (
    RANDOM,
    FunctionBuilder,
    Move,
    integer,
    module_of,
    place_moves,
    random_mesh,
)
from support.semantics.checks import functions_of
from xdsl.dialects.builtin import UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.coll import OPERATIONS
from collir.dialects.operation import DistOp
from collir.dialects.tensor import AxesAttr, dist_type
from collir.layout import Dim, DistType, DType, Mesh, place_at
from collir.layout.cuts import cuts, pieces, places, undefined_cut, units
from collir.layout.mesh import digits_over
from collir.semantics.reference.buffers import assemble, distribute, random_tensor
from collir.semantics.reference.executor import execute
from collir.semantics.validation.validate import compare
from collir.semantics.validation.verdict import Outcome

Array = NDArray[Any]


def sharded_type(rng: random.Random, mesh: Mesh) -> tuple[DistType, int, tuple[str, ...]]:
    """Return a type, one of its dimensions, and sub-axes that shard this dimension minor-most."""
    names = rng.sample(list(mesh.by_name), len(mesh.by_name))
    count = rng.randint(1, len(names))
    dims = [Dim(rng.randint(1, 3)) for _ in range(rng.randint(1, 3))]
    dim, axes = rng.randrange(len(dims)), tuple(names[:count])
    dims[dim] = Dim(mesh.group_size(axes) * rng.randint(1, 3), axes)
    place = place_at((a, rng.randrange(mesh.by_name[a].size)) for a in names[count:][:1])
    over = axes[-rng.randint(1, count) :]
    return DistType(DType.I32, tuple(dims), place=place), dim, over


def mesh_with_axes(rng: random.Random) -> Mesh:
    while not (mesh := random_mesh(rng)).sub_axes:
        pass
    return mesh


def by_blocks(x: DistType, mesh: Mesh, tensor: Array, dim: int, over: tuple[str, ...]) -> Array:
    """Return a tensor as [outer blocks, blocks over the sub-axes, elements of a block]."""
    major = mesh.group_size(axis for axis in x.dims[dim].axes if axis not in over)
    outer = int(np.prod(tensor.shape[:dim])) * major
    return tensor.reshape(outer, mesh.group_size(over), -1)


def result_of(mesh: Mesh, function: FuncOp, tensor: Array, seed: int) -> Array:
    module = module_of([mesh], [function])
    x, numbers = dist_type(function.args[0]), np.random.default_rng(seed)
    (out,) = execute(module, function, [distribute(mesh, tensor, x, numbers)])
    last = function.body.block.last_op
    assert last is not None
    return assemble(mesh, out, dist_type(last.operands[0]))


@given(rng=RANDOM)
@settings(max_examples=18)
def test_a_shift_is_a_roll_of_blocks(rng: random.Random) -> None:
    mesh = mesh_with_axes(rng)
    x, dim, over = sharded_type(rng, mesh)
    count, is_open = mesh.group_size(over), rng.random() < 0.5
    distance = rng.choice([-1, 1]) * rng.randrange(1, count if is_open else 2 * count)
    properties: dict[str, Attribute] = {"axes": AxesAttr(over), "distance": integer(distance)}
    properties |= {"open": UnitAttr()} if is_open else {}
    builder = FunctionBuilder(mesh, [x])
    shifted = builder.try_op(OPERATIONS["shift"], builder.values, properties)
    assert shifted is not None
    tensor = random_tensor(x, np.random.default_rng(rng.randrange(2**32)))
    blocks = by_blocks(x, mesh, tensor, dim, over)
    expected = np.roll(blocks, distance, axis=1)
    if is_open:
        expected[:, : max(distance, 0)] = 0
        expected[:, count + min(distance, 0) :] = 0
    result = result_of(mesh, builder.function([shifted]), tensor, 0)
    assert np.array_equal(result, expected.reshape(tensor.shape))


def weighted_type(rng: random.Random) -> tuple[Mesh, DistType, int, tuple[str, ...]]:
    """Return a mesh with weights, a type on it, one of its dimensions, and sub-axes that shard this
    dimension minor-most, each piece of which is cut alike over the others."""
    while True:
        mesh = random_mesh(rng, weights=0.7)
        if not mesh.sub_axes:
            continue
        x, dim, over = sharded_type(rng, mesh)
        axes = x.dims[dim].axes
        held = axes[: len(axes) - len(over)]
        if undefined_cut(mesh, axes) or pieces(mesh, held, over) is None:
            continue
        dims = list(x.dims)
        dims[dim] = Dim(units(mesh, axes) * rng.randint(1, 3), axes)
        if dims[dim].size <= 2000:
            return mesh, replace(x, dims=tuple(dims)), dim, over


@given(rng=RANDOM)
@settings(max_examples=30)
def test_a_part_is_a_block_and_parts_are_the_whole(rng: random.Random) -> None:
    mesh, x, dim, over = weighted_type(rng)
    count = mesh.group_size(over)
    tensor = random_tensor(x, np.random.default_rng(rng.randrange(2**32)))
    at = rng.randrange(count)
    axes: dict[str, Attribute] = {"axes": AxesAttr(over), "dim": integer(dim)}
    builder = FunctionBuilder(mesh, [x])
    part = builder.try_op(OPERATIONS["part"], builder.values, {**axes, "coordinate": integer(at)})
    assert part is not None
    place = digits_over(mesh, over, at)
    assert dist_type(part).place == place_at({**dict(x.place), **dict(place)}.items())
    held = x.dims[dim].axes[: len(x.dims[dim].axes) - len(over)]
    rows = [
        range(*cuts(mesh, x.dims[dim].size, x.dims[dim].axes, {**dict(place), **outer}))
        for outer in places(mesh, held)
    ]
    expected = np.take(tensor, [position for row in rows for position in row], dim)
    result = result_of(mesh, builder.function([part]), tensor, 0)
    assert np.array_equal(result, expected)
    builder, same = FunctionBuilder(mesh, [x]), FunctionBuilder(mesh, [x])
    parts = [
        builder.try_op(OPERATIONS["part"], builder.values[:1], {**axes, "coordinate": integer(n)})
        for n in range(count)
    ]
    whole = builder.try_op(OPERATIONS["assemble"], [p for p in parts if p is not None], axes)
    assert whole is not None and dist_type(whole) == x
    functions = same.function(same.values), builder.function([whole])
    for function in functions:
        module_of([mesh], [function])
    verdict = compare(functions[0], functions[1])
    assert verdict.outcome == Outcome.SAME
    mixed = {axis in mesh.uneven for axis in over} == {True, False}
    assert verdict.how == "proof" or mixed


@given(rng=RANDOM)
@settings(max_examples=18)
def test_what_goes_and_comes_back_is_proven_the_same(rng: random.Random) -> None:
    """Check that sends to another place and back, and shifts there and back, change nothing."""
    mesh = mesh_with_axes(rng)
    x, _, _ = sharded_type(rng, mesh)
    moves = [m for m in place_moves(mesh, x, rng) if m.op.KIND.sends and "open" not in m.properties]
    moved = FunctionBuilder(mesh, [x])
    there = moved.try_first(moved.values[0], moves)
    if there is None:
        return
    step = there.owner
    assert isinstance(step, DistOp)
    properties = dict(step.properties)
    if step.kind.by_layout:
        properties["distance"] = integer(-step.integer("distance"))
    else:
        properties |= {"sender": properties["receiver"], "receiver": properties["sender"]}
    back = moved.try_move(there, Move(type(step), properties))
    assert back is not None
    same = FunctionBuilder(mesh, [x])
    functions = same.function(same.values), moved.function([back])
    modules = [module_of([mesh], [function]) for function in functions]
    verdict = compare(functions[0], functions[1])
    assert (verdict.outcome, verdict.how) == (Outcome.SAME, "proof"), functions_of(modules[1])


@given(rng=RANDOM)
@settings(max_examples=12)
def test_open_shifts_add_up_and_lose_blocks(rng: random.Random) -> None:
    mesh = mesh_with_axes(rng)
    x, _, over = sharded_type(rng, mesh)
    count = mesh.group_size(over)
    if count < 3:
        return
    first = rng.randrange(1, count - 1)
    second = rng.randrange(1, count - first)

    def shifted(*distances: int, is_open: bool = True) -> FuncOp:
        builder = FunctionBuilder(mesh, [x])
        value = builder.values[0]
        for distance in distances:
            properties: dict[str, Attribute] = {"axes": AxesAttr(over)}
            properties |= {"distance": integer(distance)}
            properties |= {"open": UnitAttr()} if is_open else {}
            moved = builder.try_op(OPERATIONS["shift"], [value], properties)
            assert moved is not None
            value = moved
        return builder.function([value])

    whole, parts = shifted(first + second), shifted(first, second)
    closed, back = shifted(first + second, is_open=False), shifted(first, -first)
    cases = [(whole, parts, Outcome.SAME), (whole, closed, Outcome.DIFFERENT)]
    cases.append((shifted(first, -first, is_open=False), back, Outcome.DIFFERENT))
    for before, after, outcome in cases:
        functions = before.clone(), after.clone()
        for function in functions:
            module_of([mesh], [function])
        verdict = compare(functions[0], functions[1])
        assert (verdict.outcome, verdict.how) == (outcome, "proof")
