"""Estimates of the time of steps, by which layouts are chosen: the prices without what waits."""

import random
from dataclasses import replace

import pytest
from checks import functions_of
from hypothesis import given, settings
from machines import meshes
from programs import RANDOM
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.dialects.machine import mesh_of
from collir.layout import Dim, DistType, DType, Mesh, Reduction
from collir.synthesis.propagation.choice import with_layout
from collir.synthesis.propagation.estimate import Estimates
from collir.synthesis.propagation.graph import Layout
from collir.synthesis.propagation.moves import IMPOSSIBLE, Moves

TEXT = """
machine @rack { level node[2] { port = 10 GB/s, latency = 20 us }
                level gpu[4] { port = 100 GB/s, latency = 3 us } }
mesh @m on @rack { data = node:2, model = gpu:4 }
func @f(%x: f32[2000000000]) -> f32[2000000000] on @m { return %x }
"""

WHOLE, BY_DATA, BY_MODEL = ((),), (("data.node",),), (("model.gpu",),)
SIZE = 8_000_000_000

# Four devices are behind the port of a node.
NODE, GPU = 10e9 / 4, 100e9


@pytest.mark.parametrize(
    ("before", "after", "partial", "seconds"),
    [
        (WHOLE, WHOLE, ["data.node"], 2 * 1 / 2 * SIZE / NODE),  # all_reduce
        (WHOLE, BY_DATA, ["data.node"], 1 / 2 * SIZE / NODE),  # reduce_scatter
        (BY_MODEL, WHOLE, [], 3 / 4 * SIZE / GPU),  # all_gather
        (WHOLE, BY_MODEL, [], 2 * SIZE / 4 / 1e12),  # slice: a copy in a memory of 1 TB/s
        # The fast sub-axis goes first, and leaves a quarter to the other one.
        (WHOLE, WHOLE, ["data.node", "model.gpu"], 2 * 3 / 4 * SIZE / GPU + SIZE / 4 / NODE),
    ],
)
def test_the_time_of_a_move_is_that_of_rings(
    before: tuple[tuple[str, ...]],
    after: tuple[tuple[str, ...]],
    partial: list[str],
    seconds: float,
) -> None:
    (function,) = functions_of(collir.parse(TEXT))
    estimates = Estimates(function, mesh_of(function))
    x = DistType(DType.F32, (Dim(SIZE // 4),))
    reduction = Reduction.SUM if partial else None
    seen = estimates.move(x, before, after, frozenset(partial), reduction)
    assert seen == pytest.approx(seconds)


def some_layout(rng: random.Random, mesh: Mesh, axes: list[str]) -> Layout:
    """Return a layout of two dimensions over some of the sub-axes."""
    dims: tuple[list[str], list[str]] = ([], [])
    for axis in rng.sample(axes, rng.randint(0, len(axes))):
        rng.choice(dims).append(axis)
    return tuple(mesh.ordered(dim) for dim in dims)


@given(mesh=meshes().filter(lambda mesh: bool(mesh.sub_axes)), rng=RANDOM)
@settings(max_examples=60)
def test_the_estimate_of_a_move_is_a_lower_bound_of_its_price(
    mesh: Mesh, rng: random.Random
) -> None:
    function = FuncOp("f", ((), ()))
    size = rng.choice([1, 1000, 10**6])
    x = DistType(DType.F32, (Dim(size * mesh.devices), Dim(mesh.devices)))
    axes = list(mesh.by_name)
    partial = frozenset(rng.sample(axes, rng.choice([0, 0, 1])))
    before = some_layout(rng, mesh, [axis for axis in axes if axis not in partial])
    after = some_layout(rng, mesh, axes)
    reduction = Reduction.SUM if partial else None
    estimates = Estimates(function, mesh)
    estimate = estimates.move(x, before, after, partial, reduction)
    own = replace(with_layout(x, before), partial=partial, reduction=reduction)
    price = Moves(estimates.mesh, CostModel()).seconds(own, with_layout(x, after))
    assert price < IMPOSSIBLE
    assert estimate <= price * (1 + 1e-9)
    assert estimate > 0 or price == 0 or (before, partial) == (after, frozenset())
